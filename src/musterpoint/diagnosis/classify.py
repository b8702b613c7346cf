"""The class of a failure: the user's own, out of memory, a symptom of another host's failure, or the infrastructure."""

from __future__ import annotations

import re

from musterpoint.diagnosis.peer_texts import PEER_LOST
from musterpoint.failure import Kind

_OUT_OF_MEMORY = re.compile(
    r"(?:CUDA|HIP|XPU|MPS backend) out of memory|\bOutOfMemoryError\b|CUDA_ERROR_OUT_OF_MEMORY"
    r"|CUDA error: out of memory|failure '?out of memory|\bMemoryError\b|[Cc]annot allocate memory"
    r"|can't allocate memory|OOM when allocating|RESOURCE_EXHAUSTED: .*[Oo]ut of memory|std::bad_alloc"
    r"|NRT_RESOURCE|[Ff]ailed to allocate .* on (?:NC|device)"
)
_OWN_MISTAKE = re.compile(
    r"EADDRINUSE|[Aa]ddress already in use|failed to listen|ncclInvalid(?:Usage|Argument)|Duplicate GPU detected"
    r"|invalid usage|illegal memory access|device-side assert"
)
_INFRASTRUCTURE = re.compile(
    r"uncorrectable ECC|GPU is lost|fallen off the bus|[Dd]river/library version mismatch|Input/output error"
    r"|Stale file handle|Remote I/O error|Transport endpoint is not connected|CUDA error: (?:hardware|unknown error)"
    r"|NVLink error|Xid \d+"
)


_CHILD_KILLED = re.compile(r"killed by signal: Killed|SIGKILL|terminated abruptly|\bexit ?code:? -9\b")
"""What DataLoader, subprocess, multiprocessing's and concurrent.futures' pools say of a child that was killed."""


def is_peer_lost(text: str) -> bool:
    """Whether an error is a symptom of a failure elsewhere: another rank or its host went away.

    A connection that the user's own code lost (a ``ConnectionResetError`` of an HTTP client) is not.
    """
    return PEER_LOST.search(text) is not None and not is_own_mistake(text)


def is_own_mistake(text: str) -> bool:
    """Whether ``text`` names a mistake on this host, which a communication library may report like a lost peer."""
    return _OWN_MISTAKE.search(text) is not None


def kind_of(text: str, status: int | None, oom: bool = False, symptom: bool | None = None) -> Kind:
    """``user``, ``oom``, ``peer`` or ``infra`` for a rank's error ``text``.

    ``status`` is as in ``RankEnd``; ``oom`` says that the kernel's OOM killer struck. ``symptom``: whether
    another failure caused the error (None: decided by its text). A SIGKILL that nothing here explains is ``infra``.
    """
    if (oom and (status in (-9, 137) or _CHILD_KILLED.search(text))) or _OUT_OF_MEMORY.search(text):
        return "oom"
    if is_peer_lost(text) if symptom is None else symptom:
        return "peer"
    if status == -9 or status is None or _INFRASTRUCTURE.search(text):
        return "infra"
    return "user"


HINTS: tuple[tuple[str, str], ...] = (
    (
        r"Attempt to convert a value \(PerReplica:",
        "Keras 3's fit does not work with MultiWorkerMirroredStrategy; install tf-keras (pip install --no-deps "
        "tf-keras) and set TF_USE_LEGACY_KERAS=1, or write the training loop yourself",
    ),
    (
        r"module 'tensorflow[\w.]*' has no attribute 'estimator'|No module named 'tensorflow[\w.]*\.estimator",
        "TensorFlow 2.16 and later have no tf.estimator; use an earlier one",
    ),
    (
        r"_temp\S*; No such file or directory[\s\S]*/job:ps/",
        "each parameter server writes its own part of a checkpoint; save where all hosts share a disk, or copy the "
        "variables to the chief first",
    ),
)
"""A pattern of the error's text, and the hint."""
ENDINGS: tuple[tuple[str, str], ...] = (
    (
        # with faulthandler's dump: the thread shown last is the main one, and has nothing left to run
        r"terminate called without an active exception\s*"
        r"(?:$|Fatal Python error: Aborted\b[\s\S]*<no Python frame>(?!\s*(?:Current t|T)hread 0x))",
        "the program was through; torch's gloo threads can abort Python's exit: atexit.register(time.sleep, 0.1) at "
        "its beginning gives them time",
    ),
)
"""A pattern of the end of everything that a program printed before it crashed, and the hint."""


def hint_for(text: str, tail: str = "") -> str:
    """The hint for an error ``text`` as a line of the failure reason; empty where there is none.

    ``tail`` is the end of what the program printed; empty, unless it ended by SIGABRT.
    """
    found = [hint for pattern, hint in HINTS if re.search(pattern, text)]
    found += [hint for pattern, hint in ENDINGS if re.search(pattern, tail)]
    return f"hint: {found[0]}" if found else ""
