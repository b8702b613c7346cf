"""A history as text: sentences that answer what people ask, a table of the hosts, and what happened in order."""

from __future__ import annotations

from typing import Iterable, Iterator, Sequence

from musterpoint.base.timeline import CONTROL_PLANE
from musterpoint.base.untrusted import printable
from musterpoint.tools.viewer.events import Moment, meaning_of, numbered
from musterpoint.tools.viewer.faults import STOPPED, Fault
from musterpoint.tools.viewer.history import History
from musterpoint.tools.viewer.lanes import Lane

_NOTABLE = 0.1
"""A part of the start-up is named from this many seconds on."""
_NAMED = 4
_HIDDEN = ("exception-hidden", "left-cut-off", "worlds-apart")
"""Events of a job that ended with 0 and has not done what it should."""


def answers(history: History) -> tuple[str, ...]:
    """Sentences, the most asked first."""
    found = (ending(history), *_restarts(history), *_startup(history), *_others(history))
    return tuple(text for text in found if text)


def ending(history: History) -> str:
    """How the job ended, what was first, and when the others heard of it."""
    code, after = history.outcome.get("code"), took(history.seconds)
    which = _in(history, history.attempts)
    stops = [moment for moment in history.moments if moment.event == "stop-asked"]
    if history.outcome.get("class") == "stopped" or (code == STOPPED and stops):
        if not stops:
            return f"The job was stopped{which} after {after}."
        first, times = stops[0], dict[str, float]()
        for moment in history.moments:
            if moment.event == "job-stopped" and moment.host != first.host and moment.at >= first.at:
                times.setdefault(moment.host, moment.at - first.at)
        return (
            f"The job was stopped{which}: {first.host} was told so {took(first.at)} after the start"
            f"{_heard(tuple(times.items()))}; it ended with code {code} after {after}."
        )
    if code == 0:
        hidden = next((f" But {each.text}." for each in history.moments if each.event in _HIDDEN), "")
        return f"The job went well{which}: every rank ended with 0, after {after}.{hidden}"
    fault = next((fault for fault in history.faults if fault.attempt == history.attempts), None)
    if fault is None or fault.at is None:
        said = f": {fault.reason}" if fault is not None and fault.reason else ""
        return "" if code is None else f"The job failed{which} with code {code} after {after}{said}."
    head = "Hung" if fault.has_hung and fault.rank is None else "Failed first"
    return f"{head}{which}: {_first(fault, 0.0, 'the start')}. The job ended with code {code} after {after}."


def _first(fault: Fault, since: float, what: str) -> str:
    assert fault.at is not None
    said = f": {fault.reason}" if fault.reason else ""
    found = "found " if fault.has_hung else ""
    return f"{fault.who}, {found}{took(fault.at - since)} after {what}{_heard(fault.heard)}{said}"


def _heard(times: Sequence[tuple[str, float]]) -> str:
    """Says how long it took until the last of the other hosts knew."""
    if not times:
        return ""
    who = times[0][0] if len(times) == 1 else f"the other {len(times)} hosts"
    return f", {who} heard of it {took(max(later for _, later in times))} later"


def _restarts(history: History) -> Iterator[str]:
    """Why each attempt before the last one ended, and how soon the ranks ran again."""
    earlier = [fault for fault in history.faults if fault.attempt < history.attempts]
    runs = [run for lane in history.lanes for run in lane.runs if run.is_rank]
    for fault in earlier[:_NAMED]:
        which = numbered(fault.attempt, history.attempts)
        if fault.at is None:
            yield f"{which.capitalize()} failed{f': {fault.reason}' if fault.reason else ''}."
            continue
        begins = [moment.at for moment in history.moments if moment.attempt == fault.attempt]
        begun, since = (0.0, "the job's start") if fault.attempt == 1 else (begins[0], "it began")
        later = [run for run in runs if run.attempt > fault.attempt]
        starts = [run.spans[0].begin for run in later if run.attempt == min(each.attempt for each in later)]
        again = f" All ranks ran again {took(max(starts) - fault.at)} after that." if starts else ""
        yield f"What ended {which}: {_first(fault, begun, since)}.{again}"
    if len(earlier) > _NAMED:
        yield f"{len(earlier) - _NAMED} more attempts failed before the last one."


