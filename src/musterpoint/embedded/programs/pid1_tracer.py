"""Traces a PID 1 that drops SIGTERM, and reports each SIGTERM sent to it. Runs as a process beside the job.

``python -I -S THIS PID``. It seizes every thread of the process with ptrace, passes each signal on as it came, and
writes lines: ``watching`` when it has begun, ``TERM`` for a SIGTERM, ``refused ERRNO`` where it can't trace (it ends
then). It ends when its stdin does. However it ends, the kernel detaches the process and delivers pending signals
(ptrace(2): ``PTRACE_O_EXITKILL`` isn't set).

``PTRACE_SEIZE`` stops nothing, and of the stops it reports only those are answered otherwise than by going on which
are the group's own (SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU): ``PTRACE_LISTEN`` leaves those to SIGCONT, as without us.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys

CONT, SEIZE, LISTEN = 7, 0x4206, 0x4208
OPTION_TRACECLONE = 0x08
EVENT_STOP = 128
WALL = 0x40000000

NO_SUCH_PROCESS = 3
STOPPING = frozenset(getattr(signal, name, 0) for name in ("SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU"))


class Tracer:
    """Traces all threads of the process ``pid``, later ones included."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._call = ctypes.CDLL(None, use_errno=True).ptrace
        self._call.argtypes = (ctypes.c_long,) * 4
        self._call.restype = ctypes.c_long

    def seize(self) -> int:
        """Begins; returns an error number, 0 for none."""
        done: set[str] = set()
        while True:
            fresh = set(os.listdir(f"/proc/{self._pid}/task")) - done
            if not fresh:
                return 0
            for thread in fresh:
                # any thread may take a signal to the process, and the signal would end it if that thread weren't traced
                error = self._ptrace(SEIZE, int(thread), OPTION_TRACECLONE)
                if error not in (0, NO_SUCH_PROCESS) and not self._is_ours(thread):
                    return error
            done |= fresh

    def _is_ours(self, thread: str) -> bool:
        """Whether we trace the thread already: one that is newer than the list is seized with its creator."""
        try:
            with open(f"/proc/{self._pid}/task/{thread}/status", "rb") as file:
                return f"TracerPid:\t{os.getpid()}\n".encode() in file.read()
        except OSError:
            return True  # it has ended

    def pass_on(self) -> bool:
        """Passes on the signals that have come; False when the process has ended."""
        while True:
            try:
                thread, status = os.waitpid(-1, os.WNOHANG | WALL)
            except ChildProcessError:
                return False
            if thread == 0:
                return True
            if os.WIFSTOPPED(status):
                self._stopped(thread, os.WSTOPSIG(status), status >> 16)

    def _stopped(self, thread: int, signo: int, event: int) -> None:
        if event == EVENT_STOP and signo in STOPPING:
            self._ptrace(LISTEN, thread, 0)
            return
        self._ptrace(CONT, thread, 0 if event else signo)
        # a process that the traced one cloned is traced too; it isn't among its threads
        if not event and signo == signal.SIGTERM and os.path.exists(f"/proc/{self._pid}/task/{thread}"):
            say("TERM")

    def _ptrace(self, request: int, thread: int, data: int) -> int:
        if self._call(request, thread, 0, data) != -1:
            return 0
        return ctypes.get_errno()


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main() -> None:
    for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signo, signal.SIG_IGN)
    wake, woken = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda signo, frame: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    tracer = Tracer(int(sys.argv[1]))
    error = tracer.seize()
    if error:
        say(f"refused {error}")
        return
    say("watching")
    poll = select.poll()
    for fd in (0, wake):
        poll.register(fd, select.POLLIN)
    while tracer.pass_on():
        ready = {fd for fd, _ in poll.poll()}
        if 0 in ready:
            return
        os.read(wake, 4096)


if __name__ == "__main__":
    main()
