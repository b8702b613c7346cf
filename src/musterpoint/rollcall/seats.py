"""Who may sit where: pure rules over the calls that come in, the addresses that names have, and time.

Without a shared secret a seat goes to whoever calls from an address its name resolves to. A call from elsewhere
(published ports, a sidecar, a second network card) gets the seat only if no matching one claims it in time.
"""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple, Union


class Call(NamedTuple):
    """One host's wish to sit. ``key`` is whoever keeps the connection; ``since`` is when it came."""

    name: str
    key: Any
    incarnation: str
    address: str
    since: float


class Seated(NamedTuple):
    """``call`` has the seat; ``warning`` says what is odd about it."""

    call: Call
    warning: str = ""


class Turned(NamedTuple):
    """``call`` doesn't get the seat, or no longer has it, and why."""

    call: Call
    why: str


Change = Union[Seated, Turned]

_MOST_WAITING = 4


class Seats:
    """``check`` is ``warn``, ``strict`` or ``off``; ``patience`` is how many seconds a mismatch waits."""

    def __init__(self, names: Iterable[str], check: str, patience: float) -> None:
        self._check = check
        self._patience = patience
        self._names = frozenset(names)
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._matched: set[str] = set()
        self.taken: dict[str, Call] = {}
        self.waiting: dict[str, list[Call]] = {}

    @property
    def filled(self) -> bool:
        return len(self.taken) == len(self._names)

    def missing(self) -> set[str]:
        return set(self._names.difference(self.taken))

    def matches(self, name: str, address: str) -> bool:
        """Whether ``address`` is one that ``name`` is known to have."""
        return address in self._addresses.get(name, ())

    def claim(self, call: Call, proved: bool = False) -> list[Change]:
        """``call`` wants its seat; ``proved`` says that it knows the shared secret."""
        holder = self.taken.get(call.name)
        if proved or self._check == "off" or self.matches(call.name, call.address):
            return self._seat_matching(call, holder)
        if holder is not None and (call.name in self._matched or holder.address != call.address):
            return [Turned(call, f"the seat of {call.name} is taken by a host at {holder.address}")]
        if holder is not None:
            return [Turned(holder, _LATER), self._take(call)]
        waiting = self.waiting.setdefault(call.name, [])
        changes: list[Change] = [Turned(old, _LATER) for old in waiting if old.address == call.address]
        waiting[:] = [old for old in waiting if old.address != call.address]
        if len(waiting) >= _MOST_WAITING:
            return [*changes, Turned(call, f"too many hosts claim to be {call.name}")]
        waiting.append(call)
        return changes

    def resolved(self, name: str, addresses: tuple[str, ...]) -> list[Change]:
        """``name`` has these addresses now; a call that waits from one of them takes the seat."""
        self._addresses[name] = addresses
        for call in reversed(self.waiting.get(name, [])):
            if call.address in addresses:
                self.waiting[name].remove(call)
                return self._seat_matching(call, self.taken.get(name))
        return []

    def left(self, call: Call) -> None:
        """The connection of ``call`` ended."""
        if self.taken.get(call.name) is call:
            del self.taken[call.name]
            self._matched.discard(call.name)
        elif call in self.waiting.get(call.name, ()):
            self.waiting[call.name].remove(call)

    def tick(self, now: float) -> list[Change]:
        """Gives seats to mismatches whose wait is over."""
        changes: list[Change] = []
        if self._check != "warn":
            return changes
        for name in [name for name, calls in self.waiting.items() if calls]:
            first = self.waiting[name][0]
            if first.since + self._patience <= now:
                changes.append(self._take(first))
                changes += self._turn_waiting(name, first)
        return changes

    def oddity(self, call: Call) -> str:
        """What is odd about the address of ``call``."""
        known = self._addresses.get(call.name, ())
        expected = f"resolves to {', '.join(known)}" if known else "does not resolve"
        return f"{call.name} calls from {call.address}, but its name {expected} on this host"

    def _seat_matching(self, call: Call, holder: Call | None) -> list[Change]:
        changes: list[Change] = [Turned(holder, _LATER)] if holder is not None else []
        self.taken[call.name] = call
        self._matched.add(call.name)
        changes.append(Seated(call))
        return changes + self._turn_waiting(call.name, call)

    def _take(self, call: Call) -> Seated:
        self.taken[call.name] = call
        return Seated(call, self.oddity(call))

    def _turn_waiting(self, name: str, winner: Call) -> list[Change]:
        others = [call for call in self.waiting.pop(name, []) if call is not winner]
        return [Turned(call, f"the seat of {name} went to a host at {winner.address}") for call in others]


_LATER = "a later start of this host took its seat"
