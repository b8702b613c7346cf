"""The processes below us: adopting orphans, finding, signalling and killing them. Reads Linux' /proc."""

from __future__ import annotations

import os
import signal
from typing import Callable, Collection, Iterable, Iterator, Mapping

from musterpoint.base.loop import READ, Loop, Timer

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_PF_FORKNOEXEC = 0x40
"""The kernel's flag of a process that was forked and has called no exec (include/linux/sched.h)."""

SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox"})


def _prctl(option: int, value: int) -> bool:
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, AttributeError, OSError):
        return False  # not Linux


def adopt_orphans() -> bool:
    """Makes this process the parent of every orphan below it (PR_SET_CHILD_SUBREAPER); True if that worked.

    PID 1 is that already: it saves itself the import of ctypes, 1.2 ms before the user's program.
    """
    return os.getpid() == 1 or _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """In a child of ``parent``: get SIGKILL when the *thread* that forked it ends, so fork in the main thread.

    A parent that has ended already counts, too.
    """
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


class Stat:
    """What ``/proc/<pid>/stat`` says of a process: its name, state letter and parent, and whether it is a ``copy`` of
    its parent that has called no exec."""

    __slots__ = ("comm", "copy", "parent", "pid", "state")

    def __init__(self, pid: int, comm: str, state: str, parent: int, copy: bool = False) -> None:
        self.pid, self.comm, self.state, self.parent, self.copy = pid, comm, state, parent, copy


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
    copy = len(fields) > 6 and bool(int(fields[6]) & _PF_FORKNOEXEC)
    return Stat(pid, head.partition(b"(")[2].decode("utf-8", "replace"), fields[0].decode(), int(fields[1]), copy)


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


def descendants(root: int, proc: str = "/proc", spared: Collection[int] = ()) -> list[Stat]:
    """Every process below ``root``, parents before children; without zombies, ``spared`` and those below them."""
    return descendants_of([root], proc, spared)[root]


def descendants_of(roots: Iterable[int], proc: str = "/proc", spared: Collection[int] = ()) -> dict[int, list[Stat]]:
    """As :func:`descendants`, for several at once: the machine's processes are read once for all of them."""
    children: dict[int, list[Stat]] = {}
    for stat in _all_stats(proc):
        children.setdefault(stat.parent, []).append(stat)
    return {root: _below(root, children, spared) for root in roots}


def _below(root: int, children: Mapping[int, list[Stat]], spared: Collection[int]) -> list[Stat]:
    found: list[Stat] = []
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), []):
            if child.pid in spared:
                continue
            if child.state not in "ZX":
                found.append(child)
            todo.append(child.pid)
    return found


