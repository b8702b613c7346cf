"""The processes below us: adopting orphans, finding, signalling and killing them. Reads Linux' /proc."""

from __future__ import annotations

import os
import signal
import sys
from typing import Collection, Container, Iterable, Iterator, Mapping

from musterpoint.base import executables
from musterpoint.base.untrusted import open_regular, printable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_PF_FORKNOEXEC = 0x40
"""The kernel's flag of a process that was forked and has called no exec (include/linux/sched.h)."""


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
    """A process as ``/proc/<pid>/stat`` has it: its name, state letter and parent.

    copy: it is a copy of its parent that has called no exec. started: clock ticks since the machine's start. status:
    how it has ended, if it is a zombie whose status we may see; as ``os.waitpid`` gives it.
    """

    __slots__ = ("comm", "copy", "parent", "pid", "started", "state", "status")

    def __init__(
        self, pid: int, comm: str, state: str, parent: int, copy: bool = False, started: int = 0, status: int = 0
    ) -> None:
        self.pid, self.comm, self.state, self.parent, self.copy = pid, comm, state, parent, copy
        self.started, self.status = started, status


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
    started, status = (int(fields[19]), int(fields[49])) if len(fields) > 49 else (0, 0)  # proc_pid_stat(5): 22, 52
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    return Stat(pid, name, fields[0].decode(), int(fields[1]), copy, started, status)


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
    return children_of(os.getpid(), proc)


def listed(folder: str) -> list[str]:
    """The names in a folder of a process; none when it has ended, or is another user's."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def link_of(path: str) -> str:
    """Reads a link of a process; empty when it has ended, or is another user's."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def socket_inodes(pid: int, proc: str = "/proc") -> Iterator[str]:
    """The inodes of a process's sockets."""
    for name in listed(f"{proc}/{pid}/fd"):
        target = link_of(f"{proc}/{pid}/fd/{name}")
        if target.startswith("socket:["):
            yield target[8:-1]


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
    """Says if a process is a shell, or one of :data:`PASSING`."""
    return stat.comm in PASSING or is_shell(stat, proc)


def is_shell(stat: Stat, proc: str = "/proc") -> bool:
    """Says if a process is a shell; a script that was executed by its path has its own name."""
    if stat.comm in executables.SHELLS:
        return True
    file = _file_of(stat.pid, proc)
    if file != "busybox":
        return file in executables.SHELLS
    words = [os.path.basename(word) for word in words_of(stat.pid, proc, _SHOWN)[:2]]  # which is many programs
    return bool({*words[: 1 + (words[:1] == ["busybox"])]} & executables.SHELLS)


def _file_of(pid: int, proc: str) -> str:
    """The name of the file that a process runs; empty when it is gone or another user's."""
    return os.path.basename(link_of(f"{proc}/{pid}/exe"))


def children_of(pid: int, proc: str = "/proc") -> list[Stat]:
    """A process's children, zombies too; none when it is gone.

    The kernel is asked for them; all processes are read where it doesn't tell (CONFIG_PROC_CHILDREN).
    """
    found: list[Stat | None] = []
    try:
        for thread in os.listdir(f"{proc}/{pid}/task"):
            with open(f"{proc}/{pid}/task/{thread}/children", "rb") as file:
                found += [read_stat(int(child), proc) for child in file.read().split()]
    except OSError:
        found = [stat for stat in _all_stats(proc) if stat.parent == pid] if read_stat(pid, proc) else []
    return [stat for stat in found if stat is not None]


def behind(shell: int, proc: str = "/proc") -> Iterator[int]:
    """The programs that a shell runs, with shells and the like alone between."""
    for child in children_of(shell, proc):
        if passes(child, proc):
            yield from behind(child.pid, proc)
        elif child.state not in "ZX":
            yield child.pid


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


PASSING = frozenset(
    {"uv", "unshare", "timeout", "tini", "dumb-init", "time", "setsid", "strace", "su", "runuser", "sudo", "script"}
)
"""Programs that run one other program, and end as it does."""


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
    stdin = link_of(f"{proc}/{pid}/fd/0")
    return stdin.startswith("pipe:") and stdin != link_of(f"{proc}/{os.getpid()}/fd/0")


def catches(pid: int, signo: int, proc: str = "/proc") -> bool:
    """Whether a process has a handler for ``signo``."""
    return _in_mask(pid, "SigCgt", signo, proc)


def ignores(pid: int, signo: int, proc: str = "/proc") -> bool:
    """Whether a process ignores ``signo``."""
    return _in_mask(pid, "SigIgn", signo, proc)


def blocks(pid: int, signo: int, proc: str = "/proc") -> bool:
    """Says if a process has blocked ``signo``, perhaps to wait for it."""
    return _in_mask(pid, "SigBlk", signo, proc)


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
