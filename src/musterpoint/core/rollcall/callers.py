"""Callers that have said hello: each is heard, gets beats, and is ended where it falls silent."""

from __future__ import annotations

from typing import Any, Callable

from musterpoint.core.channel import wire
from musterpoint.core.channel.beats import Beats, Sweeper
from musterpoint.core.channel.link import Context, Link, LinkOwner
from musterpoint.core.channel.session import HostState, Session
from musterpoint.core.rollcall.admission import Call
from musterpoint.core.rollcall.hello import Hello


class Callers:
    """The calls by their links.

    ``silence`` is --silence-timeout of the session that a call may become. ``heard`` gets a call that said something,
    and its message (None: a beat). ``ended`` gets a link that is over, and why; it calls :meth:`drop`. ``tick`` gets
    the time, now and then.
    """

    def __init__(
        self,
        context: Context,
        silence: float,
        heard: Callable[[Call, dict[str, Any] | None], None],
        ended: Callable[[Link, str], None],
        tick: Callable[[float], None],
    ) -> None:
        self._context, self._silence, self._heard, self._ended, self._tick = context, silence, heard, ended, tick
        self._calls: dict[Link, Call] = {}
        self._owner = LinkOwner(self._frame, lambda link, why, _eof: self._over(link, why))
        self._beats = Beats()
        self._sweeper: Sweeper | None = None

    @property
    def calls(self) -> dict[Link, Call]:
        """A copy, for loops in which calls end."""
        return dict(self._calls)

    def __contains__(self, link: Link) -> bool:
        return link in self._calls

    def __getitem__(self, link: Link) -> Call:
        return self._calls[link]

    def get(self, link: Link) -> Call | None:
        return self._calls.get(link)

    def take(self, link: Link, hello: Hello) -> Call:
        """Takes over the link of a caller that has said hello."""
        now = self._context.loop.clock()
        session = Session(now, False, self._silence, self._context.timeouts)
        call = Call(hello, HostState(hello.host, link, session), link.peer, now)
        link.hand_over(self._owner)
        self._calls[link] = call
        self._beats.add(call.state)
        if self._sweeper is None:
            self._sweeper = Sweeper(self._context, self._forgive, self._sweep)
        return call

    def replace(self, link: Link, call: Call) -> None:
        """The same caller claims another seat."""
        self._calls[link] = call

    def drop(self, link: Link, call: Call) -> None:
        """Forgets a call; its link is another's from now on, or closed."""
        self._calls.pop(link, None)
        self._beats.remove(call.state)

    def stop(self) -> None:
        """No more beats, and nobody is ended for silence."""
        if self._sweeper is not None:
            self._sweeper.stop()

    def _frame(self, link: Link, payload: bytes) -> None:
        call = self._calls[link]
        call.state.session.received(self._context.loop.clock())
        if wire.is_beat(payload):
            wire.read_beat(payload)
            self._heard(call, None)
        else:
            self._heard(call, wire.unpack(payload))

    def _over(self, link: Link, why: str) -> None:
        if link in self._calls:
            self._ended(link, why)

    def _forgive(self, seconds: float, now: float) -> None:
        for call in self._calls.values():
            call.state.session.forgive(seconds, now)

    def _sweep(self, now: float) -> None:
        for member in self._beats.next():
            member.beat()
        for link, call in self.calls.items():
            if link in self._calls and now - call.state.session.received_at >= self._context.timeouts.silence:
                link.close()
                self._over(link, "it fell silent")
        self._tick(now)
