"""The processes below us: adopting orphans, finding, signalling and killing them. Linux keeps the facts in /proc."""

from __future__ import annotations

import os
import signal
from typing import Any, Iterator

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox"})


def _prctl(option: int, value: int) -> bool:
    try:
        # ctypes itself costs 3 ms at import; this is the part of it that calls a function
        import _ctypes

        c: Any = _ctypes
        prctl = c.dlsym(c.dlopen(None, 0), "prctl")
        return bool(c.call_function(prctl, (option, value, 0, 0, 0)) == 0)
    except (ImportError, AttributeError, OSError):
        return False  # not Linux: nothing like it there


def adopt_orphans() -> bool:
    """Makes this process the parent of every orphan below it (PR_SET_CHILD_SUBREAPER); True if that worked."""
    return _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signo: int = int(getattr(signal, "SIGKILL", 9))) -> None:
    """In a child: get ``signo`` when the *thread* that forked it ends, so fork in the main thread."""
    _prctl(PR_SET_PDEATHSIG, signo)


class Stat:
    """A process as ``/proc/<pid>/stat`` tells: its state letter and parent."""

    __slots__ = ("comm", "parent", "pid", "state")

    def __init__(self, pid: int, comm: str, state: str, parent: int) -> None:
        self.pid, self.comm, self.state, self.parent = pid, comm, state, parent


def read_stat(pid: int, proc: str = "/proc") -> Stat | None:
    """None when the process is gone. A command name may hold blanks and brackets, so the last bracket counts."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    head, _, rest = text.rpartition(b")")
    fields = rest.split()
    if len(fields) < 2:
        return None
    return Stat(pid, head.partition(b"(")[2].decode("utf-8", "replace"), fields[0].decode(), int(fields[1]))


def _all_stats(proc: str = "/proc") -> Iterator[Stat]:
    try:
        names = os.listdir(proc)
    except OSError:
        return
    for name in names:
        if name.isdigit():
            stat = read_stat(int(name), proc)
            if stat is not None:
                yield stat


def descendants(root: int, proc: str = "/proc") -> list[Stat]:
    """Every process below ``root``, parents before children, zombies left out."""
    children: dict[int, list[Stat]] = {}
    for stat in _all_stats(proc):
        children.setdefault(stat.parent, []).append(stat)
    found: list[Stat] = []
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), []):
            if child.state not in "ZX":
                found.append(child)
            todo.append(child.pid)
    return found


def stop_targets(pid: int, proc: str = "/proc") -> list[int]:
    """Whom to tell when the rank ``pid`` is to stop: itself, or behind a shell the nearest that are no shells.

    A shell passes no signal on and dies of SIGTERM before its child has saved anything; one that catches the signal
    (a ``trap``) is told too, and handles it when its child has ended.
    """
    stat = read_stat(pid, proc)
    if stat is None or stat.comm not in SHELLS:
        return [pid]
    below = descendants(pid, proc)
    targets: list[int] = []
    shells = {pid}
    for child in below:  # parents come first, so a child of a shell is known when it comes
        if child.parent not in shells:
            continue
        if child.comm in SHELLS:
            shells.add(child.pid)
        else:
            targets.append(child.pid)
    if not targets:
        return [pid]
    return targets + [shell for shell in sorted(shells) if catches(shell, signal.SIGTERM, proc)]


def catches(pid: int, signo: int, proc: str = "/proc") -> bool:
    """Whether a process has a handler for ``signo`` (``SigCgt`` in ``/proc/<pid>/status``)."""
    try:
        with open(f"{proc}/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (signo - 1) & 1)
    except (OSError, ValueError, IndexError):
        pass
    return False


def send(pid: int, signo: int) -> bool:
    """Sends ``signo``; False when the process is gone or isn't ours."""
    try:
        os.kill(pid, signo)
    except OSError:
        return False
    return True


def kill_below(root: int) -> int:
    """SIGKILL to everything below ``root``, again until a look finds nothing new; how many were hit.

    A process that forks while it is being killed is caught by the next look.
    """
    hit: set[int] = set()
    while True:
        fresh = [stat.pid for stat in descendants(root) if stat.pid not in hit]
        if not fresh:
            return len(hit)
        for pid in fresh:
            send(pid, signal.SIGKILL)
        hit.update(fresh)
