"""What people ask of a finished job, answered in sentences: where the time went, and what went wrong first."""

from __future__ import annotations

from typing import Iterable, Sequence

from musterpoint.tools.viewer.history import History, Moment
from musterpoint.tools.viewer.lanes import Lane, Span, is_rank

_NOTABLE = 0.1
"""A part of the start-up is named from this many seconds on."""
_NAMED = 4


def answers(history: History, lanes: Sequence[Lane]) -> tuple[str, ...]:
    """Sentences, the most asked first."""
    found = (ending(history), *startup(lanes), silence(lanes), *clocks(history))
    return tuple(text for text in found if text)


def ending(history: History) -> str:
    """How the job ended, what was first, and when the others heard of it."""
    outcome = history.outcome
    code = outcome.get("code")
    stops = [moment for moment in history.moments if moment.event == "stop-asked"]
    if outcome.get("class") == "stopped" or (code == 143 and stops):
        if not stops:
            return f"The job was stopped after {took(history.seconds)}."
        return (
            f"The job was stopped: {stops[0].host} was told so {took(stops[0].at)} after the start"
            f"{_heard(history, stops[0], 'job-stopped')}; it ended with code {code} after {took(history.seconds)}."
        )
    if code == 0:
        return f"The job went well: every rank ended with 0, after {took(history.seconds)}."
    first = _first_failure(history)
    reason = str(outcome.get("reason", "")).split("\n")[0]
    said = f": {reason}" if reason else ""
    if first is None:
        return f"The job failed with code {code} after {took(history.seconds)}{said}." if code is not None else ""
    return (
        f"Failed first: {first[1]}, {took(first[0].at)} after the start{_heard(history, first[0], 'job-failed')}"
        f"{said}. The job ended with code {code} after {took(history.seconds)}."
    )


def _first_failure(history: History) -> tuple[Moment, str] | None:
    """The first moment of what the outcome names as the cause, and its name."""
    host, rank = history.outcome.get("host"), history.outcome.get("rank")
    for moment in history.moments:
        facts = moment.facts
        if moment.event == "rank-ended" and moment.host == host and rank is not None and facts.get("rank") == rank:
            return moment, f"rank {rank} on {host}"
        if moment.event in ("rollcall-failed", "host-lost") and rank is None:
            return moment, f"the roll call on {moment.host}" if moment.event[
                0
            ] == "r" else f"{facts.get('of')} was lost"
        if moment.event == "failure-seen" and (host in (None, moment.host)) and rank is None:
            return moment, f"host {moment.host}"
    return next(((moment, f"host {moment.host}") for moment in history.moments if moment.event == "failure-seen"), None)


def _heard(history: History, first: Moment, event: str) -> str:
    """How long it took until the last of the other hosts knew."""
    times: dict[str, float] = {}
    for moment in history.moments:
        if moment.event == event and moment.host != first.host and moment.at >= first.at:
            times.setdefault(moment.host, moment.at - first.at)
    if not times:
        return ""
    who = next(iter(times)) if len(times) == 1 else f"the other {len(times)} hosts"
    return f", {who} heard of it {took(max(times.values()))} later"


def startup(lanes: Sequence[Lane]) -> Iterable[str]:
    """Where the time went until the ranks had started, and until they wrote."""
    starts = [row.spans[0].begin for lane in lanes for row in lane.rows if is_rank(row)]
    begins = [lane.spans[0].begin for lane in lanes if lane.spans]
    if not starts or not begins:
        return
    parts = []
    for phase, what in (
        ("code", "fetching code"),
        ("install", "installing"),
        ("prepare", "making hosts ready"),
        ("rollcall", "the roll call"),
        ("start", _launchers(lanes)),
    ):
        slowest = _longest(lanes, phase)
        if slowest is not None and slowest[1].seconds >= _NOTABLE:
            parts.append(f"{what} {took(slowest[1].seconds)} ({slowest[0]})")
    late = [lane for lane in lanes if lane.spans and lane.spans[0].begin > min(begins) + _NOTABLE]
    if late:
        last = max(late, key=lambda lane: lane.spans[0].begin)
        parts.append(f"{last.host} started {took(last.spans[0].begin - min(begins))} after the first host")
    split = f": {', '.join(parts)}" if parts else ""
    yield f"Start-up: {took(max(starts) - min(begins))} from the first entry point to the last rank's start{split}."
    quiet = [
        (row.spans[0].seconds, row.name, lane.host)
        for lane in lanes
        for row in lane.rows
        if len(row.spans) == 2 and row.spans[0].phase == "quiet"
    ]
    if quiet:
        seconds, name, host = max(quiet)
        yield f"The first output of {name} on {host} came last, {took(seconds)} after its start."


def _launchers(lanes: Iterable[Lane]) -> str:
    """What the time between the roll call and the first rank's start is called."""
    names = sorted({row.name for lane in lanes for row in lane.rows if not is_rank(row)})
    return f"planning, and the start of {', '.join(names[:_NAMED])}" if names else "planning and starting"


def _longest(lanes: Iterable[Lane], phase: str) -> tuple[str, Span] | None:
    spans = [(lane.host, span) for lane in lanes for span in lane.spans if span.phase == phase]
    return max(spans, key=lambda each: each[1].seconds, default=None)


def silence(lanes: Sequence[Lane]) -> str:
    """The longest time in which nothing was written on a host."""
    found = _longest(lanes, "silence")
    if found is None:
        return ""
    host, span = found
    return f"The longest silence: nothing was written on {host} for {took(span.seconds)}, from {took(span.begin)} on."


def clocks(history: History) -> Iterable[str]:
    """Which hosts' clocks were wrong."""
    for host, shift in list(history.shifts.items())[:_NAMED]:
        word = "behind" if shift > 0 else "ahead of"
        yield f"The clock of {host} was {took(abs(shift))} {word} the leader's; its times are put right here."


def took(seconds: float) -> str:
    """A length of time, short: ``3 ms``, ``1.24 s``, ``5 min 20 s``, ``3 h 2 min``."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
