"""One start of a job's hosts, from the empty directory to what they left."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from datetime import datetime
from typing import Any, Callable, Mapping, NamedTuple, Protocol, Sequence

from musterpoint.base.console import Console
from musterpoint.base.errors import UsageError
from musterpoint.base.metrics import Point
from musterpoint.local.backend import Backend
from musterpoint.local.control_plane import RunContext, run
from musterpoint.local.docker_hosts import DockerHosts
from musterpoint.local.job_request import LocalJob
from musterpoint.local.job_status import Phase
from musterpoint.local.netns_hosts import NetnsHosts, why_unavailable
from musterpoint.local.observer import Steered
from musterpoint.local.platforms.local_platform import LocalPlatform
from musterpoint.local.process_hosts import ProcessHosts, can_have_own_tree
from musterpoint.local.tree import Layout
from musterpoint.local.way_out import MACHINE
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import END

_CHUNK = 1 << 16
MOST_CONNECTIONS = 256
"""Of the hosts of one run to the server, at a time."""


def backend_of(settings: Settings, job: LocalJob, layout: Layout) -> Backend:
    """The hosts of one run; nothing is made yet.

    Raises:
        UsageError: they can't be had on this machine.
    """
    if settings.backend == "netns":
        why_not = why_unavailable()
        if why_not:
            raise UsageError(f"--backend netns can't be had on this machine: {why_not}")
        return NetnsHosts(layout, job.hosts, internet=True, port=settings.port)
    if settings.backend == "docker":
        return DockerHosts(job, layout)
    return ProcessHosts(layout, job.hosts, own_tree=can_have_own_tree())


class Way:
    """The way of one run's hosts to the server. Used as :meth:`endpoint`, once the hosts are there, and ``close``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.backend: Backend | None = None
        self._relay: Relay | None = None

    def endpoint(self) -> str:
        """The server's URL as hosts see it. Hosts without a network get this machine's own, which leads nowhere."""
        if isinstance(self.backend, NetnsHosts):
            return f"http://{MACHINE}:{self._settings.port}"
        if isinstance(self.backend, DockerHosts) and not self.backend.isolated:
            self._relay = self._relay or Relay(self.backend.meet(), self._settings)
            return self._relay.url
        return self._settings.url

    def close(self) -> None:
        if self._relay is not None:
            self._relay.close()


class Relay:
    """Listens at ``address``, a port of its own, and passes connections on to the server."""

    def __init__(self, address: str, settings: Settings) -> None:
        self._server = settings.host or "127.0.0.1", settings.port
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._listening = socket.create_server((address, 0))
        self.url = f"http://{address}:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            self._room.acquire()
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(near,), name="relayed", daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        try:
            with near, socket.create_connection(self._server) as far:
                broken = threading.Event()
                back = threading.Thread(target=_copy, args=(far, near, broken), name="relayed back", daemon=True)
                back.start()
                _copy(near, far, broken)
                back.join()
        except OSError as error:
            print(f"a connection of a host to the server failed: {error}", flush=True)
        finally:
            self._room.release()


def _copy(source: socket.socket, target: socket.socket, broken: threading.Event) -> None:
    """Passes one direction on with its end. Where it breaks the other one ends, too, and both sockets are reset when
    they are closed.
    """
    try:
        while data := source.recv(_CHUNK):
            target.sendall(data)
        if not broken.is_set():
            target.shutdown(socket.SHUT_WR)
    except OSError:
        broken.set()
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.shutdown(socket.SHUT_RD)


class GivenUp(Exception):
    """The job is ended before its hosts were started."""


class Ended(NamedTuple):
    """The end of a run.

    ``status``, ``reason``, ``code``: as ``job.json`` has them. ``ended_for``: STOP, INTERRUPT or END, or empty where
    the hosts ended themselves; ``timed_out``: whether it was the job's own limit. ``lost``: hosts taken away by order.
    ``trained_from``, ``trained_to``: in seconds since the epoch; 0 where it didn't come to that. ``metrics``:
    FinalMetricDataList.
    """

    status: str
    reason: str
    code: int
    ended_for: str
    timed_out: bool
    lost: tuple[str, ...]
    trained_from: float
    trained_to: float
    metrics: Sequence[Mapping[str, Any]] = ()


