"""The class of a failure: the user's own, out of memory, a symptom of another host's failure, or the infrastructure."""

from __future__ import annotations

import re

from musterpoint.base.failure import Kind
from musterpoint.core.diagnosis.peer_texts import is_peer_lost

_OUT_OF_MEMORY = re.compile(
    r"(?:CUDA|HIP|XPU|MPS backend) out of memory|\bOutOfMemoryError\b|CUDA_ERROR_OUT_OF_MEMORY"
    r"|CUDA error: out of memory|failure '?out of memory|\bMemoryError\b|[Cc]annot allocate memory"
    r"|can't allocate memory|OOM when allocating|RESOURCE_EXHAUSTED: .*[Oo]ut of memory|std::bad_alloc"
    r"|NRT_RESOURCE|[Ff]ailed to allocate .* on (?:NC|device)"
)
_INFRASTRUCTURE = re.compile(
    r"uncorrectable ECC|GPU is lost|fallen off the bus|[Dd]river/library version mismatch|Input/output error"
    r"|Stale file handle|Remote I/O error|Transport endpoint is not connected"
    r"|(?:CUDA error: |Cuda failure (?:\d+ )?')(?:hardware|unknown error|device not ready)|NVLink error|Xid \d+"
)


_CHILD_KILLED = re.compile(r"killed by signal: Killed|SIGKILL|\bexit ?code:? -9\b")
"""What DataLoader, subprocess and multiprocessing say of a child that was killed."""
_CHILD_GONE = re.compile(r"terminated abruptly")
"""What concurrent.futures' pools say of one, and of one that crashed."""


def kind_of(
    text: str, status: int | None, oom: bool = False, symptom: bool | None = None, lost_child: bool = False
) -> Kind:
    """``user``, ``oom``, ``peer`` or ``infra`` for a rank's error ``text``.

    ``status`` is as in ``RankEnd``; ``oom`` says that the kernel's OOM killer struck. ``symptom``: whether
    another failure caused the error (None: decided by its text); ``lost_child``: it is the loss of a child. A SIGKILL
    that nothing here explains is ``infra``, whether it met the rank or a child of it.
    """
    killed = lost_child or _CHILD_KILLED.search(text) is not None
    if (oom and (status in (-9, 137) or killed or _CHILD_GONE.search(text))) or _OUT_OF_MEMORY.search(text):
        return "oom"
    if is_peer_lost(text) if symptom is None else symptom:
        return "peer"
    if status == -9 or status is None or killed or _INFRASTRUCTURE.search(text):
        return "infra"
    return "user"
