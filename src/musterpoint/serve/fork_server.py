"""Forks the process of each job from one that has loaded everything: a job begins in milliseconds.

Run as ``python -m musterpoint.serve.fork_server`` with a unix socket as its stdin. The first message on that is the
server's settings, each later one a job's name with its lock as a descriptor. At the end of the socket it ends; jobs go
on.
"""

from __future__ import annotations

import array
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading

from musterpoint.serve import job_main, telemetry
from musterpoint.serve.settings import Settings

LOCK, LOG = "lock", "log"
"""In a job's directory: held while a process of the job runs; what that process says."""
_LONGEST, _LARGEST = 256, 1 << 17


class ForkServer:
    """The other end, in the server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=its.fileno(), start_new_session=True
            )
        self._socket.send(self._settings.to_json().encode())  # a command line would show everybody the secret key

    def start(self, name: str) -> bool:
        """Starts the process of the job ``name``; False: there is one already, and it holds the lock."""
        folder = self._settings.job_directory(name)
        with open(os.path.join(folder, LOCK), "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            with self._lock:
                try:
                    socket.send_fds(self._socket, [name.encode()], [lock.fileno()])
                except OSError:  # somebody has killed it
                    self.close()
                    self._begin()
                    socket.send_fds(self._socket, [name.encode()], [lock.fileno()])
            return True

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def wait_for_end(directory: str) -> None:
    """Returns when no process of the job in ``directory`` runs."""
    with open(os.path.join(directory, LOCK), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def main() -> None:
    """Forks until the server is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    with socket.socket(fileno=os.dup(0)) as server:
        said = server.recv(_LARGEST)
        if not said:
            return
        settings = Settings.from_json(said.decode())
        telemetry.load_ahead(settings)  # what each job would load
        while True:
            try:
                name, ancillary, _, _ = server.recvmsg(
                    _LONGEST, socket.CMSG_SPACE(array.array("i").itemsize), socket.MSG_CMSG_CLOEXEC
                )
            except ConnectionError:
                return
            if not name:
                return
            lock = array.array("i")
            for _, _, data in ancillary:
                lock.frombytes(data)
            if os.fork() == 0:
                server.close()
                _be(settings, name.decode())
            os.close(lock[0])


def _be(settings: Settings, name: str) -> None:
    """This process is the job's from now on; the lock stays open in it until it ends."""
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(os.path.join(settings.job_directory(name), LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, file in enumerate((nothing, log, log)):
            os.dup2(file, number)
        os.close(log)
        os.close(nothing)
        job_main.main(settings, name)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
