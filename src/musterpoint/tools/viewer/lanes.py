"""A history → lanes: for each host its phases and ranks as spans of time, and the moments that matter as marks."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Sequence

from musterpoint.tools.viewer.events import Kind, meaning_of, sentence
from musterpoint.tools.viewer.history import History, Moment

Phase = Literal["prepare", "code", "install", "rollcall", "start", "quiet", "run", "end", "upload", "silence"]
"""What a span of time was spent on. ``quiet``: a rank that hadn't written yet. ``silence``: nobody wrote."""
ENDINGS = ("failure-seen", "job-failed", "stop-asked", "job-stopped", "rollcall-failed")


class Span(NamedTuple):
    """``begin`` and ``end`` in seconds since the job began."""

    begin: float
    end: float
    phase: Phase
    text: str

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class Mark(NamedTuple):
    at: float
    kind: Kind
    text: str


class Row(NamedTuple):
    """One process of a host: a rank, a launcher or a service. ``ended``: how it ended; empty: it didn't say."""

    name: str
    spans: tuple[Span, ...]
    ended: str = ""
    failed: bool = False


class Lane(NamedTuple):
    """One host. ``spans`` are its phases, ``rows`` its processes, ``code`` its exit code (None: it didn't say)."""

    host: str
    spans: tuple[Span, ...]
    rows: tuple[Row, ...]
    marks: tuple[Mark, ...]
    code: int | None

    def of(self, phase: Phase) -> Span | None:
        """The first span of ``phase``."""
        return next((span for span in self.spans if span.phase == phase), None)


def lanes_of(history: History) -> tuple[Lane, ...]:
    """A lane for each host, in rank order."""
    moments: dict[str, list[Moment]] = {host: [] for host in history.hosts}
    ends: dict[str, Moment] = {}
    for moment in history.moments:
        if moment.host in moments:
            moments[moment.host].append(moment)
        elif moment.event == "host-ended" and isinstance(moment.facts.get("of"), str):
            ends[moment.facts["of"]] = moment
    return tuple(_lane(host, moments[host], ends.get(host)) for host in history.hosts)


def _lane(host: str, moments: Sequence[Moment], end: Moment | None) -> Lane:
    last = max(moments[-1].at if moments else 0.0, end.at if end else 0.0)
    first: dict[str, Moment] = {}
    for moment in moments:
        first.setdefault(moment.event, moment)
    rows = _rows(moments, last)
    known = [moment.facts.get("code") for moment in (first.get("job-ended"), end) if moment is not None]
    code = next((each for each in reversed(known) if isinstance(each, int)), None)
    marks = tuple(
        Mark(moment.at, meaning_of(moment.event).kind, sentence(moment.event, moment.facts)) for moment in moments
    )
    return Lane(host, tuple(_phases(moments, first, rows, last)), rows, marks, code)


def _phases(moments: Sequence[Moment], first: dict[str, Moment], rows: Sequence[Row], last: float) -> list[Span]:
    at = {event: moment.at for event, moment in first.items()}
    called = at.get("rollcall-started", last)
    met = at.get("rollcall-done", at.get("rollcall-failed", last))
    started = first_start(rows, last)
    ending = min(
        (at[event] for event in ENDINGS if event in at), default=max((r.spans[-1].end for r in rows), default=last)
    )
    ending = max(ending, min(met, last))
    spans = []
    if "entry-point-started" in at:
        spans.append(Span(at["entry-point-started"], called, "prepare", "made ready"))
    if "rollcall-started" in at:
        spans.append(Span(called, min(met, last), "rollcall", "roll call"))
    if "rollcall-done" in at:
        spans.append(Span(met, min(started, ending), "start", _starting(rows)))
    if rows and ending > started:
        spans.append(Span(started, ending, "run", "ran"))
    if last > ending and ("rollcall-done" in at or "rollcall-failed" in at):
        spans.append(Span(ending, last, "end", "ended its processes and reported"))
    spans += [span for moment in moments if (span := _measured(moment)) is not None]
    return [span for span in spans if span.seconds >= 0]


def first_start(rows: Sequence[Row], otherwise: float) -> float:
    """When the first of a host's ranks started: a launcher such as torchrun may take seconds before. Of its processes
    where it has no rank, and ``otherwise`` where it has none at all.
    """
    ranks = [row for row in rows if is_rank(row)]
    return min((row.spans[0].begin for row in ranks or rows), default=otherwise)


def is_rank(row: Row) -> bool:
    """Whether the process is a rank."""
    return row.name.startswith("rank ")


def _starting(rows: Sequence[Row]) -> str:
    launchers = ", ".join(row.name for row in rows if not is_rank(row))
    if launchers and any(map(is_rank, rows)):
        return f"planned, and started its ranks by way of {launchers}"
    return "planned and started its processes"


def _measured(moment: Moment) -> Span | None:
    """The span of an event that says itself how long something took."""
    seconds = moment.facts.get("seconds")
    if not isinstance(seconds, (int, float)):
        return None
    text = sentence(moment.event, moment.facts)
    if moment.event == "code-fetched":
        return Span(moment.at - seconds, moment.at, "code", text)
    if moment.event == "installed":
        return Span(moment.at - seconds, moment.at, "install", text)
    if moment.event == "outputs-synced":
        return Span(moment.at - seconds, moment.at, "upload", text)
    since = moment.facts.get("since")
    if moment.event == "longest-silence" and isinstance(since, (int, float)):
        return Span(since, since + seconds, "silence", text)
    return None


def _rows(moments: Sequence[Moment], last: float) -> tuple[Row, ...]:
    """The host's processes in the order of their start; of a rank that was started twice (a stub, then its program,
    or another attempt) each start that has an end of its own.
    """
    open_: dict[str, tuple[float, Moment]] = {}
    rows: list[tuple[float, Row]] = []
    for moment in moments:
        role, _, what = moment.event.partition("-")
        if role not in ("rank", "launcher", "service") or what not in ("started", "ended"):
            continue
        name = f"rank {moment.facts.get('rank')}" if role == "rank" else str(moment.facts.get("name"))
        if what == "started":
            open_.setdefault(name, (moment.at, moment))
        elif name in open_:
            begin, _started = open_.pop(name)
            rows.append((begin, _row(name, begin, moment.at, moment.facts)))
    rows += [(begin, _row(name, begin, last, {})) for name, (begin, _) in open_.items()]
    return tuple(row for _, row in sorted(rows, key=lambda each: each[0]))


def _row(name: str, begin: float, end: float, facts: Any) -> Row:
    spans: tuple[Span, ...]
    wrote = facts.get("first_output")
    if isinstance(wrote, (int, float)) and begin <= wrote <= end:
        spans = (Span(begin, wrote, "quiet", "until its first output"), Span(wrote, end, "run", "ran"))
    else:
        spans = (Span(begin, end, "run", "ran without any output" if "first_output" in facts else "ran"),)
    if "status" not in facts:
        return Row(name, spans)
    failed = facts["status"] != 0 and not facts.get("signalled")
    ended = sentence("service-ended", {"name": name, "status": facts["status"]}).removeprefix(f"{name} ended with ")
    return Row(name, spans, ended + (", out of memory" if facts.get("oom") else ""), failed)
