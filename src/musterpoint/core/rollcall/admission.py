"""Which caller gets which seat: rules over calls, the addresses of names, and the time; no I/O.

:func:`ruling` is the one rule, for the roll call, for hosts that come back while the job runs, and for calls to a job
in which no host may come back.

Without a shared secret a seat goes to the caller from an address that its name resolves to. A caller from
elsewhere (published ports, a sidecar, a second network card) gets it only if no matching one claims it in time, and
only before the job runs. Secret or address show whose seat a caller may claim, not that the earlier start of its host
is gone: a seated caller that still answers keeps its seat.
"""

from __future__ import annotations

from typing import Callable, Iterable, Literal, Union

from musterpoint.base.records import NamedTuple
from musterpoint.core.channel import wire
from musterpoint.core.channel.session import OVER, HostState
from musterpoint.core.rollcall.hello import Hello


class Call(NamedTuple):
    """One caller that claims a seat.

    ``hello``: its hello.
    ``state``: its session and connection.
    ``address``: where it called from.
    ``since``: when.
    """

    hello: Hello
    state: HostState
    address: str
    since: float

    @property
    def name(self) -> str:
        return self.hello.host

    @property
    def incarnation(self) -> str:
        return self.hello.incarnation

    @property
    def title(self) -> str:
        """How it calls itself; ``name`` only stands for that where the platform names no hosts."""
        return self.hello.name or self.hello.host

    def welcome(self, leader: str) -> bytes:
        """The leader's reply to the hello; where the platform names no hosts it says which seat the caller has."""
        token, answer = self.state.ticket
        seat = {"seat": self.hello.place} if self.hello.nnodes else {}
        return wire.pack("welcome", host=leader, job=self.hello.offer.job, token=token, answer=answer, **seat)

    def named(self, name: str) -> Call:
        """With the name that its host has in the roster."""
        self.state.rename(name)
        return self._replace(hello=self.hello._replace(host=name))


class Seated(NamedTuple):
    """``call`` has the seat; ``warning``: what is unusual about its address."""

    call: Call
    warning: str = ""


class TurnedAway(NamedTuple):
    """``call`` doesn't get the seat, or no longer has it, and why."""

    call: Call
    why: str


class Contested(NamedTuple):
    """``call`` claims the seat of ``holder``, which loses it unless it sends something (:meth:`Seats.answered`)."""

    call: Call
    holder: Call


Change = Union[Seated, TurnedAway, Contested]
Check = Literal["warn", "strict", "off"]
"""For a caller from an address that its name doesn't resolve to: seat after a wait, no seat, seat at once."""

_MOST_WAITING = 4


class Claim(NamedTuple):
    """What is certain about a caller that claims a seat.

    ``proved``: it knows the shared secret. ``itself``: it is the start that has the seat; nobody else knows its
    incarnation, which is drawn at random. ``at_name``: it calls from an address that the host's name resolves to.
    ``at_holder``: from the address where the seat's holder, or last holder, called from.
    """

    proved: bool = False
    itself: bool = False
    at_name: bool = False
    at_holder: bool = False


class Holder(NamedTuple):
    """The host that has the seat, or had it.

    ``lives``: its session isn't over. ``cut``: it has no connection, so it can't be asked. ``at_name``: it called from
    an address of its name. ``running``: the job has started with it.
    """

    lives: bool
    cut: bool = False
    at_name: bool = False
    running: bool = False

    @classmethod
    def of(cls, call: Call) -> Holder:
        """The holder of a seat in a job that runs."""
        return cls(call.state.session.state != OVER, cut=call.state.link is None, running=True)


Ruling = Literal["seat", "ask", "wait", "refuse"]
"""``ask``: it gets the seat unless the holder gives a sign of life. ``wait``: until its name resolves to its address;
before the job runs, and under ``warn``, for a limited time."""


