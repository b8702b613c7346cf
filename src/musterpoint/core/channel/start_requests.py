"""Start requests: the leader asks other hosts to start daemons, and keeps track of their answers.

Only the leader asks. If workers could, a program on one host could run any command on another.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

from musterpoint.base.untrusted import printable
from musterpoint.core.channel import wire
from musterpoint.core.channel.peers import PeerEvent, Started, StartEnded
from musterpoint.core.channel.session import HostState

MOST_WORDS = 4096
MOST_SAID = 8 * 1024
"""Bytes of what a daemon wrote last that travel to the leader, as UTF-8."""
LEAST_STATUS, MOST_STATUS = -64, 255
LOST = 255
"""The status of a daemon whose host is gone: what remote shells give when their connection breaks."""

_MOST_NUMBER = 2**53
_OVERHEAD = 64
"""Bytes that a frame may take beside its message."""


def pack_start(number: int, words: tuple[str, ...]) -> bytes:
    """The leader's request. ``ValueError`` if a worker would refuse it."""
    _check_number(number)
    if not 1 <= len(words) <= MOST_WORDS:
        raise ValueError(f"start request {number} has {len(words)} words, not 1 to {MOST_WORDS}")
    if any("\0" in word for word in words):
        raise ValueError(f"start request {number} has a word with a zero byte, which no program can be given")
    data = wire.pack("start", number=number, words=words)
    if len(data) > wire.LEADER_LIMIT - _OVERHEAD:  # what a kernel lets mpirun pass fits, however it is escaped
        raise ValueError(f"start request {number} takes {len(data)} bytes, more than {wire.LEADER_LIMIT - _OVERHEAD}")
    return data


def read_start(message: dict[str, Any]) -> tuple[int, tuple[str, ...]]:
    """Number and words of the leader's request; WireError if they are invalid."""
    number = wire.number(message, "number", _MOST_NUMBER)
    words = wire.texts(message, "words", MOST_WORDS, wire.LEADER_LIMIT)
    if not words or any("\0" in word for word in words):
        raise wire.WireError("a start request without words, or with a zero byte in one")
    return number, words


def pack_started(number: int) -> bytes:
    _check_number(number)
    return wire.pack("started", number=number)


def pack_ended(number: int, status: int, said: str) -> bytes:
    """A worker's message, with the end of ``said``. ``ValueError`` if the leader would refuse it."""
    _check_number(number)
    if not LEAST_STATUS <= status <= MOST_STATUS:
        raise ValueError(f"start request {number} ended with {status}, not {LEAST_STATUS} to {MOST_STATUS}")
    return wire.pack("ended", number=number, status=status, said=_end_of(said))


def _check_number(number: int) -> None:
    if not 0 <= number <= _MOST_NUMBER:
        raise ValueError(f"a start request's number is {number}, not 0 to {_MOST_NUMBER}")


def _end_of(said: str) -> str:
    """The last 8 KiB, cut at a character; what isn't Unicode becomes question marks."""
    return said.encode("utf-8", "replace")[-MOST_SAID:].decode("utf-8", "ignore")


class Requests:
    """The leader's open requests by host. When a host is lost or leaves, its requests end, and new ones end at once.

    ``members`` are all other hosts; ``emit`` takes the events of the requests.
    """

    def __init__(self, members: Mapping[str, HostState], emit: Callable[[PeerEvent], None]) -> None:
        self._members = members
        self._emit = emit
        self._open: dict[str, dict[int, bool]] = {}
        self._gone: dict[str, str] = {}

    def ask(self, host: str, number: int, words: tuple[str, ...]) -> None:
        """Sends a request.

        Raises:
            ValueError: no other host has this name, the number is in use there, or the words can't be sent.
        """
        member = self._members.get(host)
        if member is None:
            raise ValueError(f"start request {number} is for {host!r}, which is no other host of this job")
        requests = self._open.setdefault(host, {})
        if number in requests:
            raise ValueError(f"start request {number} on {host} has not ended yet")
        data = pack_start(number, words)
        if host in self._gone:
            self._emit(StartEnded(host, number, LOST, self._gone[host]))
            return
        requests[number] = False
        member.post(data)

    def answer(self, host: str, message: dict[str, Any]) -> None:
        """Takes ``started`` or ``ended``; WireError if ``host`` has no such open request."""
        number = wire.number(message, "number", _MOST_NUMBER)
        requests = self._open.get(host, {})
        if number not in requests:
            raise wire.WireError(f"an answer to start request {number}, which it was not asked")
        if message["t"] == "started":
            if requests[number]:
                raise wire.WireError(f"twice that start request {number} runs")
            requests[number] = True
            self._emit(Started(host, number))
            return
        status = wire.number(message, "status", MOST_STATUS, LEAST_STATUS)
        said = printable(_end_of(wire.text(message, "said", MOST_SAID)), 2 * MOST_SAID, lines=True)
        del requests[number]
        self._emit(StartEnded(host, number, status, said))

    def gone(self, host: str, why: str) -> None:
        """``host`` is lost or has left: no answer comes from it any more."""
        why = self._gone.setdefault(host, why)
        for number in self._open.pop(host, ()):
            self._emit(StartEnded(host, number, LOST, why))
