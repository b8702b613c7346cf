"""Hands out what torch's flight recorder knows of a rank's collectives, when the program that looks at ranks asks.

torch records them by itself (2,000 of them), but only NCCL's part can be asked from outside. So a thread waits at a
pipe once ``torch.distributed`` has been imported, and answers also while the main thread waits in a collective. Pipe
and answer are found among the process's descriptors: a memory file, whose name has the number of the pipe's end.

Each question gets two answers: at once, and then with the stacks of all collectives, which first takes torch seconds.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Callable

MODULE = "torch.distributed.distributed_c10d"
FILE = "muster-flight"
"""The memory file is called this, a dash, and the number of the descriptor to write to."""
COUNT = 8
"""Bytes at its beginning that count the answers; the last one follows, a pickled dictionary."""
WRITING = 1 << 63
"""Is added to the count while an answer is written."""
DUMPS = "_dump_nccl_trace", "_dump_fr_trace"
"""Functions of ``torch._C._distributed_c10d``: what NCCL did, and what other backends did."""


def serve(_distributed: Any) -> None:
    """Starts the thread."""
    try:
        asked, ask = os.pipe()
        answers = os.memfd_create(f"{FILE}-{ask}")
        threading.Thread(target=answer, args=(asked, answers), name=FILE, daemon=True).start()
    except (OSError, RuntimeError):
        pass  # no descriptors or threads left: the program comes first


def answer(asked: int, answers: int) -> None:
    count = 0
    while os.read(asked, 4096):
        for stacks in (False, True):
            data = recorded(stacks)
            os.pwrite(answers, (count | WRITING).to_bytes(COUNT, "big"), 0)
            os.ftruncate(answers, COUNT + len(data))
            os.pwrite(answers, data, COUNT)
            count += 1
            os.pwrite(answers, count.to_bytes(COUNT, "big"), 0)


def recorded(stacks: bool) -> bytes:
    """The longest record: that of the backend which the program uses."""
    c10d = sys.modules.get("torch._C._distributed_c10d")
    found = [b""]
    for name in DUMPS:
        try:
            found.append(bytes(getattr(c10d, name)(includeStackTraces=stacks)))
        except Exception:  # another version of torch: there is nothing to hand out
            pass
    return max(found, key=len)


CHANGED: dict[str, Callable[[Any], None]] = {MODULE: serve} if hasattr(os, "memfd_create") else {}
"""The module, and what is done when it has been imported."""
