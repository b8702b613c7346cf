"""The processes below us: adopting orphans, finding, signalling and killing them. Reads Linux' /proc."""

from __future__ import annotations

import contextlib
import os
import signal
import stat as stat_module
import sys
from typing import Collection, Container, Iterable, Iterator, Mapping

from musterpoint.base import executables
from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import open_regular, printable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_PF_FORKNOEXEC = 0x40
"""The kernel's flag of a process that was forked and has called no exec (include/linux/sched.h)."""

SHELLS = executables.SHELLS | {"busybox"}


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


class StopTargets(NamedTuple):
    """Who gets a signal for a rank. ``programs``: its programs, or itself. ``trapping``: the shells in front of them
    that catch the signal. ``seen``: all shells and programs that there were.
    """

    programs: list[int]
    trapping: list[int] = []
    seen: frozenset[int] = frozenset()


def stop_targets(pid: int, signo: int = signal.SIGTERM, proc: str = "/proc") -> StopTargets:
    """The processes that get ``signo`` for the rank ``pid``: itself, or if it is a shell, the nearest below it that are
    no shells.

    A shell passes no signal on and dies of SIGTERM before its child has saved anything; one that catches the signal
    (a ``trap``) may pass it on. A process that reads another's output (``train.py | tee``) ends with that one:
    signalled at once, it would take away the program's stdout in the middle of a checkpoint.
    """
    stat = read_stat(pid, proc)
    if stat is None or stat.comm not in SHELLS:
        return StopTargets([pid])
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
    seen = frozenset((*programs, *shells))
    if not targets:
        return StopTargets([pid], seen=seen)
    return StopTargets(targets, [shell for shell in sorted(shells) if catches(shell, signo, proc)], seen)


def among_those_below(pid: int, others: Collection[int], seen: Container[int], proc: str = "/proc") -> set[int]:
    """Those of ``others`` that are below ``pid``, with none but processes in ``seen`` between."""
    return {other for other in others if pid in _above(other, seen, proc)}


def _above(pid: int, seen: Container[int], proc: str) -> list[int]:
    found = []
    stat = read_stat(pid, proc)
    while stat is not None and stat.parent in seen:
        found.append(stat.parent)
        stat = read_stat(stat.parent, proc)
    return found


def may_be_held(shell: int, programs: Iterable[int], proc: str = "/proc") -> bool:
    """Whether a shell may be stopped (SIGSTOP) while ``programs`` below it end.

    Not if :func:`reads`, nor if the shell above it has job control (``set -m``): that one would go on.
    """
    stat = read_stat(shell, proc)
    above = stat and read_stat(stat.parent, proc)
    if stat is None or (above is not None and above.comm in SHELLS and _group(shell) != _group(above.pid)):
        return False
    return not reads(shell, programs, proc)


def reads(shell: int, programs: Iterable[int], proc: str = "/proc") -> bool:
    """Whether a shell reads the output of ``programs``."""
    written = {pipe for program in programs for pipe in _pipes(program, (1, 2), proc)}
    return bool(written & _read_pipes(shell, proc))


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:  # it has ended
        return 0


def _read_pipes(pid: int, proc: str) -> set[str]:
    """The pipes of which a process has the end for reading."""
    found = set()
    for fd in _listed(f"{proc}/{pid}/fd"):
        link = f"{proc}/{pid}/fd/{fd}"
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.lstat(link).st_mode & stat_module.S_IRUSR:  # the link's own mode is that of the descriptor
                found.add(os.readlink(link))
    return {name for name in found if name.startswith("pipe:")}


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # the process has ended, or is another user's
        return []


def holders(pipes: Collection[str], proc: str = "/proc") -> list[Stat]:
    """The processes below us that have one of ``pipes`` open, by the names ``/proc/<pid>/fd`` gives them.

    One whose descriptors we may not see (of another user) counts as a holder.
    """
    return [stat for stat in descendants(os.getpid(), proc) if _holds(stat.pid, pipes, proc)]


def _holds(pid: int, pipes: Collection[str], proc: str) -> bool:
    folder = f"{proc}/{pid}/fd"
    try:
        for fd in os.listdir(folder):
            try:
                if os.readlink(f"{folder}/{fd}") in pipes:
                    return True
            except FileNotFoundError:  # closed meanwhile
                continue
    except PermissionError:
        return True
    except OSError:  # it has ended
        pass
    return False


