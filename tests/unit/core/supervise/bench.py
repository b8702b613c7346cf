"""What a part of the supervisor works with in these tests."""

from __future__ import annotations

import os
import socket
from typing import Any, Callable

from musterpoint.base.failure import Failure
from musterpoint.base.loop import Loop
from musterpoint.core.launch.launch_plan import Argument, ProcessPlan
from musterpoint.core.processes.control_socket import address_of
from musterpoint.core.processes.pump import Pump
from musterpoint.core.processes.sidecars import Sidecars
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.events import Broken, LocalEvent
from musterpoint.core.supervise.host_processes import HostProcesses


def record_nothing(event: str, /, **facts: Any) -> None:
    """A timeline that nobody reads."""


def context_for(
    loop: Loop, pump: Pump, record: Callable[..., None] = record_nothing, say: Callable[[str], None] = print,
    oom_kills: Callable[[], int] = lambda: 0,
) -> SupervisorContext:  # fmt: skip
    return SupervisorContext(loop, pump, Sidecars(loop), say, record, "algo-1", oom_kills=oom_kills)


def service(script: str, users: bool = False, name: str = "ps 0") -> ProcessPlan:
    return ProcessPlan("service", name, (Argument("/bin/sh"), Argument("-c"), Argument(script)), users=users)


class Piped:
    """A loop, and a pump that writes into a pipe."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.read, self.write = os.pipe()
        self.pump = Pump(out_fd=self.write, err_fd=self.write)

    @property
    def output(self) -> str:
        """All that came through the pipe, into which nothing can be written then."""
        os.close(self.write)
        self.write = -1
        with open(self.read, closefd=False) as file:
            return file.read()

    def close(self) -> None:
        self.loop.close()
        for fd in (self.read, self.write):
            if fd >= 0:
                os.close(fd)


class WithProcesses(Piped):
    """Processes of a host; the tests are those that call at its control socket."""

    processes: HostProcesses

    def __init__(self) -> None:
        super().__init__()
        self.events: list[LocalEvent] = []
        self.callers: list[socket.socket] = []

    def call(self, line: str) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(500)
        self.callers.append(sock)
        sock.connect(address_of(self.processes.control_socket.address))
        sock.sendall(f"{self.processes.control_socket.token}\n{line}\n".encode())
        self.turn()
        return sock

    def turn(self) -> None:
        for _ in range(3):
            self.loop.turn(0.02)

    @property
    def broken(self) -> list[Failure]:
        return [event.failure for event in self.events if isinstance(event, Broken)]

    def close(self) -> None:
        for sock in self.callers:
            sock.close()
        self.processes.kill()
        self.pump.drain(5)
        while self.processes.left.remaining:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            self.processes.reap()
        self.processes.reap()
        self.processes.close()
        super().close()
