"""What the leader knows of each host at any moment: for the progress lines, and for the table at the end."""

from __future__ import annotations

from collections import Counter

from musterpoint.channel.dial import is_local, is_loopback
from musterpoint.channel.names import Answer, Names
from musterpoint.rollcall.hello import Hello, Refusal
from musterpoint.rollcall.progress import Row, sentence, table
from musterpoint.rollcall.seats import Seats

_MOST_NOTES = 8


class Attendance:
    """``refused`` is what the leader has against each host and the address that was called from.

    ``callers``, where a method takes them, are the addresses of callers that have not said hello.
    """

    def __init__(self, hosts: tuple[str, ...], me: str, names: Names, seats: Seats, checked: bool) -> None:
        self.refused: dict[str, tuple[Refusal, str]] = {}
        self._strangers: dict[str, tuple[int, str]] = {}
        self._left: dict[str, str] = {}
        self._own = UNANSWERED
        self._hosts = hosts
        self._me = me
        self._names = names
        self._seats = seats
        self._checked = checked
        self._notes: dict[str, None] = {}

    def note(self, text: str) -> None:
        """Keeps a remark; of many only the first few."""
        if len(self._notes) < _MOST_NOTES:
            self._notes[text] = None

    def own_resolved(self, answer: Answer) -> None:
        """This host's own name resolves to ``answer``."""
        self._own = answer

    def disconnected(self, host: str, why: str) -> None:
        """``host`` was here, then its connection ended."""
        self._left[host] = why

    def refuse(self, host: str, refusal: Refusal, address: str) -> bool:
        """Keeps why ``host`` was refused; whether that is new."""
        new = self.refused.get(host) != (refusal, address)
        self.refused[host] = (refusal, address)
        return new

    def seated(self, hello: Hello) -> None:
        """A host has its seat: compares how it sees this one with how this one sees itself."""
        self.refused.pop(hello.host, None)
        own = {address for address in self._own.addresses if not is_loopback(address)}
        seen = {address for address in hello.sees if not is_loopback(address)}
        if own and seen and not own & seen:
            self.note(
                f"warning: {self._me} resolves to {', '.join(sorted(seen))} on {hello.host}, "
                f"but to {', '.join(sorted(own))} on itself"
            )

    def address(self) -> str:
        """Where the others reach this host: what most of those with a seat dialled, since that worked."""
        dialled = Counter(call.hello.dialled for call in self._seats.taken.values() if call.hello.dialled)
        if dialled:
            return dialled.most_common(1)[0][0]
        return self._own.addresses[0] if self._own.addresses else "127.0.0.1"

    def sentence(self, callers: list[str]) -> str:
        return sentence(len(self._hosts), self.rows(callers))

    def table(self, headline: str, callers: list[str]) -> str:
        return table(headline, len(self._hosts), self.rows(callers), self.remarks(over=True))

    def remarks(self, over: bool = False) -> list[str]:
        """What is odd but keeps no host away; ``over``: the deadline is."""
        strangers = [
            f"{count} call{'s' if count > 1 else ''} refused, the last from {address}: the caller {claim}"
            for claim, (count, address) in self._strangers.items()
        ]
        return [*oddities(self._me, self._own, over), *self._notes, *strangers]

    def refused_stranger(self, claim: str, address: str) -> None:
        """A caller that is none of the hosts was refused; ``claim`` is one of a few."""
        self._strangers[claim] = (self._strangers.get(claim, (0, ""))[0] + 1, address)

    def is_sure(self, host: str, address: str) -> bool:
        """Whether a caller from there that says it is ``host`` is taken for it without a proof."""
        return not self._checked or self._seats.matches(host, address)

    def rows(self, callers: list[str]) -> list[Row]:
        """One for each host that has no seat, in rank order."""
        missing = self._seats.missing()
        return [self._row(host, callers) for host in self._hosts if host in missing]

    def _row(self, host: str, callers: list[str]) -> Row:
        refused = self.refused.get(host)
        if refused is not None:
            refusal, address = refused
            sure = refusal.reason and self.is_sure(host, address)
            claim = f"somebody there calls itself {host} and {refusal.claim}"
            return Row(host, "hello", f"refused: {refusal.reason if sure else claim}", address)
        waiting = self._seats.waiting.get(host)
        if waiting:
            return Row(host, "hello", self._seats.oddity(waiting[0]), waiting[0].address)
        known = self._names.known(host) if self._checked else Answer()
        if self._checked and not known.addresses:
            return Row(host, "name", known.trouble)
        address = ", ".join(known.addresses)
        if not set(known.addresses).isdisjoint(callers):
            return Row(host, "hello", "connected, but has not said who it is", address)
        was_here = f"was here, then {self._left[host]}" if host in self._left else ""
        return Row(host, "connect", was_here or "has not called yet", address)


UNANSWERED = Answer((), "the name was not answered yet")


def oddities(me: str, own: Answer, over: bool) -> list[str]:
    """Warnings about ``own``, the addresses of the name ``me``. A resolver that takes longer than the others take to
    be here is none; once the deadline is ``over``, it is.
    """
    if not own.addresses:
        return [] if own == UNANSWERED and not over else [f"warning: on {me} its own name: {own.trouble}"]
    if not any(map(is_local, own.addresses)):
        return [f"warning: {me} resolves to {own.addresses[0]} here, which is none of its addresses"]
    return []