def _startup(history: History) -> Iterator[str]:
    """Where the time went until the ranks of the first attempt had started, and until ranks wrote."""
    runs = [(lane.host, run) for lane in history.lanes for run in lane.runs]
    starts = [run.spans[0].begin for _, run in runs if run.is_rank and run.attempt == 1]
    begun = [lane for lane in history.lanes if lane.spans]
    if not starts or not begun:
        return
    names = sorted({run.name for _, run in runs if not run.is_rank})
    planning = f"planning, and the start of {', '.join(names[:_NAMED])}" if names else "planning and starting"
    played = history.moments[0].host == CONTROL_PLANE
    parts = ", ".join(_parts(max(begun, key=_ready), played, max(starts), planning))
    split = f": {parts}" if parts else ""
    yield f"Start-up: {took(max(starts))} from the job's start to the last rank's start{_in(history, 1)}{split}."
    if quiet := [(run.spans[0].seconds, run.name, host, run.attempt) for host, run in runs if len(run.spans) == 2]:
        seconds, name, host, attempt = max(quiet)
        yield f"The first output of {name} on {host}{_in(history, attempt)} came last, {took(seconds)} after its start."


def _parts(lane: Lane, played: bool, last: float, planning: str) -> Iterator[str]:
    """Tells where the time went on the host for which the others waited, the one that was ready last.

    Together that is no more than ``last``, when the last rank started. ``played``: the control plane has told when the
    job began.
    """
    entry, ready, met = (lane.of("prepare") or lane.spans[0]).begin, _ready(lane), lane.of("rollcall")
    if entry >= _NOTABLE and played:
        yield f"{took(entry)} until the entry point of {lane.host} ran, while hosts were made and Python was started"
    elif entry >= _NOTABLE:
        yield f"{lane.host} started {took(entry)} after the first host"
    if ready - entry >= _NOTABLE:
        steps = ((lane.of("code"), "fetching code"), (lane.of("install"), "installing"))
        inside = [f"{what} {took(span.seconds)}" for span, what in steps if span and span.seconds >= _NOTABLE]
        of_it = f", of it {' and '.join(inside)}" if inside else ""
        yield f"making {lane.host} ready {took(ready - entry)}{of_it}"
    if met is not None and met.seconds >= _NOTABLE:
        yield f"the roll call {took(met.seconds)}"
    begun = met.end if met is not None else ready
    if last - begun >= _NOTABLE:
        yield f"{planning} {took(last - begun)}"


def _ready(lane: Lane) -> float:
    """When the host was ready to meet the others."""
    span = lane.of("prepare")
    return span.end if span is not None else 0.0


def _in(history: History, attempt: int) -> str:
    return f" in {numbered(attempt, history.attempts)}" if history.attempts > 1 else ""


def _others(history: History) -> Iterable[str]:
    """The longest time in which a host wrote nothing, clocks that were wrong, and directories of other starts."""
    silences = [(lane.host, span) for lane in history.lanes for span in lane.spans if span.phase == "silence"]
    if silences:
        host, span = max(silences, key=lambda each: each[1].seconds)
        yield (
            f"The longest silence{_in(history, span.attempt)}: nothing was written on {host} for {took(span.seconds)}, "
            f"from {took(span.begin)} on."
        )
    for host, shift in list(history.shifts.items())[:_NAMED]:
        word = "behind" if shift > 0 else "ahead of"
        yield f"The clock of {host} was {took(abs(shift))} {word} the leader's; its times are put right here."
    left_out = history.left_out
    more = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
    yield f"Left out, of another start of the job: {', '.join(left_out[:_NAMED])}{more}." if left_out else ""


