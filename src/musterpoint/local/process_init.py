"""The init process of one host in the ``process`` backend, like PID 1 in a container.

Run as :func:`command` says. It starts ARGV in a session of its own and adopts every orphan of it. When ARGV ends, it
kills the rest and ends with ARGV's code. CONTROL is a descriptor: each byte on it is a signal number for ARGV; 9 kills
the whole host, and so does the end of the pipe (``muster local`` died).
"""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import Sequence

from musterpoint.core.processes.process_tree import adopt_orphans, ended_children, kill_below, send

OUTLIVED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGTSTP")
"""Signals that may end ``muster local``. The processes that clean up after it ignore or block them."""

_RUN = "import sys; sys.path.append(sys.argv.pop(1)); from musterpoint.local import process_init; process_init.main()"


def command(control: int, argv: Sequence[str]) -> list[str]:
    """The command that starts an init with the descriptor ``control`` for ``argv``.

    The user's environment doesn't affect it (-I), and modules of the standard library come before all others.
    """
    source = os.path.abspath(__file__)
    for _ in __name__.split("."):
        source = os.path.dirname(source)
    return [sys.executable, "-I", "-S", "-c", _RUN, source, str(control), *argv]


def _blocked() -> list[int]:
    return [getattr(signal, name) for name in OUTLIVED]


def _below_without_proc() -> list[int]:
    """Every process below this one, where there is no /proc (macOS)."""
    with os.popen("ps -A -o pid=,ppid=") as listing:
        processes = [[int(number) for number in line.split()] for line in listing]
    found = [os.getpid()]
    for above in found:
        found.extend(pid for pid, parent in processes if parent == above)
    return found[1:]


def _kill_all() -> None:
    """Kills and reaps until nothing is left below this process: as it adopts orphans, it has a child until then."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        if os.path.isdir("/proc/self"):
            kill_below(os.getpid())
        else:
            for pid in _below_without_proc():
                send(pid, signal.SIGKILL)
        os.waitpid(-1, 0)


def _start(argv: list[str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for signo in _blocked():
            signal.signal(signo, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _reap(entry: int) -> int | None:
    """Reaps every dead child; the wait status of ``entry`` once it is among them."""
    return dict(ended_children()).get(entry)


def _watch(control: int, entry: int, wake: int) -> int:
    """Passes signals on until the entry point ends or is to be killed; its wait status."""
    while True:
        ready, _, _ = select.select([control, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            status = _reap(entry)
            if status is not None:
                return status
        if control in ready:
            orders = os.read(control, 64)
            if not orders or signal.SIGKILL in orders:
                return signal.SIGKILL
            for signo in orders:
                os.kill(entry, signo)


def main() -> None:
    """Runs the init with ``sys.argv``: CONTROL ARGV…"""
    control = int(sys.argv[1])
    os.set_inheritable(control, False)
    adopt_orphans()
    # blocked, not ignored: an ignored signal between fork and exec would be lost, a blocked one still arrives
    signal.pthread_sigmask(signal.SIG_BLOCK, _blocked())
    wake, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda signo, frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    status = _watch(control, _start(sys.argv[2:]), wake)
    _kill_all()
    code = os.waitstatus_to_exitcode(status)
    os._exit(128 - code if code < 0 else code)