def processor_time(pid: int, proc: str = "/proc") -> float:
    """Seconds in which a process has used the processor, or has waited for one; 0.0 when it is gone.

    ``schedstat`` is of the first thread, in nanoseconds; ``stat`` has all threads, in hundredths of a second.
    """
    used = waited = ticks = 0.0
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            ticks = sum(map(int, file.read().rpartition(b")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
        with open(f"{proc}/{pid}/schedstat", "rb") as file:
            used, waited = (int(word) / 1e9 for word in file.read().split()[:2])
    except (OSError, ValueError):  # it has ended, or the kernel has no such file
        pass
    return max(ticks, used + waited)


def _pipes(pid: int, descriptors: tuple[int, ...], proc: str) -> set[str]:
    """The pipes that a process has as these descriptors, by the names ``/proc/<pid>/fd`` gives them."""
    found = set()
    for fd in descriptors:
        try:
            found.add(os.readlink(f"{proc}/{pid}/fd/{fd}"))
        except OSError:
            continue
    return {name for name in found if name.startswith("pipe:")}


def command_of(pid: int, proc: str = "/proc") -> str:
    """The beginning of a process's command line, for people; empty when it is gone."""
    words = words_of(pid, proc, _SHOWN)
    return printable(" ".join((os.path.basename(words[0]), *words[1:])), 80) if words else ""


def words_of(pid: int, proc: str = "/proc", most: int = 64 << 10) -> list[str]:
    """The words of a process's command line, of at most so many bytes; none when it is gone."""
    try:
        with open(f"{proc}/{pid}/cmdline", "rb") as file:
            return file.read(most).rstrip(b"\0").decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def variables_of(pid: int, names: Collection[str], proc: str = "/proc") -> dict[str, str]:
    """Those variables of ``names`` that a process was started with; none when it is gone or another user's."""
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            pairs = [each.partition("=")[::2] for each in file.read().decode("utf-8", "replace").split("\0")]
    except OSError:
        return {}
    return {name: value for name, value in pairs if name in names}


def is_python(pid: int, proc: str = "/proc") -> bool:
    """Whether a process runs a Python."""
    return _file_of(pid, proc).startswith("python")


def passes(stat: Stat, proc: str = "/proc") -> bool:
    """Whether a process is one of :data:`PASSING`; a script that was executed has its own name."""
    return stat.comm in PASSING or _file_of(stat.pid, proc) in SHELLS


def _file_of(pid: int, proc: str) -> str:
    """The name of the file that a process runs; empty when it is gone or another user's."""
    try:
        return os.path.basename(os.readlink(f"{proc}/{pid}/exe"))
    except OSError:
        return ""


def children(pid: int, proc: str = "/proc") -> list[int]:
    """The pids of a process's children; none when it is gone, or the kernel doesn't tell (CONFIG_PROC_CHILDREN)."""
    found: list[int] = []
    for thread in _listed(f"{proc}/{pid}/task"):
        with contextlib.suppress(OSError), open(f"{proc}/{pid}/task/{thread}/children", "rb") as file:
            found += map(int, file.read().split())
    return found


def behind(shell: int, proc: str = "/proc") -> Iterator[int]:
    """The programs that a shell runs, with shells and the like alone between."""
    for child in children(shell, proc):
        stat = read_stat(child, proc)
        if stat is not None and passes(stat, proc):
            yield from behind(child, proc)
        elif stat is not None and stat.state not in "ZX":
            yield child


_EXIT_INFO, _INFO_BYTES = 1 << 3, 64
_PIDFD_GET_INFO = 3 << 30 | _INFO_BYTES << 16 | 0xFF << 8 | 11


def exit_status(descriptor: int) -> int | None:
    """How the process of a pidfd ended, whoever its parent is; None: it runs, or the kernel is older than Linux 6.15.

    include/uapi/linux/pidfd.h: ``struct pidfd_info`` begins with a mask; its first version ends with the code.
    """
    import fcntl

    info = bytearray(_EXIT_INFO.to_bytes(8, sys.byteorder) + bytes(_INFO_BYTES - 8))
    try:
        fcntl.ioctl(descriptor, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    told = int.from_bytes(info[:8], sys.byteorder) & _EXIT_INFO
    return os.waitstatus_to_exitcode(int.from_bytes(info[-4:], sys.byteorder)) if told else None


_SHOWN = 400
"""Bytes of a command line that are read to be shown."""


PASSING = SHELLS | {"uv", "timeout", "tini", "dumb-init", "time", "setsid"}
"""Programs that run one other program, and end as it does, or shells."""


def behind_shells(pid: int, ranks: Container[int], proc: str = "/proc") -> int:
    """Which of ``ranks`` runs the process ``pid``, with shells and the like alone between; 0: none."""
    stat = read_stat(pid, proc)
    while stat is not None and stat.parent > 1:
        stat = read_stat(stat.parent, proc)
        if stat is None or not passes(stat, proc):
            return 0
        if stat.pid in ranks:
            return stat.pid
    return 0


_LONGEST_SCRIPT = 64 << 10


def script_of(pid: int, proc: str = "/proc") -> str:
    """The text that the shell ``pid`` runs, of its file or its ``-c``, at most 64 KiB; empty where it can't be read."""
    try:
        words = words_of(pid, proc)[1:]
        place = next((word for word in words if word and not word.startswith("-")), "")  # behind its own options
        if not place or " " in place:
            return place  # of -c
        with open(os.path.join(os.readlink(f"{proc}/{pid}/cwd"), place), "rb", opener=open_regular) as file:
            return file.read(_LONGEST_SCRIPT).decode("utf-8", "replace")
    except OSError:
        return ""


def reads_a_pipe(pid: int, proc: str = "/proc") -> bool:
    """Whether a process has a pipe as its stdin, and it isn't ours: it reads what another one writes."""
    return bool(_pipes(pid, (0,), proc) - _pipes(os.getpid(), (0,), proc))


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


def ended_children() -> Iterator[tuple[int, int]]:
    """Reaps every child that has ended, orphans too: the pid and the wait status of each."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def pass_on(pid: int, signo: int) -> None:
    """Sends ``signo``, which ends nothing, to the program that ``pid`` runs, and to shells before it that catch it."""
    targets = stop_targets(pid, signo)
    for target in (*targets.programs, *targets.trapping):
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
