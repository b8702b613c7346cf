"""Which hosts are here, which aren't, and why: as one line while a host waits, as a table at the end."""

from __future__ import annotations

from collections import Counter
from typing import Callable, Literal, get_args

from musterpoint.base.loop import Timer
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.dial import is_local, is_loopback
from musterpoint.core.channel.link import Context
from musterpoint.core.channel.names import Answer, Names
from musterpoint.core.rollcall.admission import Seats
from musterpoint.core.rollcall.hello import Hello, Refusal

_MOST_NOTES = 8

Stage = Literal["name", "connect", "hello", "seated"]
"""How far a host is: its name is being looked up; it hasn't called; it is being identified; it is here."""
STAGES: tuple[Stage, ...] = get_args(Stage)

_MOST_GROUPS = 3
_MOST_NAMES = 4
_MOST_ROWS = 40


class HostRow(NamedTuple):
    """One host that isn't here. ``address``: where it is, as far as known."""

    host: str
    stage: Stage
    detail: str
    address: str = ""


def sentence(total: int, rows: list[HostRow]) -> str:
    """``998 of 1000 hosts here; waiting for algo-7 (…), algo-9 and algo-12 (…)``; same problems are grouped."""
    here = f"{total - len(rows)} of {total} hosts here"
    if not rows:
        return here
    groups: dict[str, list[str]] = {}
    for row in rows:
        groups.setdefault(row.detail, []).append(row.host)
    parts = [f"{_names(hosts)} ({detail})" for detail, hosts in list(groups.items())[:_MOST_GROUPS]]
    more = sum(len(hosts) for hosts in list(groups.values())[_MOST_GROUPS:])
    if more:
        parts.append(f"and {more} more")
    return f"{here}; waiting for {', '.join(parts)}"


def table(headline: str, total: int, rows: list[HostRow], notes: list[str]) -> str:
    """The headline, then a table of the missing hosts (host, stage, detail), then ``notes``."""
    shown = rows[:_MOST_ROWS]
    wide = max(len(host) for host in ("host", *(row.host for row in shown)))
    lines = [headline, f"{'host':{wide}}  {'stage':7}  detail"]
    for row in shown:
        where = f"{row.address}: " if row.address else ""
        lines.append(f"{row.host:{wide}}  {row.stage:7}  {where}{row.detail}")
    if len(rows) > _MOST_ROWS:
        rest = rows[_MOST_ROWS:]
        counts = [f"{sum(row.stage == stage for row in rest)} at {stage}" for stage in STAGES]
        lines.append(f"… and {len(rest)} more: " + ", ".join(text for text in counts if not text.startswith("0 ")))
    lines.append(f"{total - len(rows)} of {total} hosts are here")
    return "\n".join(lines + notes)


def _names(hosts: list[str]) -> str:
    if len(hosts) <= _MOST_NAMES:
        return ", ".join(hosts)
    return f"{', '.join(hosts[: _MOST_NAMES - 1])} and {len(hosts) - _MOST_NAMES + 1} more"


class ProgressPrinter:
    """Prints ``line()`` whenever it has changed, at most every ``progress`` seconds; first after ``retry_most``."""

    def __init__(self, context: Context, line: Callable[[], str]) -> None:
        self._loop = context.loop
        self._say = context.log.say
        self._pause = context.timeouts.progress
        self._line = line
        self._last = ""
        self._timer: Timer | None = self._loop.call_later(context.timeouts.retry_most, self._print)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _print(self) -> None:
        line = self._line()
        if line != self._last:
            self._say(line)
            self._last = line
        self._timer = self._loop.call_later(self._pause, self._print)


