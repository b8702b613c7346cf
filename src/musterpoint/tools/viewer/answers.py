"""What people ask of a finished job, answered in sentences: where the time went, and what went wrong first."""

from __future__ import annotations

from typing import Iterable, Iterator, Sequence

from musterpoint.base.timeline import CONTROL_PLANE
from musterpoint.tools.viewer.events import numbered
from musterpoint.tools.viewer.faults import STOPPED, Fault
from musterpoint.tools.viewer.history import History
from musterpoint.tools.viewer.lanes import Lane, Span

_NOTABLE = 0.1
"""A part of the start-up is named from this many seconds on."""
_NAMED = 4


def answers(history: History, lanes: Sequence[Lane]) -> tuple[str, ...]:
    """Sentences, the most asked first."""
    found = (
        ending(history),
        *restarts(history, lanes),
        *startup(history, lanes),
        silence(history, lanes),
        *clocks(history),
        other_starts(history),
    )
    return tuple(text for text in found if text)


def ending(history: History) -> str:
    """How the job ended, what was first, and when the others heard of it."""
    outcome = history.outcome
    code = outcome.get("code")
    which = f" in {numbered(history.attempts, history.attempts)}" if history.attempts > 1 else ""
    stops = [moment for moment in history.moments if moment.event == "stop-asked"]
    if outcome.get("class") == "stopped" or (code == STOPPED and stops):
        if not stops:
            return f"The job was stopped{which} after {took(history.seconds)}."
        times: dict[str, float] = {}
        for moment in history.moments:
            if moment.event == "job-stopped" and moment.host != stops[0].host and moment.at >= stops[0].at:
                times.setdefault(moment.host, moment.at - stops[0].at)
        return (
            f"The job was stopped{which}: {stops[0].host} was told so {took(stops[0].at)} after the start"
            f"{_heard(tuple(times.items()))}; it ended with code {code} after {took(history.seconds)}."
        )
    if code == 0:
        hidden = next((each for each in history.moments if each.event in _HIDDEN), None)
        but = f" But {hidden.text}." if hidden is not None else ""
        return f"The job went well{which}: every rank ended with 0, after {took(history.seconds)}.{but}"
    fault = next((fault for fault in history.faults if fault.attempt == history.attempts), None)
    if fault is None or fault.at is None:
        said = f": {fault.reason}" if fault is not None and fault.reason else ""
        if code is None:
            return ""
        return f"The job failed{which} with code {code} after {took(history.seconds)}{said}."
    head = "Hung" if fault.has_hung and fault.rank is None else "Failed first"
    return (
        f"{head}{which}: {_first(fault, 0.0, 'the start')}. The job ended with code {code} after "
        f"{took(history.seconds)}."
    )


_HIDDEN = ("exception-hidden", "left-cut-off", "worlds-apart")
"""Events of a job that ended with 0 and has not done what it should."""


def _first(fault: Fault, since: float, what: str) -> str:
    assert fault.at is not None
    said = f": {fault.reason}" if fault.reason else ""
    found = "found " if fault.has_hung else ""
    return f"{fault.who}, {found}{took(fault.at - since)} after {what}{_heard(fault.heard)}{said}"


def _heard(times: Sequence[tuple[str, float]]) -> str:
    """How long it took until the last of the other hosts knew."""
    if not times:
        return ""
    who = times[0][0] if len(times) == 1 else f"the other {len(times)} hosts"
    return f", {who} heard of it {took(max(later for _, later in times))} later"


def restarts(history: History, lanes: Sequence[Lane]) -> Iterable[str]:
    """Why each attempt before the last one ended, and how soon the ranks ran again."""
    earlier = [fault for fault in history.faults if fault.attempt < history.attempts]
    for fault in earlier[:_NAMED]:
        which = numbered(fault.attempt, history.attempts)
        if fault.at is None:
            yield f"{which.capitalize()} failed{f': {fault.reason}' if fault.reason else ''}."
            continue
        begun = 0.0 if fault.attempt == 1 else _begin(history, fault.attempt)
        following = next((other for other in _attempts(lanes) if other > fault.attempt), 0)
        starts = _starts(lanes, following)
        again = f" All ranks ran again {took(max(starts) - fault.at)} after that." if starts else ""
        since = "the job's start" if fault.attempt == 1 else "it began"
        yield f"What ended {which}: {_first(fault, begun, since)}.{again}"
    if len(earlier) > _NAMED:
        yield f"{len(earlier) - _NAMED} more attempts failed before the last one."


def _begin(history: History, attempt: int) -> float:
    return next((moment.at for moment in history.moments if moment.attempt == attempt), 0.0)


