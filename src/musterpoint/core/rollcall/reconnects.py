"""Connections to the leader after the roster is out: hosts that resume their sessions, and callers it refuses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Mapping

from musterpoint.base.untrusted import same_token
from musterpoint.core.channel import wire
from musterpoint.core.channel.leader_channel import LeaderChannel
from musterpoint.core.channel.link import Context, Link
from musterpoint.core.channel.session import OVER, Resume
from musterpoint.core.channel.topics.attempts import Ready
from musterpoint.core.rollcall.admission import Call, Claim, Holder, already_started, ruling
from musterpoint.core.rollcall.hello import NO_SEAT, Hello
from musterpoint.core.rollcall.listener import Listener, ListenerOwner
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.rollcall.seat_columns import pack_roster
from musterpoint.core.rollcall.unnamed_seats import Places

if TYPE_CHECKING:
    from musterpoint.core.channel.topics.attempts import NextAttempt
    from musterpoint.core.rollcall.rejoin import Rejoin

_MOST_TOLD = 8
"""Addresses of which a line says that their call was refused."""


class Reconnects:
    """Takes over the ``listener``: gives connections that resume a session to the ``channel``, refuses others.

    ``calls``: the seated hosts' calls by name; ``packed``: the roster as it was sent; ``places``: set where the
    platform doesn't name the hosts; ``rejoin`` makes what seats hosts that were started anew, where they may come back.

    Who may end a host's session is ruled as in the roll call
    (:func:`musterpoint.core.rollcall.admission.ruling`): a host that has a connection is sent a beat first, and is
    given up only if it doesn't answer.
    """

    def __init__(
        self,
        context: Context,
        listener: Listener,
        roster: Roster,
        packed: bytes,
        calls: Mapping[str, Call],
        channel: LeaderChannel,
        places: Places | None = None,
        rejoin: Callable[[Reconnects], Rejoin] | None = None,
    ) -> None:
        self._context = context
        self._listener = listener
        self._roster = roster
        self._packed = packed
        self._calls = dict(calls)
        self._channel = channel
        self._places = places
        self._asked: set[str] = set()
        self._told: set[str] = set()
        self._rejoin = rejoin(self) if rejoin is not None else None
        channel.follow_restarts(self._next_roster)
        listener.hand_over(ListenerOwner(self._hello, self._resume, self._unproved))

    def earlier(self, host: str) -> Call:
        """The last call of ``host`` that had its seat."""
        return self._calls[host]

    def lose(self, call: Call) -> None:
        """The host of this call was started anew, so its session is over."""
        self._channel.restarted(call.state)

    def take(self, call: Call) -> None:
        """``call`` has the seat of its host from the next attempt on."""
        self._calls[call.name] = call
        self._channel.rejoined(call.state, Ready(ports=call.hello.offer.ports, address=call.address))

    def close(self) -> None:
        """The channel is closed: nobody comes any more."""
        if self._rejoin is not None:
            self._rejoin.close()

    def _next_roster(self, attempt: NextAttempt) -> bytes:
        self._roster = self._roster.next(attempt)
        self._packed = pack_roster(self._roster)
        return self._packed

    def _hello(self, link: Link, hello: Hello, proved: bool) -> None:
        if self._places is not None:
            self._unnamed(link, hello, proved, self._places)
            return
        call = self._calls.get(hello.host)
        if call is None or hello.offer.job != self._roster.job:
            self._refuse(link, f"{hello.host} is not one of the hosts of {self._roster.job}" if proved else NO_SEAT)
        elif hello.incarnation == call.incarnation:
            roster = [] if self._channel.awaits_roster(call.name) else [self._packed]
            self._go_on(link, call, 0, [call.welcome(self._roster.me), *roster])
        elif self._rejoin is not None and self._roster.attempt < self._roster.max_restarts:
            self._rejoin.claim(link, hello, proved)
        elif self._displace(link, call, proved):
            self._refuse(link, already_started(call))
        else:
            self._refuse(link, NO_SEAT)

    def _displace(self, link: Link, call: Call, proved: bool) -> bool:
        """A caller claims to be the host of ``call``, started anew: its session ends, or it is asked for a sign.

        False: the caller is nobody.
        """
        holder = Holder.of(call)
        ruled = ruling(Claim(proved, at_holder=link.peer == call.address), holder, "strict")
        if ruled == "seat" and holder.lives:
            self._channel.restarted(call.state)
        elif ruled == "ask":
            self._ask(call)
        return ruled in ("seat", "ask")

    def _unnamed(self, link: Link, hello: Hello, proved: bool, places: Places) -> None:
        """A hello of a host that the platform doesn't name: it may be one too many, or one started anew."""
        call = places.find(hello, link.peer, self._calls)
        ours = hello.protocol == wire.PROTOCOL and hello.offer.job == self._roster.job
        if ours and call is not None and hello.incarnation == call.incarnation:
            self._go_on(link, call, 0, [call.welcome(self._roster.me), self._packed])
            return
        if not ours:
            self._refuse(link, NO_SEAT)
            return
        refusal = places.late(hello, link.peer, call)
        self._refuse(link, refusal.reason if proved else refusal.answer, usage=int(refusal.usage))
        if link.peer not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(link.peer)
            self._context.log.say(f"warning: a caller at {link.peer} was refused: {refusal.reason}")
        if call is not None and call.title == hello.name:  # else it is another host, with a wrong node rank
            self._displace(link, call, proved)

    def _ask(self, call: Call) -> None:
        if call.name not in self._asked and call.state.session.state != OVER:
            self._asked.add(call.name)
            self._context.log.record("asked-for-a-sign", host=call.name)
            call.state.beat()
            seconds, signs = self._context.timeouts.sign_of_life, call.state.session.signs
            self._context.loop.call_later(seconds, partial(self._check_answer, call, signs))

    def _check_answer(self, call: Call, signs: int) -> None:
        self._asked.discard(call.name)
        session = call.state.session
        if session.state != OVER and session.signs == signs:
            self._channel.restarted(call.state)

    def _resume(self, link: Link, resume: Resume) -> None:
        call = self._calls.get(resume.host)
        if (
            call is None
            or resume.session != self._roster.session
            or not same_token(resume.token, call.state.ticket.token)
        ):
            self._refuse(link, "it knows no such session", over=True)
            return
        reply = wire.pack("resumed", answer=call.state.ticket.answer, got=call.state.mailbox.received)
        self._go_on(link, call, resume.got, [reply])

    def _go_on(self, link: Link, call: Call, got: int, replies: list[bytes]) -> None:
        if call.state.session.state != OVER:
            self._channel.resume(call.state, link, got, replies)
            return
        cause = self._channel.root_cause
        more = {"verdict": cause.failure._asdict(), "secondary": cause.secondary} if cause else {}
        self._refuse(link, f"{call.name} was given up as lost", over=True, **more)

    def _refuse(self, link: Link, reason: str, **more: Any) -> None:
        self._context.log.record("caller-refused", address=link.peer, reason=reason)
        self._listener.refuse(link, reason, **more)

    def _unproved(self, _host: str, address: str, claim: str) -> None:
        self._context.log.record("caller-refused", address=address, reason=claim)
