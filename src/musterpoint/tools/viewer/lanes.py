"""A history → lanes: for each host its phases and ranks as spans of time, and the moments that matter as marks."""

from __future__ import annotations

import math
from typing import Any, Iterable, Literal, Mapping, NamedTuple, Sequence

from musterpoint.core.job.host_order import natural
from musterpoint.tools.viewer.events import Kind, Moment, meaning_of, numbered, sentence
from musterpoint.tools.viewer.faults import Fault
from musterpoint.tools.viewer.history import History

Phase = Literal["before", "prepare", "code", "install", "rollcall", "start", "quiet", "run", "end", "upload", "silence"]
"""What a span of time was spent on. ``before``: the platform was making the host. ``quiet``: a rank that hadn't written
yet. ``silence``: nobody wrote.
"""
FIRST = " (failed first)"
"""Behind the event of an attempt's first failure."""
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


class Mark(NamedTuple):
    """Something that happened ``at`` a moment, in seconds. ``main``: it is shown even where not every event is."""

    at: float
    kind: Kind
    text: str
    main: bool


class Run(NamedTuple):
    """One life of a process. ``ended``: how it ended; empty: it didn't say. ``failed``: by itself, and not well.
    ``first``: its failure is the one that ended the attempt.
    """

    attempt: int
    spans: tuple[Span, ...]
    ended: str = ""
    failed: bool = False
    first: bool = False


class Row(NamedTuple):
    """One process of a host, a rank, a launcher or a service, with its runs in all attempts."""

    name: str
    runs: tuple[Run, ...]

    @property
    def is_rank(self) -> bool:
        return self.name.startswith("rank ")

    def of(self, attempt: int) -> Run | None:
        """Its first run in ``attempt``."""
        return next((run for run in self.runs if run.attempt == attempt), None)


class Lane(NamedTuple):
    """One host.

    ``spans``: its phases. ``rows``: its processes. ``code``: its exit code (None: it didn't say). ``codes``: of each of
    its attempts. ``faults``: the attempts that ended by what failed here.
    """

    host: str
    spans: tuple[Span, ...]
    rows: tuple[Row, ...]
    marks: tuple[Mark, ...]
    code: int | None
    codes: Mapping[int, int]
    faults: tuple[int, ...]

    def of(self, phase: Phase, attempt: int = 0) -> Span | None:
        """The first span of ``phase``, in ``attempt`` if that is given."""
        return next((span for span in self.spans if span.phase == phase and attempt in (0, span.attempt)), None)

    def runs(self, attempt: int) -> tuple[Run, ...]:
        """What ran here in ``attempt``: its ranks; its other processes where it had no rank."""
        ranks = [run for row in self.rows if row.is_rank for run in row.runs if run.attempt == attempt]
        return tuple(ranks or (run for row in self.rows for run in row.runs if run.attempt == attempt))


def lanes_of(history: History) -> tuple[Lane, ...]:
    """A lane for each host, in rank order."""
    moments: dict[str, list[Moment]] = {host: [] for host in history.hosts}
    ends: dict[str, Moment] = {}
    for moment in history.moments:
        if moment.host in moments:
            moments[moment.host].append(moment)
        elif moment.event == "host-ended" and isinstance(moment.facts.get("of"), str):
            ends[moment.facts["of"]] = moment
    return tuple(_lane(history, host, moments[host], ends.get(host)) for host in history.hosts)


def _lane(history: History, host: str, moments: Sequence[Moment], end: Moment | None) -> Lane:
    last = max(moments[-1].at if moments else 0.0, end.at if end else 0.0)
    here = [fault for fault in history.faults if fault.host == host]
    runs = _runs(moments, last, here)
    codes = {
        moment.attempt: moment.facts["code"]
        for moment in moments
        if moment.event in ("job-ended", "attempt-over") and isinstance(moment.facts.get("code"), int)
    }
    known = [codes.get(history.attempts), end.facts.get("code") if end is not None else None]
    code = next((each for each in reversed(known) if isinstance(each, int)), None)
    marks = (_mark(each, history.failed_first(each)) for each in moments)
    spans = [*_opening(moments, last)]
    begins = {moment.attempt: moment.at for moment in reversed(moments) if moment.event == "restart"}
    attempts = sorted({moment.attempt for moment in moments})
    for attempt, following in zip(attempts, [*attempts[1:], None]):
        over = last if following is None else begins.get(following, last)
        spans += _attempt(
            [moment for moment in moments if moment.attempt == attempt], runs, attempt, history.attempts, over
        )
    spans += [span for moment in moments if (span := _measured(moment)) is not None]
    return Lane(
        host,
        tuple(span for span in spans if span.seconds >= 0),
        _rows(runs),
        tuple(marks),
        code,
        codes,
        tuple(fault.attempt for fault in here),
    )


def _mark(moment: Moment, first: bool) -> Mark:
    kind, _, main = meaning_of(moment.event)
    return Mark(moment.at, "failure" if first else kind, moment.text + (FIRST if first else ""), main)


def _first_of(moments: Iterable[Moment]) -> dict[str, float]:
    """When each event came first."""
    found: dict[str, float] = {}
    for moment in moments:
        found.setdefault(moment.event, moment.at)
    return found


def _opening(moments: Sequence[Moment], last: float) -> Iterable[Span]:
    """What a host did once, before its first rank."""
    at = _first_of(moments)
    met = at.get("rollcall-done", at.get("rollcall-failed", last))
    ready = at.get("host-prepared", at.get("rollcall-started", last))
    if "entry-point-started" in at:
        yield Span(0.0, at["entry-point-started"], "before", "until its entry point started")
        yield Span(at["entry-point-started"], ready, "prepare", "made ready")
    if "rollcall-started" in at:
        yield Span(ready, min(met, last), "rollcall", "roll call")