class Output(Protocol):
    """Takes the output of hosts."""

    def wrote(self, host: str, data: bytes) -> None: ...

    def measured(self, point: Point) -> None: ...

    def close(self) -> None: ...


class JobRun:
    """One run. :meth:`end` and :meth:`lose` may be called from any thread; the rest from the main thread."""

    def __init__(
        self,
        settings: Settings,
        job: LocalJob,
        platform: LocalPlatform,
        layout: Layout,
        way: Way,
        output: Output,
        entered: Callable[[Phase], None],
    ) -> None:
        self.way = way
        self.layout = layout
        self.lost: list[str] = []
        self.ended_for = ""
        self._settings, self._job, self._platform, self._entered = settings, job, platform, entered
        self._output = output
        self._lock = threading.Lock()
        self._hosts: Steered | None = None
        self._waiting: list[Callable[[Steered], None]] = []
        self._timed_out = False
        self._phases: list[Phase] = []

    def give_up(self) -> None:
        """Raises GivenUp where the job has been ended while its hosts weren't there yet."""
        if self.ended_for:
            raise GivenUp(self.ended_for)

    def end(self, why: str) -> None:
        """Ends the run with SIGTERM and the platform's grace; at once for the server's own end."""
        self.ended_for = why if why == END else self.ended_for or why
        self._steer(lambda hosts: hosts.kill() if why == END else None if hosts.stopped else hosts.stop(why))

    def lose(self, host: str) -> None:
        """Takes ``host`` away at once; the platform then ends the others."""
        self.lost.append(host)

        def take(hosts: Steered) -> None:
            hosts.kill(host)
            hosts.end_the_rest(f"{host} was lost")

        self._steer(take)

    def _steer(self, action: Callable[[Steered], None]) -> None:
        with self._lock:
            if self._hosts is None:
                self._waiting.append(action)
                return
            hosts = self._hosts
        hosts.post(lambda: action(hosts))

    def opened(self, hosts: Steered) -> None:
        """Of an observer: hands on the orders that came before there were hosts."""
        with self._lock:
            self._hosts = hosts
            waiting, self._waiting = self._waiting, []
        for action in waiting:
            hosts.post(lambda action=action: action(hosts))  # type: ignore[misc]

    def wrote(self, host: str, data: bytes) -> None:
        """Of an observer."""
        self._output.wrote(host, data)

    def measured(self, point: Point) -> None:
        """Of an observer."""
        self._output.measured(point)

    def entered(self, phase: Phase) -> None:
        """Of an observer."""
        self._phases.append(phase)
        if phase.status == "Stopping" and not self.ended_for:
            self._timed_out = True
        self._entered(phase)

    def run(self, environ: Mapping[str, str]) -> Ended:
        """Runs the hosts to their end.

        Raises:
            GivenUp: it was ended before.
            UsageError: the hosts can't be had on this machine.
        """
        os.makedirs(self.layout.hosts)
        backend = self.way.backend = backend_of(self._settings, self._job, self.layout)
        try:
            context = RunContext(
                self.layout, backend, Console(), environ, out=1, platform=self._platform, observer=self
            )
            description = run(self._job, context)
        finally:
            backend.close()
            self._output.close()
        training = [phase.start for phase in self._phases if phase.status == "Training"]
        after = [phase.start for phase in self._phases if phase.status == "Uploading"]
        return Ended(
            description["TrainingJobStatus"],
            description.get("FailureReason", ""),
            description["ExitCode"],
            self.ended_for,
            self._timed_out,
            tuple(self.lost),
            training[0] if training else 0.0,
            after[0] if after else 0.0,
            final_metrics(description),
        )


def final_metrics(description: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``FinalMetricDataList`` of a local job's description, with times as seconds since the epoch."""
    return [
        {**each, "Timestamp": datetime.fromisoformat(each["Timestamp"]).timestamp()}
        for each in description.get("FinalMetricDataList", ())
    ]