def _attempts(lanes: Sequence[Lane]) -> list[int]:
    return sorted({run.attempt for lane in lanes for row in lane.rows for run in row.runs})


def _starts(lanes: Sequence[Lane], attempt: int) -> list[float]:
    """When the ranks of ``attempt`` started."""
    return [
        run.spans[0].begin
        for lane in lanes
        for row in lane.rows
        if row.is_rank
        for run in row.runs
        if run.attempt == attempt
    ]


def startup(history: History, lanes: Sequence[Lane]) -> Iterable[str]:
    """Where the time went until the ranks of the first attempt had started, and until ranks wrote."""
    starts = _starts(lanes, 1)
    entries = [entry for lane in lanes if (entry := _entry(lane)) is not None]
    if not starts or not entries:
        return
    slowest = max((lane for lane in lanes if _entry(lane) is not None), key=_ready)
    parts = list(_parts(slowest, history.moments[0].host == CONTROL_PLANE, max(starts), _launchers(lanes)))
    split = f": {', '.join(parts)}" if parts else ""
    yield f"Start-up: {took(max(starts))} from the job's start to the last rank's start{_in(history, 1)}{split}."
    quiet = [
        (run.spans[0].seconds, row.name, lane.host, run.attempt)
        for lane in lanes
        for row in lane.rows
        for run in row.runs
        if len(run.spans) == 2 and run.spans[0].phase == "quiet"
    ]
    if quiet:
        seconds, name, host, attempt = max(quiet)
        yield f"The first output of {name} on {host}{_in(history, attempt)} came last, {took(seconds)} after its start."


def _parts(lane: Lane, played: bool, last: float, launchers: str) -> Iterator[str]:
    """Tells where the time went on the host for which the others waited, the one that was ready last.

    Together that is no more than ``last``, when the last rank started. ``played``: the control plane has told when the
    job began.
    """
    entry = _entry(lane) or 0.0
    if played and entry >= _NOTABLE:
        yield f"{took(entry)} until the entry point of {lane.host} ran, while hosts were made and Python was started"
    elif entry >= _NOTABLE:
        yield f"{lane.host} started {took(entry)} after the first host"
    ready, met = _ready(lane), lane.of("rollcall")
    if ready - entry >= _NOTABLE:
        steps = ((lane.of("code"), "fetching code"), (lane.of("install"), "installing"))
        inside = [f"{what} {took(span.seconds)}" for span, what in steps if span and span.seconds >= _NOTABLE]
        of_it = f", of it {' and '.join(inside)}" if inside else ""
        yield f"making {lane.host} ready {took(ready - entry)}{of_it}"
    if met is not None and met.seconds >= _NOTABLE:
        yield f"the roll call {took(met.seconds)}"
    begun = met.end if met is not None else ready
    if last - begun >= _NOTABLE:
        yield f"{launchers} {took(last - begun)}"


def _ready(lane: Lane) -> float:
    """When the host was ready to meet the others."""
    span = lane.of("prepare")
    return span.end if span is not None else 0.0


def _entry(lane: Lane) -> float | None:
    """When the host's entry point started."""
    span = lane.of("prepare") or (lane.spans[0] if lane.spans else None)
    return span.begin if span is not None else None


def _in(history: History, attempt: int) -> str:
    return f" in {numbered(attempt, history.attempts)}" if history.attempts > 1 else ""


def _launchers(lanes: Iterable[Lane]) -> str:
    """What the time between the roll call and the first rank's start is called."""
    names = sorted({row.name for lane in lanes for row in lane.rows if not row.is_rank})
    return f"planning, and the start of {', '.join(names[:_NAMED])}" if names else "planning and starting"


def _longest(lanes: Iterable[Lane], phase: str, attempt: int = 0) -> tuple[str, Span] | None:
    spans = [
        (lane.host, span)
        for lane in lanes
        for span in lane.spans
        if span.phase == phase and attempt in (0, span.attempt)
    ]
    return max(spans, key=lambda each: each[1].seconds, default=None)


def silence(history: History, lanes: Sequence[Lane]) -> str:
    """The longest time in which nothing was written on a host."""
    found = _longest(lanes, "silence")
    if found is None:
        return ""
    host, span = found
    return (
        f"The longest silence{_in(history, span.attempt)}: nothing was written on {host} for {took(span.seconds)}, "
        f"from {took(span.begin)} on."
    )


def other_starts(history: History) -> str:
    """Names the directories of other starts of the job."""
    left_out = history.left_out
    more = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
    return f"Left out, of another start of the job: {', '.join(left_out[:_NAMED])}{more}." if left_out else ""


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
