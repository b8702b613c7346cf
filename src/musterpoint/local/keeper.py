"""The keeper of one host in the ``process`` backend: what PID 1 is to a container.

Run as a script: ``python -I -S keeper.py CONTROL ARGV…``. It starts ARGV in a session of its own, adopts every orphan
of it, and ends with its code when ARGV ends, after killing whatever is left. CONTROL is a descriptor: each byte on it
is a signal number for ARGV, 9 kills the whole host, and its end (the control plane died) does so too.
"""

from __future__ import annotations

import os
import select
import signal
import sys

OUTLIVED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGTSTP")
"""What the caller handles, and a keeper outlives."""
_PR_SET_CHILD_SUBREAPER = 36


def _blocked() -> list[int]:
    return [getattr(signal, name) for name in OUTLIVED]


def _adopt_orphans() -> None:
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _parents() -> dict[int, int]:
    """Every process of the machine and its parent."""
    if not os.path.isdir("/proc/self"):
        with os.popen("ps -A -o pid=,ppid=") as listing:
            return {int(pid): int(parent) for pid, parent in (line.split() for line in listing)}
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                pass  # gone meanwhile
    return parents


def descendants(root: int) -> list[int]:
    """Every process below ``root``, parents before children."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def _kill_all() -> None:
    """Kills and reaps until nothing is left below this process."""
    while True:
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _start(argv: list[str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for signo in _blocked():
            signal.signal(signo, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _blocked())
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _reap(entry: int) -> int | None:
    """Reaps every dead child; the wait status of ``entry`` once it is among them."""
    status = None
    while True:
        try:
            pid, got = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == entry:
            status = got


def _keep(control: int, entry: int, wake: int) -> int:
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


def main(argv: list[str]) -> int:
    control = int(argv[1])
    os.set_inheritable(control, False)
    _adopt_orphans()
    # not ignored: between fork and exec a signal to the entry point would be lost; blocked, it ends it
    signal.pthread_sigmask(signal.SIG_BLOCK, _blocked())
    wake, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda signo, frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    status = _keep(control, _start(argv[2:]), wake)
    _kill_all()
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    os._exit(main(sys.argv))
