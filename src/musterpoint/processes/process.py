"""Starting a process: fork, a clean child, exec, and the exec's error back in the parent."""

import os
import signal
from typing import Mapping, NamedTuple, NoReturn

from musterpoint.processes import tree


class Streams(NamedTuple):
    """Descriptors the child gets as 0, 1 and 2."""

    stdin: int
    stdout: int
    stderr: int


class CannotStart(Exception):
    """``exec`` (or ``fork``, or ``chdir``) failed; ``errno`` says why."""

    def __init__(self, error: OSError, step: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.step = step


def spawn(
    argv: list[str], environment: Mapping[str, str], cwd: str, streams: Streams, *,
    with_parent: bool = True, foreground: bool = False,
) -> int:  # fmt: skip
    """Starts ``argv`` in its own process group and returns its pid.

    ``foreground`` gives the group the terminal on stdin before the program runs, or the kernel would stop it when it
    reads (SIGTTIN). Must be called in the main thread: the parent-death signal follows the thread that forked.

    Raises:
        CannotStart: there is no room for a process, it couldn't be executed, or ``cwd`` couldn't be entered.
    """
    report_read, report_write = os.pipe()  # closed by a successful exec
    parent = os.getpid() if with_parent else 0
    try:
        try:
            pid = os.fork()
        except OSError as refusal:
            raise CannotStart(refusal, "fork") from None
        if pid == 0:
            _become(argv, environment, cwd, streams, report_write, parent, foreground)
        os.close(report_write)
        report_write = -1
        said = _read_all(report_read)
    finally:
        os.close(report_read)
        if report_write >= 0:
            os.close(report_write)
    if said:
        os.waitpid(pid, 0)
        step, number = said.decode().split(":")
        error = OSError(int(number), os.strerror(int(number)), cwd if step == "chdir" else argv[0])
        raise CannotStart(error, step)
    return pid


def _become(
    argv: list[str], environment: Mapping[str, str], cwd: str, streams: Streams, report: int,
    parent: int, foreground: bool,
) -> NoReturn:  # fmt: skip
    step = "exec"
    try:
        os.setpgid(0, 0)
        if parent:
            tree.die_with_parent(parent)
        for target, source in enumerate(streams):
            os.dup2(source, target) if source != target else os.set_inheritable(target, True)
        if foreground:
            take()
        # Python ignores these two; and a program must not inherit our handlers' absence or mask
        for name in ("SIGPIPE", "SIGXFSZ"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
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


def _read_all(fd: int) -> bytes:
    data = b""
    while True:
        piece = os.read(fd, 64)
        if not piece:
            return data
        data += piece


def take(group: int = 0) -> None:
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
    """Remembers whose foreground it was."""

    def __init__(self) -> None:
        self._ours = -1

    def offer(self) -> bool:
        """Whether a rank is to take the foreground: stdin is a terminal, and ours."""
        try:
            if os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp():
                self._ours = os.getpgrp()
        except OSError:
            self._ours = -1
        return self._ours >= 0

    def take_back(self) -> None:
        if self._ours >= 0:
            take(self._ours)
            self._ours = -1
