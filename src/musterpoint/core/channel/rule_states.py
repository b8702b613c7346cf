"""Which log rules' lines are missing, over all hosts, as the leader collects it; no I/O.

A line that any rank may print is missing when no host has it in time. A line that each rank must print is missing when
one rank's is.
"""

from __future__ import annotations

from typing import Iterable

from musterpoint.core.channel.fields import WireError
from musterpoint.core.channel.peers import MissingLine, RuleReport

MOST_RULES = 256
"""Rules that hosts may report about; a host that reports more is wrong."""


class RuleStates:
    """``hosts``: those whose ranks are watched."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._running = set(hosts)
        self._of_hosts: dict[str, dict[str, RuleReport]] = {}
        self._of_ranks: dict[str, dict[tuple[str, int], RuleReport]] = {}
        self._told: set[str] = set()

    def report(self, host: str, report: RuleReport) -> list[MissingLine]:
        """``host`` reports; returns what is missing since. A report of a host that isn't watched is dropped.

        Raises:
            WireError: there can't be so many rules.
        """
        if host not in self._running:
            return []
        if len(self._of_hosts.keys() | self._of_ranks.keys() | {report.rule}) > MOST_RULES:
            raise WireError(f"more than {MOST_RULES} log rules")
        if report.ranks:
            found = self._of_ranks.setdefault(report.rule, {})
            for rank in report.ranks:
                found[host, rank] = report
        else:
            self._of_hosts.setdefault(report.rule, {})[host] = report
        return self._new([report.rule])

    def left(self, host: str) -> list[MissingLine]:
        """``host`` runs no ranks any more."""
        self._running.discard(host)
        return self._new([*self._of_hosts, *self._of_ranks])

    def missing(self, rule: str) -> MissingLine | None:
        """What is missing now for a rule; None: nothing, or not any more."""
        ranks = self._of_ranks.get(rule, {})
        bad = {key: each for key, each in ranks.items() if key[0] in self._running and each.is_missing}
        if bad:
            first = next(iter(bad.values()))
            return MissingLine(rule, first.state, tuple(sorted(rank for _host, rank in bad)), first.line)
        hosts = self._of_hosts.get(rule, {})
        if any(each.state == "off" for each in hosts.values()):
            return None
        running = {host: each for host, each in hosts.items() if host in self._running}
        if any(each.state == "fresh" for each in running.values()):
            return None
        overdue = [each for each in running.values() if each.state == "overdue"]
        if overdue:
            return MissingLine(rule, "overdue", (), overdue[-1].line)
        never = all(each.state == "late" for each in hosts.values())
        return MissingLine(rule, "late") if never and running and running.keys() == self._running else None

    def _new(self, rules: Iterable[str]) -> list[MissingLine]:
        found = []
        for rule in rules:
            missing = self.missing(rule)
            if missing is None:
                self._told.discard(rule)
            elif rule not in self._told:
                self._told.add(rule)
                found.append(missing)
        return found