def ruling(claim: Claim, holder: Holder | None, check: Check) -> Ruling:
    """What becomes of a claim; ``holder`` is None for a seat that nobody had.

    A session that isn't over ends only for a proof or for an address (the host's own, or the one its holder has), and
    while it has a connection only if the holder gives no sign of life: whoever types a host's command twice has the
    secret, and the address, too.
    """
    if claim.itself:
        return "seat"
    if holder is None or not holder.lives:
        known = claim.proved or claim.at_name or (claim.at_holder and holder is not None)
        return "seat" if known or check == "off" else "wait"
    if claim.proved and holder.cut:
        return "seat"
    if claim.at_name and not holder.at_name and not holder.running:
        return "seat"
    if claim.proved or claim.at_name or claim.at_holder:
        return "ask"
    return "wait" if holder.running and check != "off" else "refuse"


class Seats:
    """``patience``: seconds that a mismatch waits; ``asking``: seconds that a holder has to answer.

    ``earlier``: given while the job runs; it says where the last holder of a host's seat called from. A mismatch then
    waits until its name resolves to its address, and never gets the seat by waiting.
    """

    def __init__(
        self,
        names: Iterable[str],
        check: Check,
        patience: float,
        asking: float,
        earlier: Callable[[str], str] | None = None,
    ) -> None:
        self._check = check
        self._earlier = earlier
        self._patience = patience
        self._asking = asking
        self._newcomers: dict[str, tuple[Call, float]] = {}
        self._names = frozenset(names)
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._matched: set[str] = set()
        self.taken: dict[str, Call] = {}
        self.waiting: dict[str, list[Call]] = {}

    @property
    def filled(self) -> bool:
        return len(self.taken) == len(self._names) and not self._newcomers

    def missing(self) -> set[str]:
        return set(self._names.difference(self.taken))

    def matches(self, name: str, address: str) -> bool:
        """Whether ``name`` resolves to ``address``."""
        return address in self._addresses.get(name, ())

    def _facts(self, call: Call, holder: Call | None, proved: bool) -> Claim:
        at = holder.address if holder is not None else self._earlier(call.name) if self._earlier is not None else ""
        itself = holder is not None and call.incarnation == holder.incarnation
        return Claim(proved, itself, self.matches(call.name, call.address), at == call.address)

    def claim(self, call: Call, proved: bool = False) -> list[Change]:
        """``call`` claims its seat; ``proved`` as :class:`Claim` has it."""
        holder = self.taken.get(call.name)
        claim = self._facts(call, holder, proved)
        if holder is not None:
            return self._contest(call, holder, claim)
        had = Holder(lives=False) if self._earlier is not None else None
        if ruling(claim, had, self._check) == "seat":
            return self._seat(call, None, claim)
        waiting = self.waiting.setdefault(call.name, [])
        changes: list[Change] = [TurnedAway(old, LATER) for old in waiting if old.address == call.address]
        waiting[:] = [old for old in waiting if old.address != call.address]
        if len(waiting) >= _MOST_WAITING:
            return [*changes, TurnedAway(call, TAKEN)]
        waiting.append(call)
        return changes

    def _contest(self, call: Call, holder: Call, claim: Claim) -> list[Change]:
        ruled = ruling(claim, Holder(lives=True, at_name=call.name in self._matched), self._check)
        if ruled == "seat":
            return [*_turned_away(self._newcomers.pop(call.name, None)), *self._seat(call, holder, claim)]
        rival = self._newcomers.get(call.name)
        if ruled == "refuse" or (rival is not None and rival[0].incarnation != call.incarnation):
            return [TurnedAway(call, TAKEN)]
        self._newcomers[call.name] = (call, rival[1] if rival is not None else call.since)
        return [*_turned_away(rival), Contested(call, holder)]

    def answered(self, call: Call) -> list[Change]:
        """``call`` sent something: if it holds a contested seat, it keeps it."""
        if call.name not in self._newcomers or self.taken.get(call.name) is not call:
            return []
        return [TurnedAway(self._newcomers.pop(call.name)[0], taken_by(call))]

    def resolved(self, name: str, addresses: tuple[str, ...]) -> list[Change]:
        """``name`` resolves to ``addresses``; a waiting call from one of them takes the seat."""
        self._addresses[name] = addresses
        for call in reversed(self.waiting.get(name, [])):
            if call.address in addresses:
                self.waiting[name].remove(call)
                return self._seat_matching(call, self.taken.get(name))
        return []

    def left(self, call: Call) -> list[Change]:
        """The connection of ``call`` ended; a newcomer that waits for its seat takes it."""
        newcomer, _since = self._newcomers.get(call.name, (None, 0.0))
        if self.taken.get(call.name) is call:
            del self.taken[call.name]
            matched = call.name in self._matched
            self._matched.discard(call.name)
            if newcomer is not None:
                del self._newcomers[call.name]
                return self._seat_matching(newcomer, None) if matched else [self._take(newcomer)]
        elif newcomer is call:
            del self._newcomers[call.name]
        elif call in self.waiting.get(call.name, ()):
            self.waiting[call.name].remove(call)
        return []

    def tick(self, now: float) -> list[Change]:
        """Seats mismatches whose wait is over, and newcomers whose seat's holder did not answer."""
        changes: list[Change] = []
        for name in [name for name, (_, since) in self._newcomers.items() if since + self._asking <= now]:
            changes += self._replace(self._newcomers.pop(name)[0], self.taken[name], name in self._matched)
        if self._check != "warn" or self._earlier is not None:
            return changes
        for name in [name for name, calls in self.waiting.items() if calls]:
            first = self.waiting[name][0]
            if first.since + self._patience <= now:
                changes.append(self._take(first))
                changes += self._turn_waiting_away(name, first)
        return changes

    def oddity(self, call: Call) -> str:
        """How the address of ``call`` differs from what its name resolves to."""
        known = self._addresses.get(call.name, ())
        expected = f"resolves to {', '.join(known)}" if known else "does not resolve"
        return f"{call.name} calls from {call.address}, but its name {expected} on this host"

    def _seat(self, call: Call, holder: Call | None, claim: Claim) -> list[Change]:
        """The seat is ``call``'s; a warning says so where its address isn't one of its name's, which is looked at."""
        fits = claim.proved or claim.at_name or self._check == "off"
        if fits or holder is None:
            return self._seat_matching(call, holder)
        return self._replace(call, holder, False)

    def _seat_matching(self, call: Call, holder: Call | None) -> list[Change]:
        changes: list[Change] = [TurnedAway(holder, LATER)] if holder is not None else []
        self.taken[call.name] = call
        self._matched.add(call.name)
        changes.append(Seated(call))
        return changes + self._turn_waiting_away(call.name, call)

    def _replace(self, call: Call, holder: Call, matching: bool) -> list[Change]:
        return self._seat_matching(call, holder) if matching else [TurnedAway(holder, LATER), self._take(call)]

    def _take(self, call: Call) -> Seated:
        self.taken[call.name] = call
        return Seated(call, self.oddity(call))

    def _turn_waiting_away(self, name: str, winner: Call) -> list[Change]:
        others = [call for call in self.waiting.pop(name, []) if call is not winner]
        return [TurnedAway(call, TAKEN) for call in others]


def _turned_away(rival: tuple[Call, float] | None) -> list[Change]:
    return [] if rival is None else [TurnedAway(rival[0], LATER)]


def taken_by(holder: Call) -> str:
    """Why a caller that may claim the seat doesn't get it."""
    return f"{TAKEN}: an earlier start of {holder.title} ({holder.address}), which answers"


def already_started(holder: Call) -> str:
    """The same where the job runs, and no host of it may come back."""
    return f"this job has already started with an earlier start of {holder.name} ({holder.address})"


LATER = "a later start of this host took its seat"
TAKEN = "another process has the seat of this host"