def took(seconds: float) -> str:
    """A length of time, short: ``3 ms``, ``1.24 s``, ``5 min 20 s``, ``3 h 2 min``."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


_WIDEST = 200
_RED, _BOLD, _PLAIN = "\x1b[31m", "\x1b[1m", "\x1b[0m"
_MOST_ALIKE = 3
"""Events of one name on one host in a row that are shown without ``--all``."""
_HEAD = (
    "host", "attempt", "entry point", "made ready", "roll call", "first rank", "first output", "last end", "code", "",
)  # fmt: skip


def to_text(history: History, everything: bool = False, colour: bool = False) -> str:
    """The page as text. ``everything``: every event. ``colour``: with a terminal's colours."""
    wide = max(len(host) for host in (*history.hosts, CONTROL_PLANE))
    lines = [_shaded(history.name, _BOLD, colour), *answers(history), ""]
    for line, failed in _hosts(history):
        lines.append(_shaded(line, _RED, colour and failed))
    lines += ["", f"{'seconds':>9}  {'host':<{wide}}  what happened"]
    shown = history.moments if everything else tuple(_main(history.moments))
    for moment in shown:
        kind, said = history.told(moment)
        text = f"{moment.at:9.3f}  {moment.host:<{wide}}  {printable(said, _WIDEST)}"
        lines.append(_shaded(text, _RED, colour and kind == "failure"))
    if len(shown) < len(history.moments):
        lines.append(f"{len(history.moments) - len(shown)} more events: --all shows them")
    return "\n".join(lines) + "\n"


def _shaded(text: str, shade: str, colour: bool) -> str:
    return f"{shade}{text}{_PLAIN}" if colour else text


def _main(moments: Sequence[Moment]) -> Iterator[Moment]:
    """The moments that matter to most readers."""
    before, alike = ("", ""), 0
    for moment in moments:
        alike = alike + 1 if before == (moment.host, moment.event) else 1
        before = (moment.host, moment.event)
        if meaning_of(moment.event).main and alike <= _MOST_ALIKE:
            yield moment


def _hosts(history: History) -> Iterator[tuple[str, bool]]:
    """The table of the hosts, a line for each attempt, and whether the line has what failed first."""
    names = {fault.attempt: "" if fault.rank is None else f"rank {fault.rank} " for fault in history.faults}
    rows: list[tuple[str, ...]] = [_HEAD]
    failed = [False]
    for lane in history.lanes:
        for attempt in sorted({1, history.attempts, *lane.codes, *(span.attempt for span in lane.spans)}):
            first = attempt in lane.faults
            rows.append(_host(history, lane, attempt, f"{names[attempt]}failed first" if first else ""))
            failed.append(first)
    columns = [*zip(*rows)]
    if history.attempts == 1:
        columns.pop(1)
    widths = [max(map(len, column)) for column in columns]
    for cells, first in zip(zip(*columns), failed):
        line = "  ".join(
            cell.rjust(width) if 0 < at < len(widths) - 1 else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(cells, widths))
        )
        yield line.rstrip(), first


def _named(history: History, host: str) -> str:
    """A host with the roles that it had, where the job had several."""
    roles = history.outcome.get("roles")
    named = roles.items() if isinstance(roles, dict) else ()
    own = [printable(name, 40) for name, hosts in named if isinstance(hosts, list) and host in hosts]
    return f"{host} ({', '.join(own)})" if own else host


def _host(history: History, lane: Lane, attempt: int, said: str) -> tuple[str, ...]:
    phases = [lane.of("prepare", attempt), lane.of("rollcall", attempt)]
    runs = lane.ran(attempt)
    starts = [run.spans[0].begin for run in runs]
    wrote = [run.spans[1].begin for run in runs if len(run.spans) == 2]
    ends = [run.spans[-1].end for run in runs]
    code = lane.code if attempt == history.attempts else lane.codes.get(attempt)
    return (
        _named(history, lane.host),
        f"{attempt} of {history.attempts}",
        f"at {phases[0].begin:.3f}" if phases[0] else "-",
        *(took(span.seconds) if span else "-" for span in phases),
        *(f"at {min(times):.3f}" if times else "-" for times in (starts, wrote)),
        f"at {max(ends):.3f}" if ends else "-",
        "?" if code is None else str(code),
        said,
    )
