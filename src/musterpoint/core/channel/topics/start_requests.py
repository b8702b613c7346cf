"""Start requests: the leader asks other hosts to start daemons, and keeps track of their answers.

Only the leader asks. If workers could, a program on one host could run any command on another.
"""

from typing import Annotated, Union

from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import printable
from musterpoint.core.channel.bounds import Range, Text, WireError
from musterpoint.core.channel.peers import START_NUMBER, StartAsked, Started, StartEnded
from musterpoint.core.channel.topic import LeaderHalf, Topic, WorkerHalf

MOST_SAID = 8 * 1024
"""Bytes of what a daemon wrote last that travel to the leader, as UTF-8."""
LEAST_STATUS, MOST_STATUS = -64, 255
LOST = 255
"""The status of a daemon whose host is gone: what remote shells give when their connection breaks."""

_MOST_STARTS = 1024
_MOST_WAITING = 32 * 1024 * 1024
"""Most open start requests of a worker, unacknowledged messages included, and most bytes of them."""


class DaemonRuns(NamedTuple):
    """The daemon of request ``number`` runs on the worker that says so."""

    number: Annotated[int, START_NUMBER]


class DaemonEnded(NamedTuple):
    """It ended there, or was refused; fields as in :class:`StartEnded`."""

    number: Annotated[int, START_NUMBER]
    status: Annotated[int, Range(LEAST_STATUS, MOST_STATUS)]
    said: Annotated[str, Text(MOST_SAID)]


class StartRequests:
    """What the leader asks, and a worker answers."""

    def start(self, host: str, number: int, words: tuple[str, ...]) -> None:
        """Asks ``host`` to start an MPI daemon (:class:`StartAsked` there). Only the leader may: a worker gets
        ``RuntimeError``. :class:`StartEnded` comes at once if ``host`` is lost or left.

        ``ValueError``: no other host has this name, ``number`` is in use there until its end, or there are no words,
        more than 4,096, or one with a zero byte.
        """
        raise RuntimeError(f"start request {number} for {host}: only the leader of several hosts asks for starts")

    def started(self, number: int) -> None:
        """The daemon of request ``number`` runs here; only workers may say so (``RuntimeError`` elsewhere).

        Does nothing once the leader is lost.
        """
        raise RuntimeError(f"start request {number}: only a worker is asked, so only a worker answers")

    def start_ended(self, number: int, status: int, said: str = "") -> None:
        """The daemon of request ``number`` ended here, or was refused; once for each request.

        ``status`` is -64 to 255 (``ValueError``); of ``said`` the last 8 KiB are sent.
        """
        self.started(number)


def _end_of(said: str) -> str:
    """The last 8 KiB, cut at a character; what isn't Unicode becomes question marks."""
    return said.encode("utf-8", "replace")[-MOST_SAID:].decode("utf-8", "ignore")


class LeadersStartRequests(LeaderHalf, StartRequests):
    """When a host is lost or leaves, its requests end, and new ones end at once."""

    def begin(self) -> None:
        self._open: dict[str, dict[int, bool]] = {}
        self._gone: dict[str, str] = {}

    def start(self, host: str, number: int, words: tuple[str, ...]) -> None:
        if host not in self._side.others:
            raise ValueError(f"start request {number} is for {host!r}, which is no other host of this job")
        requests = self._open.setdefault(host, {})
        if number in requests:
            raise ValueError(f"start request {number} on {host} has not ended yet")
        message = StartAsked(number, words)
        self._side.check(message)
        if host in self._gone:
            self._side.emit(StartEnded(host, number, LOST, self._gone[host]))
            return
        requests[number] = False
        self._side.send(host, message)

    def hear(self, host: str, message: Union[DaemonRuns, DaemonEnded]) -> None:
        requests, number = self._open.get(host, {}), message.number
        if number not in requests:
            raise WireError(f"an answer to start request {number}, which it was not asked")
        if isinstance(message, DaemonRuns):
            if requests[number]:
                raise WireError(f"twice that start request {number} runs")
            requests[number] = True
            self._side.emit(Started(host, number))
            return
        said = printable(_end_of(message.said), 2 * MOST_SAID, lines=True)
        del requests[number]
        self._side.emit(StartEnded(host, number, message.status, said))

    def awaits(self) -> set[str]:
        return {host for host, requests in self._open.items() if requests}

    def gone(self, host: str, why: str) -> None:
        why = self._gone.setdefault(host, why)
        for number in self._open.pop(host, ()):
            self._side.emit(StartEnded(host, number, LOST, why))


class WorkersStartRequests(WorkerHalf, StartRequests):
    """Hands requests to this host's supervisor; they are bounded, as each is kept until its daemon has ended."""

    def begin(self) -> None:
        self._open: dict[int, int] = {}

    def started(self, number: int) -> None:
        message = DaemonRuns(number)
        self._side.check(message)
        self._side.post(message)

    def start_ended(self, number: int, status: int, said: str = "") -> None:
        message = DaemonEnded(number, status, _end_of(said))
        self._side.check(message)
        self._open.pop(number, None)
        self._side.post(message)

    def hear(self, message: StartAsked, size: int) -> None:
        if message.number in self._open:
            raise WireError(f"start request {message.number} before its last one ended")
        waiting = sum(self._open.values()) + size
        if len(self._open) + 1 + self._side.unsent > _MOST_STARTS or waiting > _MOST_WAITING:
            raise WireError("more start requests than can wait")
        self._open[message.number] = size
        self._side.emit(message)


TOPIC: Topic[StartRequests] = Topic(
    "start-requests", (DaemonRuns, DaemonEnded), (StartAsked,), LeadersStartRequests, WorkersStartRequests
)
