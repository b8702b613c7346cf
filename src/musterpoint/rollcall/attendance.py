"""What the leader can say of each host at any moment: for the progress lines, and for the table at the end."""

from __future__ import annotations

from collections import Counter

from musterpoint.rollcall.dial import is_loopback
from musterpoint.rollcall.hello import Hello
from musterpoint.rollcall.names import Answer, Names
from musterpoint.rollcall.own_name import UNANSWERED, oddities
from musterpoint.rollcall.progress import Row, sentence, table
from musterpoint.rollcall.seats import Seats

_MOST_NOTES = 8
_ENOUGH_VOTES = 64


class Attendance:
    """``refused`` is each refused host's reason and address, ``left`` how the connection ended of each that was here;
    ``own`` is what this host's own name resolves to.

    ``callers``, where a method takes them, are the addresses of those who have not said who they are.
    """

    def __init__(self, hosts: tuple[str, ...], me: str, names: Names, seats: Seats, checked: bool) -> None:
        self.refused: dict[str, tuple[str, str]] = {}
        self.left: dict[str, str] = {}
        self.own = UNANSWERED
        self._hosts = hosts
        self._me = me
        self._names = names
        self._seats = seats
        self._checked = checked
        self._notes: dict[str, None] = {}
        self._dialled: Counter[str] = Counter()

    def note(self, text: str) -> None:
        """Something odd, told once; there is room for a few."""
        if len(self._notes) < _MOST_NOTES:
            self._notes[text] = None

    def hear(self, hello: Hello) -> None:
        """Compares how a host sees this one with how it sees itself."""
        if hello.dialled and sum(self._dialled.values()) < _ENOUGH_VOTES:
            self._dialled[hello.dialled] += 1
        own = {address for address in self.own.addresses if not is_loopback(address)}
        seen = {address for address in hello.sees if not is_loopback(address)}
        if own and seen and not own & seen:
            self.note(
                f"warning: {self._me} resolves to {', '.join(sorted(seen))} on {hello.host}, "
                f"but to {', '.join(sorted(own))} on itself"
            )

    def address(self) -> str:
        """Where the others reach this host: what most of them dialled, since that worked."""
        if self._dialled:
            return self._dialled.most_common(1)[0][0]
        return self.own.addresses[0] if self.own.addresses else "127.0.0.1"

    def sentence(self, callers: list[str]) -> str:
        return sentence(len(self._hosts), self.rows(callers))

    def table(self, headline: str, callers: list[str]) -> str:
        return table(headline, len(self._hosts), self.rows(callers), self.remarks(over=True))

    def remarks(self, over: bool = False) -> list[str]:
        """What is odd without keeping anybody from being here; ``over``: the deadline is."""
        return [*oddities(self._me, self.own, over), *self._notes]

    def rows(self, callers: list[str]) -> list[Row]:
        """One for each host that has no seat, in rank order."""
        missing = self._seats.missing()
        return [self._row(host, callers) for host in self._hosts if host in missing]

    def _row(self, host: str, callers: list[str]) -> Row:
        refused = self.refused.get(host)
        if refused is not None:
            return Row(host, "hello", f"refused: {refused[0]}", refused[1])
        waiting = self._seats.waiting.get(host)
        if waiting:
            return Row(host, "hello", self._seats.oddity(waiting[0]), waiting[0].address)
        known = self._names.known(host) if self._checked else Answer()
        if self._checked and not known.addresses:
            return Row(host, "name", known.trouble)
        address = ", ".join(known.addresses)
        if not set(known.addresses).isdisjoint(callers):
            return Row(host, "hello", "connected, but has not said who it is", address)
        was_here = f"was here, then {self.left[host]}" if host in self.left else ""
        return Row(host, "connect", was_here or "has not called yet", address)
