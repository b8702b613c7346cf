"""What a test must leave as it was in the process that runs the next one."""

from __future__ import annotations

import ctypes
import inspect
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_OF_PYTEST = {signal.SIGALRM}
"""The limit of a test's time."""
_SIGNALS = sorted(signal.valid_signals() - _OF_PYTEST)
_handler: Callable[[int], object] = inspect.unwrap(signal.getsignal)
"""Without the look for an enum's name, which takes most of its time."""
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


class State(NamedTuple):
    """Of this process. ``adopts``: whether orphans below it become its children. ``children``: the names, by pid, of
    those that nobody has waited for.
    """

    handlers: dict[int, object]
    blocked: frozenset[int]
    directory: str
    umask: int
    adopts: bool
    children: dict[int, str]


def state() -> State:
    umask = os.umask(0)
    os.umask(umask)
    return State(
        {number: _handler(number) for number in _SIGNALS},
        frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        os.getcwd(),
        umask,
        _adopts(),
        children(),
    )


def left_behind(before: State) -> list[str]:
    """What differs from ``before``, in words. All but the children is as before again then."""
    now, found = state(), []
    for number, handler in before.handlers.items():
        if now.handlers[number] is not handler:
            found.append(f"{signal.Signals(number).name} is handled by {now.handlers[number]}, not by {handler}")
            signal.signal(number, handler)  # type: ignore[arg-type]
    if now.blocked != before.blocked:
        found.append(f"the signals {sorted(now.blocked)} are blocked, not {sorted(before.blocked)}")
        signal.pthread_sigmask(signal.SIG_SETMASK, before.blocked)
    if now.directory != before.directory:
        found.append(f"the working directory is {now.directory}")
        os.chdir(before.directory)
    if now.umask != before.umask:
        found.append(f"the umask is {now.umask:o}, not {before.umask:o}")
        os.umask(before.umask)
    if now.adopts != before.adopts:
        found.append("this process adopts orphans" if now.adopts else "this process doesn't adopt orphans any more")
        adopt_orphans(before.adopts)
    new = now.children.keys() - before.children.keys()
    return [*found, *(f"a child that nobody waited for: {pid} ({now.children[pid]})" for pid in sorted(new))]


def adopt_orphans(yes: bool) -> None:
    """Makes this process the parent of orphans below it, or ends that."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)


def _adopts() -> bool:
    answer = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)


def children() -> dict[int, str]:
    found: dict[int, str] = {}
    for task in os.listdir("/proc/self/task"):
        try:
            pids = Path("/proc/self/task", task, "children").read_text().split()
        except OSError:
            continue  # the thread has ended
        for pid in pids:
            try:
                found[int(pid)] = Path("/proc", pid, "comm").read_text().strip()
            except OSError:
                continue  # another thread has waited for it
    return found