def own_children(proc: str = "/proc") -> list[Stat]:
    """This process's children that nobody has waited for. A zombie of several threads may still run.

    The kernel is asked for them. Reading all processes costs more the more the machine has: where it has many hosts,
    each of them would read those of all.
    """
    found = []
    try:
        for thread in os.listdir(f"{proc}/self/task"):
            with open(f"{proc}/self/task/{thread}/children", "rb") as file:
                found += [read_stat(int(pid), proc) for pid in file.read().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN, or a thread that has just ended
        own = os.getpid()
        found = [stat for stat in _all_stats(proc) if stat.parent == own]
    return [stat for stat in found if stat is not None]


def stop_targets(pid: int, signo: int = signal.SIGTERM, proc: str = "/proc") -> list[int]:
    """The processes that get ``signo`` for the rank ``pid``: itself, or if it is a shell, the nearest below it that are
    no shells.

    A shell passes no signal on and dies of SIGTERM before its child has saved anything; one that catches the signal
    (a ``trap``) gets it too, and handles it when its child has ended. A process that reads another's output
    (``train.py | tee``) ends with that one: signalled at once, it would take away the program's stdout in the middle
    of a checkpoint.
    """
    stat = read_stat(pid, proc)
    if stat is None or stat.comm not in SHELLS:
        return [pid]
    programs: list[int] = []
    shells = {pid}
    for child in descendants(pid, proc):  # parents come first, so a child of a shell is known when it comes
        if child.parent not in shells:
            continue
        if child.comm in SHELLS:
            shells.add(child.pid)
        else:
            programs.append(child.pid)
    written = {pipe for each in (*programs, *shells) for pipe in _pipes(each, (1, 2), proc)}
    targets = [each for each in programs if not _pipes(each, (0,), proc) & written or catches(each, signo, proc)]
    if not targets:
        return [pid]
    return targets + [shell for shell in sorted(shells) if catches(shell, signo, proc)]


def _pipes(pid: int, descriptors: tuple[int, ...], proc: str) -> set[str]:
    """The pipes that a process has as these descriptors, by the names ``/proc/<pid>/fd`` gives them."""
    found = set()
    for fd in descriptors:
        try:
            found.add(os.readlink(f"{proc}/{pid}/fd/{fd}"))
        except OSError:
            continue
    return {name for name in found if name.startswith("pipe:")}


def catches(pid: int, signo: int, proc: str = "/proc") -> bool:
    """Whether a process has a handler for ``signo``."""
    return _in_mask(pid, "SigCgt", signo, proc)


def ignores(pid: int, signo: int, proc: str = "/proc") -> bool:
    """Whether a process ignores ``signo``."""
    return _in_mask(pid, "SigIgn", signo, proc)


def _in_mask(pid: int, mask: str, signo: int, proc: str) -> bool:
    try:
        return bool(int(read_status(pid, proc)[mask], 16) >> (signo - 1) & 1)
    except (KeyError, ValueError):
        return False


def read_status(pid: int, proc: str = "/proc") -> dict[str, str]:
    """The fields of ``/proc/<pid>/status``; empty when the process is gone."""
    try:
        with open(f"{proc}/{pid}/status", encoding="utf-8", errors="replace") as file:
            return dict(line.split(":", 1) for line in file.read().splitlines() if ":" in line)
    except OSError:
        return {}


def send_past_shells(pid: int, signo: int) -> None:
    """Sends ``signo`` to the program that ``pid`` runs; see :func:`stop_targets`."""
    for target in stop_targets(pid, signo):
        send(target, signo)


def send(pid: int, signo: int) -> bool:
    """Sends ``signo``; False when the process is gone or isn't ours."""
    try:
        os.kill(pid, signo)
    except OSError:
        return False
    return True


def kill_below(root: int, spared: Collection[int] = ()) -> int:
    """Kills (SIGKILL) everything below ``root`` but ``spared``; returns how many processes that were.

    Repeated until nothing new is found: a process may fork while it is being killed.
    """
    killed: set[int] = set()
    while True:
        fresh = [stat.pid for stat in descendants(root, spared=spared) if stat.pid not in killed]
        if not fresh:
            return len(killed)
        for pid in fresh:
            send(pid, signal.SIGKILL)
        killed.update(fresh)


_FIRST_TURN, _LAST_TURN = 0.01, 1.0
"""Seconds between two looks at copies of shells."""


def _is_copy_that_catches(pid: int, signo: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.copy and catches(pid, signo)


class Orphans:
    """Processes that became our children when their parent ended; signals each once and waits for it.

    A launcher of the user's own that dies of the stop signal (a Python script around ``torch.distributed.run``) leaves
    its ranks in the middle of their checkpoints. ``on_end`` is called when a signalled process has
    ended; call :meth:`signal` again then.

    A copy of a shell that is about to become a program has the shell's handlers until it drops them, and a signal that
    comes then is lost: the program gets it. No event tells of an exec, so such copies are looked at in turns.
    """

    def __init__(self, loop: Loop, on_end: Callable[[], None]) -> None:
        self._loop, self._on_end = loop, on_end
        self._signalled: set[int] = set()
        self._descriptors: dict[int, int] = {}
        self._copies: set[int] = set()
        self._turn: Timer | None = None

    def signal(self, spared: Collection[int], signo: int) -> bool:
        """Sends ``signo`` once to each child that isn't in ``spared``; returns whether one of them still runs.

        A process that ignores it isn't waited for; nor is what an orphaned shell starts next, or a loop in the
        background would hold up the end.
        """
        for orphan in own_children():
            if orphan.state not in "ZX" and orphan.pid not in spared and orphan.pid not in self._signalled:
                self._signalled.add(orphan.pid)
                for pid in stop_targets(orphan.pid, signo):
                    if not ignores(pid, signo):
                        self._watch(pid)
                        if _is_copy_that_catches(pid, signo):
                            self._copies.add(pid)
                        send(pid, signo)
        if self._copies and self._turn is None:
            self._look_again(signo, _FIRST_TURN)
        return any(stat is not None and stat.state not in "ZX" for stat in map(read_stat, self._descriptors))

    def _look_again(self, signo: int, seconds: float) -> None:
        """Signals copies of shells that have become programs, and looks again later while there are others."""
        for pid in tuple(self._copies):
            stat = read_stat(pid)
            if stat is None or not stat.copy:
                self._copies.discard(pid)
                if stat is not None and not ignores(pid, signo):
                    send(pid, signo)
        again = lambda: self._look_again(signo, min(2 * seconds, _LAST_TURN))  # noqa: E731
        self._turn = self._loop.call_later(seconds, again) if self._copies else None

    def _watch(self, pid: int) -> None:
        """Watches a process by its pidfd (Linux 5.3): a shell's child isn't ours, so its end sends no SIGCHLD."""
        try:
            self._descriptors[pid] = os.pidfd_open(pid)
        except (AttributeError, OSError):
            self._descriptors[pid] = -1
            return
        self._loop.watch(self._descriptors[pid], READ, lambda _ready: self._ended(pid))

    def _ended(self, pid: int) -> None:
        self._forget(self._descriptors.pop(pid))
        self._on_end()

    def _forget(self, fd: int) -> None:
        if fd >= 0:
            self._loop.forget(fd)
            os.close(fd)

    def close(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
        for fd in self._descriptors.values():
            self._forget(fd)
        self._descriptors.clear()
