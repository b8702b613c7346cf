"""Whether torch's DataLoader raised because a worker of it is gone, and what tells how that worker ended.

Sources: ``_try_get_data`` in ``torch/utils/data/dataloader.py``, ``_pin_memory_loop`` in
``torch/utils/data/_utils/pin_memory.py``, ``_error_if_any_worker_fails`` in ``torch/csrc/DataLoader.cpp``. A worker
sends descriptors of its tensors, over a socket of ``multiprocessing``'s, when they are read.
"""

from __future__ import annotations

import re

from musterpoint.core.diagnosis.traceback import Raised

_READS = re.compile(r"torch[/\\]utils[/\\]data[/\\](?:dataloader|_utils[/\\]pin_memory)\.py$")
_READERS = ("_try_get_data", "do_one_step", "_pin_memory_loop")
_CHANNEL = re.compile(r"(?:lib[/\\](?:python[\d.]+[/\\])?|torch[/\\])multiprocessing[/\\]\w+\.py$")
"""Modules that carry what a worker sends: Python's own and torch's."""
_GONE = re.compile(
    r"(?:EOFError|Connection(?:Reset|Refused|Aborted)Error|BrokenPipeError|FileNotFoundError)(?::|$)"
    r"|RuntimeError: (?:received \d+ items of ancdata|unable to open shared memory object .*No such file)"
)
_WAITED = re.compile(r"(?:_?queue\.)?Empty$")
"""A worker had sent nothing for some seconds when the DataLoader saw that it is gone."""
_PINNING_ENDED = "RuntimeError: Pin memory thread exited unexpectedly"
_WORKER = re.compile(r"RuntimeError: DataLoader worker \(pid")
_ENDED_ITSELF = re.compile(r"exited unexpectedly with exit code|killed by signal: (?!Killed)")


def reads_worker(one: Raised) -> bool:
    """Whether a DataLoader raised it while it was reading from a worker, and no code of the user's did."""
    reads = [at for at, each in enumerate(one.frames) if each.function in _READERS and _READS.search(each.file)]
    below = one.frames[reads[-1] + 1 :] if reads else ()
    if not (_GONE.match(one.text) or _WAITED.match(one.text)):
        return False
    # a pickle of the user's classes may raise anything there
    return bool(below) and all(_CHANNEL.search(each.file) for each in below)


def is_of_worker(text: str) -> bool:
    """Whether torch's ``text`` tells that a worker has ended."""
    return _WORKER.match(text) is not None


def tells_of_worker(raised: list[Raised], one: Raised) -> str:
    """The text that tells best how the worker ended which ``one`` is about; empty: ``one`` is about none.

    ``raised`` is all of the tail: torch's handler of ended children may raise a second exception, or be late.
    """
    if not (reads_worker(one) or one.text.startswith(_PINNING_ENDED) or _WORKER.match(one.text)):
        return ""
    told = [other.text for other in raised if other.label == one.label and _WORKER.match(other.text)]
    return max(told, key=len) if told else one.text


def lost_worker(raised: list[Raised], one: Raised) -> bool:
    """Whether ``one`` says that a worker went away while it was read from, and nothing that it ended by itself."""
    told = tells_of_worker(raised, one)
    of_it = [other for other in raised if other.label == one.label and reads_worker(other)]
    if not (reads_worker(one) or one.text.startswith(_PINNING_ENDED)):
        of_it = [other for other in of_it if one.chained and other.led_on and other.end < one.start]
    cut = any(not _WAITED.match(other.text) for other in of_it)
    return bool(told) and cut and _ENDED_ITSELF.search(told) is None
