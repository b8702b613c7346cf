"""Moments → lanes: for each host its phases and its processes as spans of time."""

from __future__ import annotations

import math
from typing import Any, Iterable, Literal, Mapping, NamedTuple, Sequence

from musterpoint.core.job.host_order import natural
from musterpoint.tools.viewer.events import Moment, numbered, sentence
from musterpoint.tools.viewer.faults import Fault

Phase = Literal["before", "prepare", "code", "install", "rollcall", "start", "quiet", "run", "end", "upload", "silence"]
"""A use of time; ``before``: the platform was making the host; ``quiet``: a rank hadn't written yet."""
_SIGNALS = 128
"""From this exit code on a shell, or a program's handler, tells of a signal."""
ENDINGS = ("failure-seen", "job-failed", "stop-asked", "job-stopped", "rollcall-failed")


class Span(NamedTuple):
    """``begin`` and ``end`` in seconds since the job began. ``attempt``: of the job, from 1."""

    begin: float
    end: float
    phase: Phase
    text: str
    attempt: int = 1

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class Run(NamedTuple):
    """One life of the process ``name``. ``ended``: how it ended; empty: it didn't say. ``failed``: by itself, and not
    well. ``first``: its failure is the one that ended the attempt.
    """

    name: str
    attempt: int
    spans: tuple[Span, ...]
    ended: str = ""
    failed: bool = False
    first: bool = False

    @property
    def is_rank(self) -> bool:
        return self.name.startswith("rank ")


class Lane(NamedTuple):
    """One host.

    ``spans``: its phases. ``runs``: its processes, launchers and services before ranks, each with its attempts.
    ``code``: its exit code (None: it didn't say). ``codes``: of each attempt. ``faults``: the attempts that were ended
    by a failure here.
    """

    host: str
    spans: tuple[Span, ...]
    runs: tuple[Run, ...]
    code: int | None
    codes: Mapping[int, int]
    faults: tuple[int, ...]

    def of(self, phase: Phase, attempt: int = 0) -> Span | None:
        """The first span of ``phase``, in ``attempt`` if that is given."""
        return next((span for span in self.spans if span.phase == phase and attempt in (0, span.attempt)), None)

    def ran(self, attempt: int) -> list[Run]:
        """What ran here in ``attempt``: its ranks; its other processes where it had no rank."""
        return _ranks([run for run in self.runs if run.attempt == attempt])


def _ranks(runs: list[Run]) -> list[Run]:
    return [run for run in runs if run.is_rank] or runs


def lanes_of(hosts: Sequence[str], moments: Sequence[Moment], faults: Sequence[Fault]) -> tuple[Lane, ...]:
    """Makes a lane for each of the ``hosts``."""
    ends = {str(each.facts.get("of")): each for each in moments if each.event == "host-ended"}
    attempts = max((moment.attempt for moment in moments), default=1)
    by_host: dict[str, list[Moment]] = {host: [] for host in hosts}
    for moment in moments:
        by_host.get(moment.host, []).append(moment)
    return tuple(_lane(host, by_host[host], ends.get(host), faults, attempts) for host in hosts)


def _lane(host: str, moments: Sequence[Moment], end: Moment | None, faults: Sequence[Fault], attempts: int) -> Lane:
    faults = [fault for fault in faults if fault.host == host]
    last = max(moments[-1].at if moments else 0.0, end.at if end else 0.0)
    runs = _runs(moments, last, faults)
    codes = {
        moment.attempt: moment.facts["code"]
        for moment in moments
        if moment.event in ("job-ended", "attempt-over") and isinstance(moment.facts.get("code"), int)
    }
    told = end.facts.get("code") if end is not None else None
    spans = [*_opening(moments, last)]
    begins = {moment.attempt: moment.at for moment in reversed(moments) if moment.event == "restart"}
    own = sorted({moment.attempt for moment in moments})
    for attempt, following in zip(own, [*own[1:], None]):
        over = last if following is None else begins.get(following, last)
        here = [moment for moment in moments if moment.attempt == attempt]
        spans += _attempt(here, [run for run in runs if run.attempt == attempt], attempt, attempts, over)
    spans += filter(None, map(_measured, moments))
    return Lane(
        host,
        tuple(span for span in spans if span.seconds >= 0),
        tuple(runs),
        told if isinstance(told, int) else codes.get(attempts),
        codes,
        tuple(fault.attempt for fault in faults),
    )


def _opening(moments: Sequence[Moment], last: float) -> Iterable[Span]:
    """What a host did once, before its first rank."""
    at = {moment.event: moment.at for moment in reversed(moments)}
    met = at.get("rollcall-done", at.get("rollcall-failed", last))
    ready = at.get("host-prepared", at.get("rollcall-started", last))
    if "entry-point-started" in at:
        yield Span(0.0, at["entry-point-started"], "before", "until its entry point started")
        yield Span(at["entry-point-started"], ready, "prepare", "made ready")
    if "rollcall-started" in at:
        yield Span(ready, min(met, last), "rollcall", "roll call")


