"""ssh on this host while a job runs: callers are answered by a server each, and their sessions belong to the job.

A session begins as :mod:`musterpoint.embedded.programs.ssh_session`, which tells us. From then on its program is a
service of the user's own: a stop signals it, and the job's end takes it along.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from typing import Callable, Mapping

from musterpoint.base.loop import READ
from musterpoint.base.settings import without_own
from musterpoint.core.launch.identity import IDENTITY
from musterpoint.core.launch.launch_plan import LaunchPlan, PlannedFile, SshServer
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.control_socket import Connection
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.ssh_door import SshDoor
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.foreign_ranks import number_of
from musterpoint.core.supervise.host_processes import HostProcesses
from musterpoint.core.supervise.process_starter import planned_environment
from musterpoint.core.supervise.watcher import Watched, WatchedJob, Watcher

MOST_ACCEPTED = 16
"""Callers accepted before other events get their turn."""
SHOWN = 200
"""Characters of a session's command in the timeline."""


class SshSessions(Watcher):
    """Has keys and a port for ssh from before the roll call on, and answers in each attempt.

    Raises:
        LauncherError: they can't be made, or sshd can't run here.
        StoppedEarly: this host was told to stop.
    """

    _context: SupervisorContext
    _processes: HostProcesses
    _server: SshServer
    _names: Mapping[str, str]

    def __init__(self, seen: WatchedJob) -> None:
        self._loop = seen.loop
        self._door = SshDoor(seen.found, without_own(seen.environ), seen.ask)
        self.ports, self.key = (self._door.port,), self._door.key
        self._answers = False
        self._begun = 0
        self._descriptors: dict[int, int] = {}
        self._warned: set[str] = set()

    def starts(self, watched: Watched, plan: LaunchPlan, environ: Mapping[str, str]) -> None:
        """Writes the files of server and clients, before anything is started that needs them."""
        self._answers = plan.ssh is not None
        if plan.ssh is None:
            return
        self._context, self._processes, self._server = watched.context, watched.processes, plan.ssh
        self._names = {address: name for name, address in plan.ssh.callers}
        path, control_socket = self._processes.starter.path_of, self._processes.control_socket
        environment = planned_environment(plan, self._server.process, environ, control_socket, path)
        given = {
            "socket": control_socket.address,
            "token": control_socket.token,
            "sftp": self._server.sftp_server,
            "environment": {name: value for name, value in environment.items() if name not in IDENTITY},
        }
        texts = {
            "{muster:ssh_session}": f"{_interpreter()} {path('ssh_session')}",
            "{muster:ssh_environment}": self._processes.starter.hold("ssh_environment", json.dumps(given)),
        }
        os.makedirs(os.path.join(self._server.folder, "bin"), 0o700, exist_ok=True)
        for file in self._server.files:
            self._write(file, texts)

    def _write(self, file: PlannedFile, texts: Mapping[str, str]) -> None:
        text = file.text
        for placeholder, found in texts.items():
            text = text.replace(placeholder, found)
        path = os.path.join(self._server.folder, file.name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with open(os.open(path, flags, 0o700 if file.executable else 0o600), "w", encoding="utf-8") as opened:
            opened.write(text)

    def begins(self, watched: Watched) -> None:
        if self._answers:
            self._door.socket.setblocking(False)
            self._loop.watch(self._door.socket.fileno(), READ, self._accept)

    def _accept(self, _ready: int) -> None:
        for _ in range(MOST_ACCEPTED):
            try:
                connection, (address, *_rest) = self._door.socket.accept()
            except OSError:
                return
            with connection:
                self._answer(connection, address.removeprefix("::ffff:").partition("%")[0])

    def _answer(self, connection: socket.socket, address: str) -> None:
        name = self._names.get(address)
        if self._processes.is_ending:
            return
        if name is None:
            self._warn(f"{address} called this host's ssh server, and is no host that may; it was sent away")
            return
        connection.setblocking(True)
        try:
            self._processes.serve(self._server.process, connection.fileno())
        except CannotStart as error:
            self._warn(f"{self._server.argv[0].text} can't be started for {name}: {error}")

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._context.say(f"warning: {text}")

    # -- sessions --

    def takes(self, connection: Connection, line: str) -> bool:
        """Takes ``ssh PID CALLER COMMAND`` (the last two in hex) from a session that begins; False: it may not."""
        if not self._answers or not line.startswith("ssh "):
            return False
        words = line.split()
        pid, caller, command = number_of(words[1]), *(_text(word) for word in words[2:4])
        if self._processes.is_ending or pid not in {stat.pid for stat in process_tree.descendants(os.getpid())}:
            return False
        self._begun += 1
        name = f"ssh session {self._begun} from {self._names.get(caller, caller)}"
        shown = self._context.mask(command[:SHOWN]) or "a shell"
        self._context.record("ssh-session", name=name, command=shown, pid=pid)
        process = self._server.process._replace(name=name, users=True)
        self._processes.adopt(process, pid, lambda _status, _tail: self._forget(pid))
        self._watch(pid)
        connection.ignore()
        connection.send("go")
        return True

    def _watch(self, pid: int) -> None:
        """Its end is told by a pidfd (Linux 5.3): its parent is sshd, not we."""
        try:
            self._descriptors[pid] = os.pidfd_open(pid)
        except (AttributeError, OSError):
            return
        ended: Callable[[int], None] = lambda _ready: self._processes.adopted_ended(pid)  # noqa: E731
        self._loop.watch(self._descriptors[pid], READ, ended)

    def _forget(self, pid: int) -> None:
        fd = self._descriptors.pop(pid, -1)
        if fd >= 0:
            self._loop.forget(fd)
            os.close(fd)

    def over(self, failed: bool) -> None:
        """Ends the server: who calls from now on gets no answer."""
        self._answers = False
        self._loop.forget(self._door.socket.fileno())
        for pid in list(self._descriptors):
            self._forget(pid)

    def close(self) -> None:
        self.over(False)
        self._door.close()


watch = SshSessions


def _interpreter() -> str:
    return shlex.join((sys.executable, "-IS"))


def _text(word: str) -> str:
    return bytes.fromhex(word.strip("-")).decode("utf-8", "replace")
