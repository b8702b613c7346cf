"""Watches the ranks' output by the job's log rules (``--log-rules``).

A program of ours searches it, since a pattern may take for ever. A rule about time is the leader's to judge, who knows
what the ranks of all hosts print (:mod:`musterpoint.core.supervise.watchers.stalls`); a line that is a fault ends the
job from here.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from musterpoint.base import exit_codes
from musterpoint.base.failure import ERROR_SHARE, Failure, Kind, fit
from musterpoint.base.untrusted import clip, printable
from musterpoint.core.channel.peers import LONGEST_LINE, RuleReport
from musterpoint.core.channel.topics import quiet_hosts
from musterpoint.core.diagnosis import classify
from musterpoint.core.job.log_rules import LogRule, to_json
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.sidecars import Sidecar
from musterpoint.core.supervise.events import Broken
from musterpoint.core.supervise.watcher import Watched, Watcher
from musterpoint.embedded.programs.registry import Texts


class LogWatch(Watcher):
    """This host's part. A fault ends the job, through ``watched.emit``, where a stall would. Make it before the pump is
    started.
    """

    def __init__(self, watched: Watched) -> None:
        context, processes = watched.context, watched.processes
        self._context, self._peers, self._processes = context, watched.peers, processes
        self._rules, self._ends = tuple(watched.rules.log_rules), watched.rules.stall_ends
        self._emit = watched.emit
        self._texts = Texts()
        self._closed = self._said_gap = False
        self._complaint = ""
        held = self._texts.hold("log_rules", to_json(self._rules))
        argv = (sys.executable, "-I", "-S", self._texts.path("log_matcher"), held)
        environ = processes.sessions[0].environ if processes.sessions else {}
        self._sidecar: Sidecar | None = None
        try:
            self._sidecar = context.sidecars.start(argv, environ, self._line, self._ended)
            context.pump.copy_to(self._sidecar.input())
        except (CannotStart, OSError) as error:
            context.say(f"warning: the log rules are off: the program that searches the output can't run: {error}")

    def _line(self, line: str) -> None:
        """A finding of the program's, or its complaint."""
        if not line.startswith("{"):
            self._complaint = line
            return
        found = json.loads(line)
        if not self._closed and not self._processes.is_ending:
            self._found(found["kind"], found)

    def _ended(self, code: int) -> None:
        if not self._closed and not self._processes.is_ending and code:
            said = self._context.mask(f": {self._complaint}" if self._complaint else "")
            self._context.say(f"warning: the log rules are off: what searches the output has ended with {code}{said}")

    def _found(self, kind: str, found: dict[str, Any]) -> None:
        if kind == "gap":
            if not self._said_gap:
                self._said_gap = True
                self._context.say("warning: log rules: more is printed than can be searched; some lines are left out")
            return
        rule, rank = self._rules[found["rule"]], found["rank"]
        if kind == "slow":
            self._context.say(
                f"warning: log rule {rule.name} is off: its pattern {rule.pattern!r} takes too long on what is printed"
            )
            kind = "off"
        if kind in ("fault", "metric"):
            self._fault(rule, rank, found["line"], found.get("value", ""))
            return
        awaited = self._processes.awaited_ranks
        ranks: tuple[int, ...] = () if rank is None else (rank,)
        if kind == "late" and rule.ranks != "any":
            ranks = tuple(one for one in sorted(awaited) if one not in found["came"] and _is_of(one, rule))
            if not ranks:
                return
        if kind in ("late", "overdue") and not (awaited.intersection(ranks) if ranks else awaited):
            return  # who should have printed it has ended
        self._context.record("log-rule", rule=rule.name, state=kind, rank=rank)
        line = printable(self._context.mask(found["line"]), LONGEST_LINE)
        self._peers.topic(quiet_hosts.TOPIC).rule_state(RuleReport(rule.name, kind, ranks, line))  # type: ignore[arg-type]

    def _fault(self, rule: LogRule, rank: int, line: str, value: str) -> None:
        """A line that is a fault, by what it says or by its number."""
        mask = self._context.mask
        line = clip(printable(mask(line.strip()), ERROR_SHARE), ERROR_SHARE)
        what = "printed"
        if value:
            often = f", {rule.points} times in a row" if rule.points > 1 else ""
            bad = f", {rule.bound}" if value.strip().lower().lstrip("+-") != "nan" else ""
            what = f"printed {value}{bad}{often}"
        lead = f"log rule {rule.name}: rank {rank} {what}: {line}"
        self._context.record("log-rule", rule=rule.name, state="fault", rank=rank)
        if not self._ends:
            self._context.say(f"{lead}; the job goes on (--on-stall dump)")
            return
        host, local = self._context.host, self._processes.local_rank(rank)
        who = f"rank {rank}{f' (local rank {local})' if local is not None else ''} on {host}"
        reason = fit([f"muster: {lead}", f"{who}, exit code {exit_codes.LOG_RULE}"], last_first=True)
        kind = classify.kind_of(line, 1)
        kinds: Kind = kind if kind in ("oom", "peer") else "infra"
        at = self._context.diagnosis.now()
        self._emit(Broken(Failure(host, exit_codes.LOG_RULE, "muster", kinds, reason, rank, local, at=at)))

    def close(self) -> None:
        self._closed = True
        if self._sidecar is not None:
            self._sidecar.dismiss()
        self._texts.close()


def _is_of(rank: int, rule: LogRule) -> bool:
    return rule.ranks == "all" or rank in rule.ranks


def watch(watched: Watched, _session: int) -> LogWatch:
    """Watches the output of this host's ranks."""
    return LogWatch(watched)
