"""Hosts that the platform has started anew while the job runs, as the leader's end of the channel keeps them.

Each has its seat, but no roster: it is still in its roll call, and gets the roster of the next attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from musterpoint.core.channel import wire
from musterpoint.core.channel.session import OVER, HostState

if TYPE_CHECKING:
    from musterpoint.core.channel.topics.attempts import NextAttempt, NoRestart

_SAYS = ("stopping", "abandon", "leaving")


class Newcomers:
    """``me``: the leader's name. ``roster_of`` gives the packed roster of an attempt."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._waiting: dict[str, HostState] = {}
        self.roster_of: Callable[[NextAttempt], bytes] | None = None

    def __contains__(self, host: str) -> bool:
        return host in self._waiting

    def add(self, host: HostState) -> None:
        """``host`` waits for the next attempt."""
        self._waiting[host.name] = host

    def check(self, host: str, kind: str) -> None:
        """Refuses a message that no host sends in its roll call (WireError)."""
        if host in self._waiting and kind not in _SAYS:
            raise wire.WireError(f"a {kind!r} before the roster")

    def join(self, attempt: NextAttempt) -> None:
        """The attempt begins: they are hosts like the others from now on."""
        roster = self.roster_of(attempt) if self.roster_of is not None else b""
        for host in self._waiting.values() if roster else ():
            if host.link is not None:
                host.link.send(roster)
        self._waiting.clear()

    def dismiss(self, end: NoRestart) -> None:
        """There is no other attempt: they get what ends a roll call."""
        if end.stopped_by:
            data = wire.pack("abandon", host=end.stopped_by, signal=end.signal)
        else:
            why = end.failure.reason if end.failure is not None else end.why
            data = wire.pack("over", text=f"{self._me} ended the job: {why}")
        self._send(data)

    def stop(self, host: str, signal: int) -> None:
        """The job stops, as ``host`` was told to."""
        self._send(wire.pack("abandon", host=host, signal=signal), but=host)

    def leave(self) -> None:
        """The job has ended without another attempt."""
        self._send(wire.pack("over", text=f"{self._me} ended the job: it needed no other attempt"))

    def _send(self, data: bytes, but: str = "") -> None:
        for host in self._waiting.values():
            if host.link is not None and host.session.state != OVER and host.name != but:
                host.link.send(data)
            host.session.end()
