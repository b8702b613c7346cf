"""Hosts that the platform has started anew while the job runs: they take their old seats in the next attempt.

Who may take a seat is decided as in the roll call (:mod:`musterpoint.core.rollcall.admission`), but an address that the
host's name doesn't resolve to gets none, unless the host had it before. The host's earlier session has to be over
first: a host that still answers keeps its seat.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable

from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.core.channel import wire
from musterpoint.core.channel.link import Context, Link
from musterpoint.core.channel.names import Answer, Follower, Names
from musterpoint.core.rollcall.admission import (
    TAKEN,
    Call,
    Change,
    Check,
    Claim,
    Contested,
    Holder,
    Seated,
    Seats,
    ruling,
    taken_by,
)
from musterpoint.core.rollcall.callers import Callers
from musterpoint.core.rollcall.hello import NO_SEAT, Hello, validate
from musterpoint.core.rollcall.listener import Listener
from musterpoint.core.rollcall.roster import Offer, Roster, Seat


class Members(NamedTuple):
    """What the leader knows of its hosts: its own ``offer``, the ``roster``, and the options."""

    offer: Offer
    roster: Roster
    settings: Settings

    def refusal(self, hello: Hello, proved: bool, known: bool) -> str:
        """Why ``hello`` can't have its host's seat; empty: it may. ``known``: it calls from that host's address."""
        me = self.roster.me
        seats = {seat.name: seat for seat in self.roster.seats if seat.name != me}
        role = self.roster.seat.role
        grouped = frozenset(name for name, seat in seats.items() if seat.grouped and seat.role == role)
        refused = validate(hello, me, self.offer, frozenset(seats), grouped, proved)
        if refused is not None:
            return refused.reason if proved else refused.answer
        why = self._difference(hello, seats[hello.host])
        return why if proved or known or not why else NO_SEAT

    @staticmethod
    def _difference(hello: Hello, seat: Seat) -> str:
        if hello.offer.ssh_key != seat.ssh_key:
            return f"{hello.host} has new keys for ssh, which the other hosts can't learn while the job runs"
        if seat.grouped and (hello.offer.slots, hello.offer.capacity) != (seat.slots, seat.capacity):
            return (
                f"{hello.host} had {seat.slots} slots (room for {seat.capacity}) and has {hello.offer.slots} (room for "
                f"{hello.offer.capacity}) now: the job's world keeps its size"
            )
        return ""


class Rejoin:
    """Callers that claim the seats of hosts of a running job.

    ``earlier`` gives a host's last call. ``take`` gets a call that has its host's seat; the link is the taker's then.
    ``lose`` ends the earlier session of a host that is known to be gone.
    """

    def __init__(
        self,
        context: Context,
        names: Names,
        listener: Listener,
        members: Members,
        earlier: Callable[[str], Call],
        take: Callable[[Call], None],
        lose: Callable[[Call], None],
    ) -> None:
        self._context = context
        self._loop, self._timeouts = context.loop, context.timeouts
        self._listener, self._members, self._earlier, self._take, self._lose = listener, members, earlier, take, lose
        settings = members.settings
        check: Check = "off" if settings.secret else settings.rollcall_check
        self._checked = check != "off"
        others = [seat.name for seat in members.roster.seats if seat.name != members.roster.me]
        self._seats = Seats(
            others, check, self._timeouts.mismatch, self._timeouts.sign_of_life, lambda name: earlier(name).address
        )
        self._check = check
        self._follower = Follower(context, names, self._resolved)
        self._proved = bool(settings.secret)  # the listener lets nobody in without it
        self._callers = Callers(context, settings.silence_timeout, self._heard, self._ended, self._tick)

    def claim(self, link: Link, hello: Hello, proved: bool) -> None:
        """A caller says that it is a host of the job, started anew."""
        address = link.peer
        known = self._seats.matches(hello.host, address) or self._earlier(hello.host).address == address
        if why := self._members.refusal(hello, proved, known):
            self._listener.refuse(link, why)
            return
        call = self._callers.take(link, hello)
        self._context.log.record("host-called-again", host=call.name, address=call.address)
        link.send(wire.pack("wait"))
        self._apply(self._seats.claim(call, proved))
        if self._checked and call.name not in self._seats.taken and link in self._callers:
            self._follower.follow(call.name)

    def close(self) -> None:
        """Nobody gets a seat any more."""
        self._callers.stop()
        for link, call in self._callers.calls.items():
            self._follower.drop(call.name)
            self._turn_away(link, call, "the job is over")

    def _apply(self, changes: list[Change]) -> None:
        for change in changes:
            call, link = change.call, change.call.state.link
            if link is None or link not in self._callers:
                continue
            if isinstance(change, Seated):
                self._follower.drop(call.name)
                self._ask_earlier(link, call)
            elif isinstance(change, Contested):
                change.holder.state.beat()
            else:
                self._turn_away(link, call, change.why)

    def _ask_earlier(self, link: Link, call: Call) -> None:
        """The seat is this call's, if the host's earlier session is over, or doesn't answer."""
        earlier = self._earlier(call.name)
        at_name, at_holder = self._seats.matches(call.name, call.address), call.address == earlier.address
        ruled = ruling(Claim(self._proved, at_name=at_name, at_holder=at_holder), Holder.of(earlier), self._check)
        if ruled == "seat":
            self._succeed(link, call, earlier)
        elif ruled == "ask":
            self._context.log.record("asked-for-a-sign", host=call.name)
            earlier.state.beat()
            signs = earlier.state.session.signs
            self._loop.call_later(self._timeouts.sign_of_life, partial(self._check_answer, link, call, signs))
        else:
            self._turn_away(link, call, TAKEN)

    def _check_answer(self, link: Link, call: Call, signs: int) -> None:
        if link not in self._callers:
            return
        earlier = self._earlier(call.name)
        if Holder.of(earlier).lives and earlier.state.session.signs > signs:
            self._turn_away(link, call, taken_by(earlier))
        else:
            self._succeed(link, call, earlier)

    def _succeed(self, link: Link, call: Call, earlier: Call) -> None:
        if Holder.of(earlier).lives:
            self._lose(earlier)
        self._drop(link, call)
        link.set_limit(wire.MEMBER_LIMIT)
        link.send(call.welcome(self._members.roster.me))
        self._take(call)

    def _turn_away(self, link: Link, call: Call, why: str) -> None:
        self._drop(link, call)
        self._listener.refuse(link, why)

    def _drop(self, link: Link, call: Call) -> None:
        self._callers.drop(link, call)
        self._apply(self._seats.left(call))

    # connections of callers that wait

    def _heard(self, call: Call, message: dict[str, Any] | None) -> None:
        if message is not None:
            raise wire.WireError(f"a {message['t']!r} before it had a seat")
        self._apply(self._seats.answered(call))

    def _ended(self, link: Link, _why: str) -> None:
        if (call := self._callers.get(link)) is not None:
            self._drop(link, call)

    def _resolved(self, name: str, answer: Answer) -> None:
        if answer.addresses:
            self._apply(self._seats.resolved(name, answer.addresses))
        if not self._seats.waiting.get(name):
            self._follower.drop(name)

    def _tick(self, now: float) -> None:
        self._apply(self._seats.tick(now))