def _attempt(moments: Sequence[Moment], runs: list[Run], attempt: int, attempts: int, over: float) -> Iterable[Span]:
    """What a host did in an attempt, with the ``runs`` there. ``over``: when the next one began, or its last moment."""
    at = {moment.event: moment.at for moment in reversed(moments)}
    alone = at.get("host-prepared", over) if "rollcall-started" not in at else over
    met = at.get("restart", at.get("rollcall-done", at.get("rollcall-failed", alone)))
    started = min((run.spans[0].begin for run in _ranks(runs)), default=over)
    ended = max((run.spans[-1].end for run in runs), default=over)
    ending = max(min((at[event] for event in ENDINGS if event in at), default=ended), min(met, over))
    which = f" ({numbered(attempt, attempts)})" if attempts > 1 else ""
    if "rollcall-done" in at or "restart" in at or (met < over and runs):
        launchers = ", ".join(dict.fromkeys(run.name for run in runs if not run.is_rank))
        by_them = launchers and any(run.is_rank for run in runs)
        text = f", and started its ranks by way of {launchers}" if by_them else " and started its processes"
        yield Span(met, min(started, ending), "start", f"planned{text}{which}", attempt)
    if runs and ending > started:
        yield Span(started, ending, "run", "ran" + which, attempt)
    if over > ending and (runs or "rollcall-done" in at or "rollcall-failed" in at):
        text = "ended its processes and reported" if attempt == attempts else "ended its processes, and waited"
        yield Span(ending, over, "end", text + which, attempt)


_MEASURED: Mapping[str, Phase] = {"code-fetched": "code", "installed": "install", "outputs-synced": "upload"}


def _measured(moment: Moment) -> Span | None:
    """The span of an event that says itself how long something took."""
    seconds, since = moment.facts.get("seconds"), moment.facts.get("since")
    if not isinstance(seconds, (int, float)):
        return None
    if moment.event in _MEASURED:
        return Span(moment.at - seconds, moment.at, _MEASURED[moment.event], moment.text, moment.attempt)
    if moment.event == "longest-silence" and isinstance(since, (int, float)):
        return Span(since, since + seconds, "silence", moment.text, moment.attempt)
    return None


def _runs(moments: Sequence[Moment], last: float, faults: Sequence[Fault]) -> list[Run]:
    """The runs of a host's processes: launchers and services in the order of their start, then ranks by their numbers.

    A rank that was started twice in an attempt (a stub, then its program) is one run, unless each start has an end.
    A launcher or service that ends after a failure, or a stop, was ended by it. A rank that had raised has failed,
    also where it was signalled on its way out.
    """
    first = {(fault.attempt, f"rank {fault.rank}") for fault in faults if fault.rank is not None}
    raised = {(each.attempt, f"rank {each.facts.get('rank')}") for each in moments if each.event == "rank-raised"}
    over = {each.attempt: each.at for each in reversed(moments) if each.event in ENDINGS}
    open_: dict[str, Moment] = {}
    runs: list[Run] = []

    def end(name: str, at: float, facts: Mapping[str, Any]) -> None:
        begun = open_.pop(name)
        own = (begun.attempt, name)
        status = facts.get("status")
        failed = status != 0 and (not facts.get("signalled") or (isinstance(status, int) and 0 < status < _SIGNALS))
        run = _run(name, begun, at, facts, failed or own in raised, own in first)
        by_itself = run.is_rank or at < over.get(begun.attempt, math.inf)
        runs.append(run._replace(failed=run.failed and by_itself))

    for moment in moments:
        role, _, what = moment.event.partition("-")
        if role not in ("rank", "launcher", "service") or what not in ("started", "ended"):
            continue
        name = f"rank {moment.facts.get('rank')}" if role == "rank" else str(moment.facts.get("name"))
        if what == "started":
            if name in open_ and open_[name].attempt != moment.attempt:  # nobody saw how it ended
                end(name, moment.at, {})
            open_.setdefault(name, moment)
        elif name in open_:
            end(name, moment.at, moment.facts)
    for name in [*open_]:
        end(name, last, {})
    runs.sort(key=lambda run: run.spans[0].begin)
    others = dict.fromkeys(run.name for run in runs if not run.is_rank)
    names = [*others, *natural({run.name for run in runs if run.is_rank})]
    return sorted(runs, key=lambda run: names.index(run.name))


def _run(name: str, begun: Moment, end: float, facts: Mapping[str, Any], failed: bool, first: bool) -> Run:
    begin, attempt, wrote = begun.at, begun.attempt, facts.get("first_output")
    spans = [Span(begin, end, "run", "ran", attempt)]
    if isinstance(wrote, (int, float)) and begin <= wrote <= end:
        spans = [Span(begin, wrote, "quiet", "until its first output", attempt), spans[0]._replace(begin=wrote)]
    elif "first_output" in facts:
        spans = [Span(begin, end, "quiet", "ran without any output", attempt)]
    if "status" not in facts:
        return Run(name, attempt, tuple(spans), first=first)
    ended = sentence("service-ended", {"name": name, "status": facts["status"]}).removeprefix(f"{name} ended with ")
    return Run(name, attempt, tuple(spans), ended + (", out of memory" if facts.get("oom") else ""), failed, first)
