"""Starts a process by fork and exec, gives it the terminal, and counts the kernel's OOM kills."""

import os
import signal
from functools import partial
from typing import Callable, Literal, Mapping, NoReturn, Sequence, cast

from musterpoint.base.posix import fcntl, termios
from musterpoint.base.records import NamedTuple
from musterpoint.core.processes import process_tree


class Streams(NamedTuple):
    """Descriptors the child gets as 0, 1 and 2."""

    stdin: int
    stdout: int
    stderr: int


Step = Literal["fork", "chdir", "exec"]


class CannotStart(Exception):
    """A process couldn't be started: ``step`` failed, and ``error`` says why."""

    def __init__(self, error: OSError, step: Step) -> None:
        super().__init__(str(error))
        self.error = error
        self.step: Step = step


def spawn(
    argv: list[str],
    environment: Mapping[str, str],
    cwd: str,
    streams: Streams,
    *,
    foreground: bool = False,
    own_terminal: bool = False,
    cpus: Sequence[int] = (),
    outlives: bool = False,
) -> int:
    """Starts ``argv`` in its own process group and returns its pid. It is killed when we end, unless we are PID 1 or it
    ``outlives`` us.

    ``foreground`` gives the group the terminal on stdin before the program runs, or the kernel would stop it when it
    reads (SIGTTIN). ``own_terminal``: stdin is a terminal that becomes its own, in a session of its own. ``cpus``: the
    processors it runs on; empty: ours. Must be called in the main thread: the parent-death signal follows the thread
    that forked.

    Raises:
        CannotStart: there is no room for a process, it couldn't be executed, or ``cwd`` couldn't be entered.
    """
    report_read, report_write = os.pipe()  # closed by a successful exec
    parent = 0 if outlives or os.getpid() == 1 else os.getpid()
    try:
        try:
            pid = os.fork()
        except OSError as error:
            raise CannotStart(error, "fork") from None
        if pid == 0:
            prepare = partial(_prepare, streams, parent, foreground, own_terminal, cpus)
            _execute(argv, environment, cwd, report_write, prepare)
        os.close(report_write)
        report_write = -1
        report = _read_all(report_read)
    finally:
        os.close(report_read)
        if report_write >= 0:
            os.close(report_write)
    if report:
        os.waitpid(pid, 0)
        step, number = report.decode().split(":")
        failed = OSError(int(number), os.strerror(int(number)), cwd if step == "chdir" else argv[0])
        raise CannotStart(failed, cast(Step, step))
    return pid


def _execute(
    argv: list[str], environment: Mapping[str, str], cwd: str, report: int, prepare: Callable[[], None]
) -> NoReturn:
    """In the child: becomes the program, or writes to ``report`` which step failed."""
    step: Step = "exec"
    try:
        prepare()
        step = "chdir"
        os.chdir(cwd or "/")
        step = "exec"
        os.execvpe(argv[0], argv, dict(environment))
    except OSError as error:
        os.write(report, f"{step}:{error.errno or 0}".encode())
    except BaseException:
        os.write(report, f"{step}:0".encode())
    finally:
        os._exit(127)


def _prepare(streams: Streams, parent: int, foreground: bool, own_terminal: bool, cpus: Sequence[int]) -> None:
    """In the child: its own group, its processors and descriptors, and signals as a program expects them."""
    if own_terminal:
        os.setsid()
    else:
        os.setpgid(0, 0)
    if cpus:
        _run_on(cpus)
    if parent:
        process_tree.die_with_parent(parent)
    for target, source in enumerate(streams):
        os.dup2(source, target) if source != target else os.set_inheritable(target, True)
    if foreground:
        take_foreground()
    if own_terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Python ignores these two, and the program must not inherit that, nor our signal mask
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _run_on(cpus: Sequence[int]) -> None:
    try:
        os.sched_setaffinity(0, cpus)
    except (AttributeError, OSError, ValueError):  # not Linux, or they were taken from us meanwhile
        pass


def _read_all(fd: int) -> bytes:
    data = b""
    while True:
        piece = os.read(fd, 64)
        if not piece:
            return data
        data += piece


def take_foreground(group: int = 0) -> None:
    """Makes a process group (0: our own) the foreground of the terminal on stdin.

    A background group that does so is stopped by SIGTTOU unless it ignores it.
    """
    old = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(0, group or os.getpgrp())
    except OSError:
        pass
    signal.signal(signal.SIGTTOU, old)


class Terminal:
    """The terminal on our stdin, which one rank may use while it runs."""

    def __init__(self) -> None:
        self._group = -1

    def lend(self) -> bool:
        """Whether a rank may take the foreground: stdin is a terminal, and we are in its foreground."""
        try:
            if os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp():
                self._group = os.getpgrp()
        except OSError:
            self._group = -1
        return self._group >= 0

    def take_back(self) -> None:
        """Makes our group the foreground again, if it was."""
        if self._group >= 0:
            take_foreground(self._group)
            self._group = -1


def oom_kills(root: str = "/") -> int:
    """How many processes the OOM killer has killed in our own control group; 0 where the kernel doesn't tell.

    Compare two readings. Sources: ``memory.events`` (cgroup v2), ``memory.oom_control`` (v1, Linux 4.13 and later). In
    a container the group's own directory is usually mounted as the root, so the plain path is tried too.
    """
    for path in _oom_counters(root):
        try:
            with open(path, encoding="utf-8") as file:
                counts = dict(line.split()[:2] for line in file if len(line.split()) >= 2)
            return int(counts["oom_kill"])
        except (OSError, KeyError, ValueError):
            continue
    return 0


def _oom_counters(root: str) -> list[str]:
    mount = os.path.join(root, "sys/fs/cgroup")
    paths: list[str] = []
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        groups = []
    for _, controllers, group in (parts for parts in groups if len(parts) == 3):
        if not controllers:
            paths += [mount + group.rstrip("/") + "/memory.events", mount + "/unified" + group + "/memory.events"]
        elif "memory" in controllers.split(","):
            paths.append(mount + "/memory" + group.rstrip("/") + "/memory.oom_control")
    return [*paths, mount + "/memory.events", mount + "/memory/memory.oom_control"]