def _attempt(
    moments: Sequence[Moment], runs: Sequence[tuple[str, Run]], attempt: int, attempts: int, over: float
) -> Iterable[Span]:
    """What a host did in one attempt. ``over``: when the next one began there, or its last moment."""
    at = _first_of(moments)
    here = [(name, run) for name, run in runs if run.attempt == attempt]
    alone = at.get("host-prepared", over) if "rollcall-started" not in at else over
    met = at.get("restart", at.get("rollcall-done", at.get("rollcall-failed", alone)))
    ranks = [run for name, run in here if _is_rank(name)] or [run for _, run in here]
    started = min((run.spans[0].begin for run in ranks), default=over)
    ending = min(
        (at[event] for event in ENDINGS if event in at), default=max((r.spans[-1].end for _, r in here), default=over)
    )
    ending = max(ending, min(met, over))
    which = f" ({numbered(attempt, attempts)})" if attempts > 1 else ""
    if "rollcall-done" in at or "restart" in at or (met < over and here):
        yield Span(met, min(started, ending), "start", _starting(here) + which, attempt)
    if here and ending > started:
        yield Span(started, ending, "run", "ran" + which, attempt)
    if over > ending and (here or "rollcall-done" in at or "rollcall-failed" in at):
        text = "ended its processes and reported" if attempt == attempts else "ended its processes, and waited"
        yield Span(ending, over, "end", text + which, attempt)


def _is_rank(name: str) -> bool:
    return name.startswith("rank ")


def _starting(runs: Sequence[tuple[str, Run]]) -> str:
    launchers = ", ".join(dict.fromkeys(name for name, _ in runs if not _is_rank(name)))
    if launchers and any(_is_rank(name) for name, _ in runs):
        return f"planned, and started its ranks by way of {launchers}"
    return "planned and started its processes"


def _measured(moment: Moment) -> Span | None:
    """The span of an event that says itself how long something took."""
    seconds = moment.facts.get("seconds")
    if not isinstance(seconds, (int, float)):
        return None
    if moment.event == "code-fetched":
        return Span(moment.at - seconds, moment.at, "code", moment.text, moment.attempt)
    if moment.event == "installed":
        return Span(moment.at - seconds, moment.at, "install", moment.text, moment.attempt)
    if moment.event == "outputs-synced":
        return Span(moment.at - seconds, moment.at, "upload", moment.text, moment.attempt)
    since = moment.facts.get("since")
    if moment.event == "longest-silence" and isinstance(since, (int, float)):
        return Span(since, since + seconds, "silence", moment.text, moment.attempt)
    return None


def _runs(moments: Sequence[Moment], last: float, faults: Sequence[Fault]) -> list[tuple[str, Run]]:
    """The runs of the host's processes with their names, in the order of their start. A rank that was started twice in
    an attempt (a stub, then its program) is one run, unless each start has an end of its own.

    A launcher or service that ends after a failure, or a stop, was ended by it. A rank that had raised has failed,
    also where it was signalled on its way out.
    """
    first = {(fault.attempt, f"rank {fault.rank}") for fault in faults if fault.rank is not None}
    raised = {(each.attempt, f"rank {each.facts.get('rank')}") for each in moments if each.event == "rank-raised"}
    over = {each.attempt: each.at for each in reversed(moments) if each.event in ENDINGS}
    open_: dict[str, Moment] = {}
    runs: list[tuple[str, Run]] = []

    def end(name: str, at: float, facts: Mapping[str, Any]) -> None:
        begun = open_.pop(name)
        own = (begun.attempt, name)
        status = facts.get("status")
        failed = status != 0 and (not facts.get("signalled") or (isinstance(status, int) and 0 < status < _SIGNALS))
        if not _is_rank(name):
            failed = failed and at < over.get(begun.attempt, math.inf)
        runs.append((name, _run(name, begun, at, facts, failed or own in raised, own in first)))

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
    return sorted(runs, key=lambda each: each[1].spans[0].begin)


def _rows(runs: Sequence[tuple[str, Run]]) -> tuple[Row, ...]:
    """A row for each process: launchers and services in the order of their start, then ranks by their numbers."""
    rows: dict[str, list[Run]] = {}
    for name, run in runs:
        rows.setdefault(name, []).append(run)
    ranks = [*filter(_is_rank, rows)]
    return tuple(
        Row(name, tuple(rows[name])) for name in (*(each for each in rows if each not in ranks), *natural(ranks))
    )


def _run(name: str, begun: Moment, end: float, facts: Mapping[str, Any], failed: bool, first: bool) -> Run:
    begin, attempt = begun.at, begun.attempt
    spans: tuple[Span, ...]
    wrote = facts.get("first_output")
    if isinstance(wrote, (int, float)) and begin <= wrote <= end:
        spans = (
            Span(begin, wrote, "quiet", "until its first output", attempt),
            Span(wrote, end, "run", "ran", attempt),
        )
    elif "first_output" in facts:
        spans = (Span(begin, end, "quiet", "ran without any output", attempt),)
    else:
        spans = (Span(begin, end, "run", "ran", attempt),)
    if "status" not in facts:
        return Run(attempt, spans, first=first)
    ended = sentence("service-ended", {"name": name, "status": facts["status"]}).removeprefix(f"{name} ended with ")
    return Run(attempt, spans, ended + (", out of memory" if facts.get("oom") else ""), failed, first)