class Attendance:
    """What the leader knows about each host. ``refused``: by host, why it was refused and the caller's address.

    ``callers`` of methods are the addresses of callers that have sent no hello yet.
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
        """Keeps a remark for the table; only the first 8."""
        if len(self._notes) < _MOST_NOTES:
            self._notes[text] = None

    def own_resolved(self, answer: Answer) -> None:
        """This host's own name resolves to ``answer``."""
        self._own = answer

    def disconnected(self, host: str, why: str) -> None:
        """``host`` had its seat, then its connection ended."""
        self._left[host] = why

    def refuse(self, host: str, refusal: Refusal, address: str) -> bool:
        """Keeps why ``host`` was refused; returns whether that is new."""
        new = self.refused.get(host) != (refusal, address)
        self.refused[host] = (refusal, address)
        return new

    def seated(self, hello: Hello) -> None:
        """``hello``'s host has its seat: compares our addresses as it sees them with our own view."""
        self.refused.pop(hello.host, None)
        own = {address for address in self._own.addresses if not is_loopback(address)}
        seen = {address for address in hello.sees if not is_loopback(address)}
        if own and seen and not own & seen:
            self.note(
                f"warning: {self._me} resolves to {', '.join(sorted(seen))} on {hello.host}, "
                f"but to {', '.join(sorted(own))} on itself"
            )

    def address(self) -> str:
        """The address where others reach this host: the one that most seated hosts have dialled."""
        dialled = Counter(call.hello.dialled for call in self._seats.taken.values() if call.hello.dialled)
        if dialled:
            return dialled.most_common(1)[0][0]
        return self._own.addresses[0] if self._own.addresses else "127.0.0.1"

    def sentence(self, callers: list[str]) -> str:
        return sentence(len(self._hosts), self.rows(callers))

    def table(self, headline: str, callers: list[str]) -> str:
        return table(headline, len(self._hosts), self.rows(callers), self.remarks(over=True))

    def remarks(self, over: bool = False) -> list[str]:
        """Warnings that kept no host away; ``over``: the deadline has passed."""
        strangers = [
            f"{count} call{'s' if count > 1 else ''} refused, the last from {address}: the caller {claim}"
            for claim, (count, address) in self._strangers.items()
        ]
        return [*oddities(self._me, self._own, over), *self._notes, *strangers]

    def refused_stranger(self, claim: str, address: str) -> None:
        """A caller that is none of the hosts was refused; ``claim`` is one of a few fixed texts."""
        self._strangers[claim] = (self._strangers.get(claim, (0, ""))[0] + 1, address)

    def nobody_called(self, callers: list[str]) -> bool:
        """Whether no connection of any other host has ever come."""
        return not (
            callers or self._seats.taken or self._seats.waiting or self.refused or self._left or self._strangers
        )

    def is_sure(self, host: str, address: str) -> bool:
        """Whether a caller from ``address`` that claims to be ``host`` is believed without a proof."""
        return not self._checked or self._seats.matches(host, address)

    def rows(self, callers: list[str]) -> list[HostRow]:
        """One row for each host without a seat, in rank order."""
        missing, called = self._seats.missing(), frozenset(callers)
        return [self._row(host, called) for host in self._hosts if host in missing]

    def _row(self, host: str, callers: frozenset[str]) -> HostRow:
        refused = self.refused.get(host)
        if refused is not None:
            refusal, address = refused
            sure = refusal.reason and self.is_sure(host, address)
            claim = f"somebody there calls itself {host} and {refusal.claim}"
            return HostRow(host, "hello", f"refused: {refusal.reason if sure else claim}", address)
        waiting = self._seats.waiting.get(host)
        if waiting:
            return HostRow(host, "hello", self._seats.oddity(waiting[0]), waiting[0].address)
        known = self._names.last_answer(host) if self._checked else Answer()
        if self._checked and not known.addresses:
            return HostRow(host, "name", known.trouble)
        address = ", ".join(known.addresses)
        if not callers.isdisjoint(known.addresses):
            return HostRow(host, "hello", "connected, but has not said who it is", address)
        was_here = f"was here, then {self._left[host]}" if host in self._left else ""
        return HostRow(host, "connect", was_here or "has not called yet", address)


UNANSWERED = Answer((), "the name was not answered yet")
TO_OPEN = (
    "open it there for all hosts of the job (a security group, a network policy, a firewall), or give them all another "
    "with --rollcall-port"
)
"""What to do about a port of the leader that nobody reaches."""


def oddities(me: str, own: Answer, over: bool) -> list[str]:
    """Warnings about ``own``, the addresses of the name ``me``. No answer counts only if the deadline is ``over``."""
    if not own.addresses:
        return [] if own == UNANSWERED and not over else [f"warning: on {me} its own name: {own.trouble}"]
    if not any(map(is_local, own.addresses)):
        if own.addresses[0] == me:
            return [f"warning: {me}, where the others look for the leader, is none of this host's addresses"]
        return [f"warning: {me} resolves to {own.addresses[0]} here, which is none of its addresses"]
    return []
