"""Which hosts print nothing, and where their ranks are, as the leader collects it; no I/O.

When every host that still runs ranks is quiet, or a log rule's line is missing, all are asked to look at their ranks at
the same time.
"""

from __future__ import annotations

from typing import Iterable, NamedTuple, Union

from musterpoint.base.position import Position
from musterpoint.core.channel.peers import MissingLine, RuleReport
from musterpoint.core.channel.rule_states import RuleStates


class Look(NamedTuple):
    """Ask every host to look at its ranks. ``rule``: the log rule whose line is missing; empty: all hosts are quiet."""

    rule: str = ""


class Looked(NamedTuple):
    """All hosts have looked. ``positions`` are those of all ranks; None: a host has printed something meanwhile.

    ``missing``: the log rule's line that is still missing, if all looked because of it.
    """

    positions: tuple[Position, ...] | None
    missing: MissingLine | None = None


QuietDecision = Union[Look, Looked]


class QuietHosts:
    """``hosts``: those whose ranks are waited for."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._running = set(hosts)
        self._quiet: set[str] = set()
        self._found: dict[str, tuple[Position, ...] | None] | None = None
        self._rules = RuleStates(self._running)
        self._because = ""
        self._waiting: list[str] = []

    def quiet(self, host: str, on: bool) -> list[QuietDecision]:
        """``host`` has printed nothing for the stall timeout, or (``on`` is false) prints again."""
        if host in self._running:
            (self._quiet.add if on else self._quiet.discard)(host)
        return self._next()

    def looked(self, host: str, positions: tuple[Position, ...] | None) -> list[QuietDecision]:
        """``host`` answers a :class:`Look`; an answer to none is dropped."""
        if self._found is not None and host in self._running:
            self._found[host] = positions
        return self._next()

    def rule_state(self, host: str, report: RuleReport) -> list[QuietDecision]:
        """``host`` reports about the lines of a log rule.

        Raises:
            WireError: there can't be so many rules.
        """
        return self._missing(self._rules.report(host, report))

    def _missing(self, found: list[MissingLine]) -> list[QuietDecision]:
        self._waiting += [each.rule for each in found if each.rule not in self._waiting]
        return self._next()

    def left(self, host: str) -> list[QuietDecision]:
        """``host`` runs no ranks any more."""
        self._running.discard(host)
        self._quiet.discard(host)
        if self._found is not None:
            self._found.pop(host, None)
        return self._missing(self._rules.left(host))

    def _next(self) -> list[QuietDecision]:
        if self._found is None:
            return self._ask()
        if self._found.keys() < self._running:
            return []
        found, self._found = list(self._found.values()), None
        self._quiet.clear()
        rule, self._because = self._because, ""
        if not found:
            return []
        positions = None if None in found else tuple(one for each in found for one in each or ())
        return [Looked(positions, self._rules.missing(rule) if rule else None), *self._ask()]

    def _ask(self) -> list[QuietDecision]:
        """Asks for a look, if there is a reason for one."""
        while self._waiting and self._running:
            rule = self._waiting.pop(0)
            if self._rules.missing(rule) is not None:
                self._because, self._found = rule, {}
                return [Look(rule)]
        if not self._running or self._quiet < self._running:
            return []
        self._found = {}
        return [Look()]
