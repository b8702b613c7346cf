"""Directories that jobs left → one history: events on one clock, a lane for each host, and curves of metrics."""

from __future__ import annotations

import contextlib
import glob
import json
import math
import os
from typing import Any, Mapping, NamedTuple, Sequence

from musterpoint.base.errors import UsageError, similar
from musterpoint.base.timeline import CONTROL_PLANE
from musterpoint.base.untrusted import checked, escaped, open_regular, printable, read_regular
from musterpoint.core.code.project import LOCAL_JOBS
from musterpoint.core.job.directories import in_use
from musterpoint.core.job.host_order import natural
from musterpoint.tools.viewer.events import Event, Moment, meaning_of, placed
from musterpoint.tools.viewer.faults import HUNG, Fault, faults_of
from musterpoint.tools.viewer.lanes import Lane, lanes_of

FILE = "metrics.jsonl"
"""Beside the timeline, from ``muster local --metric``; a line for each value."""
MOST_POINTS = 400
"""Points of a line in the page: a screen shows no more."""
MOST_CURVES = 64
_LONGEST_LINE = 4096
_LONGEST_METRIC = 255


class Line(NamedTuple):
    """What ``host`` printed: moments (seconds since the job began) and values, oldest first. ``total``: of how many."""

    host: str
    points: tuple[tuple[float, float], ...]
    total: int


class Curve(NamedTuple):
    """A metric by its ``name``, with a line for each host that printed it. ``last``: its last value."""

    name: str
    lines: tuple[Line, ...]
    last: float


def read_curves(folder: str, began: float) -> tuple[Curve, ...]:
    """The curves of the job in ``folder``; none where it had no metrics. What isn't a value is passed over.

    A line of the file has MetricName, Host, Timestamp (seconds since the epoch) and Value.
    """
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    lasts: dict[str, float] = {}
    try:
        with open(os.path.join(folder, FILE), encoding="utf-8", errors="replace", opener=open_regular) as file:
            for line in iter(lambda: file.readline(_LONGEST_LINE), ""):
                row = _row(line)
                if row is None or (row[0] not in found and len(found) == MOST_CURVES):
                    continue
                name, host, at, lasts[name] = row
                found.setdefault(name, {}).setdefault(host, []).append((round(at - began, 3), lasts[name]))
    except OSError:
        return ()
    return tuple(
        Curve(name, tuple(Line(host, thinned(hosts[host]), len(hosts[host])) for host in natural(hosts)), lasts[name])
        for name, hosts in found.items()
    )


def _row(line: str) -> tuple[str, str, float, float] | None:
    """Name, host, time and value of a line; None where it has none."""
    try:
        row: dict[str, Any] = json.loads(line)
        name, host = row["MetricName"], row["Host"]
        numbers = [float(row[key]) for key in ("Timestamp", "Value") if type(row[key]) in (int, float)]
    except (ValueError, RecursionError, KeyError, TypeError, OverflowError):
        return None
    if not isinstance(name, str) or not isinstance(host, str) or len([*filter(math.isfinite, numbers)]) < 2:
        return None
    return printable(name, _LONGEST_METRIC), printable(host, _LONGEST_METRIC), numbers[0], numbers[1]


def thinned(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> tuple[tuple[float, float], ...]:
    """At most ``most`` of ``points``: the first, the last, and the lowest and highest of each stretch between them."""
    if len(points) <= most:
        return tuple(points)
    kept, stretches = {0, len(points) - 1}, (most - 2) // 2
    for number in range(stretches):
        ends = [1 + each * (len(points) - 2) // stretches for each in (number, number + 1)]
        kept |= {choose(range(*ends), key=lambda at: points[at][1]) for choose in (min, max)}
    return tuple(points[at] for at in sorted(kept))


TIMELINE, OUTCOME, JOB = "timeline.json", "outcome.json", "job.json"
_PLACES = ("", "output", "opt/ml/output")
_LATEST = 1e11
"""Seconds since the epoch: in three thousand years."""
_LARGEST = 1 << 30
_SKEW = 0.5
"""Seconds by which two hosts' clocks must differ before one is shifted: less is also the time of a message."""
_LONGEST_NAME = 200


class History(NamedTuple):
    """What a job left.

    ``name``: the job's name, or the directory's. ``began``: seconds since the epoch of the first event.
    ``hosts``: in rank order. ``moments``: of all hosts and of the control plane, oldest first.
    ``outcome``: the fields of ``outcome.json`` (of ``job.json`` where that is lacking); empty: nothing is known.
    ``shifts``: seconds by which the clocks of hosts were put right. ``attempts``: how often all ranks were started.
    ``faults``: what ended attempts, in their order. ``lanes``: of the hosts. ``curves``: of the metrics it printed.
    ``left_out``: the directories of other starts of the job.
    """

    name: str
    began: float
    hosts: tuple[str, ...]
    moments: tuple[Moment, ...]
    outcome: Mapping[str, Any]
    shifts: Mapping[str, float]
    attempts: int
    faults: tuple[Fault, ...]
    lanes: tuple[Lane, ...]
    curves: tuple[Curve, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """How long the job took, to its last event."""
        return self.moments[-1].at if self.moments else 0.0

    def failed_first(self, moment: Moment) -> bool:
        """Whether ``moment`` is the first failure of an attempt."""
        return any(fault.moment is moment and fault.who != HUNG for fault in self.faults)

    def told(self, moment: Moment) -> tuple[str, str]:
        """The kind of ``moment``, and its sentence for people, which says of an attempt's first failure that it is."""
        if self.failed_first(moment):
            return "failure", f"{moment.text} (failed first)"
        return meaning_of(moment.event).kind, moment.text


def read_history(paths: Sequence[str]) -> History:
    """The history of one start of a job: of the directory that it left, of hosts' output directories, or of timelines.
    Of several starts it is the newest.

    Raises:
        UsageError: a path has no timeline, a timeline can't be read, none has an event, or two are of different jobs.
    """
    rows: list[dict[str, Any]] = []
    found_in: dict[str, str] = {}
    outcome: dict[str, Any] = {}
    name = ""
    left = [_Left(place, file, _rows(file)) for path in paths for place, file in _timelines_of(path)]
    chosen = _newest_start(left)
    folders = [os.path.dirname(one.file) for one in chosen]
    for path, file, found in chosen:
        _only_one_job(found, path, found_in)
        rows += found
        job = _fields(os.path.join(os.path.dirname(file), JOB))
        name = name or str(job.get("TrainingJobName", ""))
        start = _start_of(found)
        for candidate in (os.path.join(os.path.dirname(file), OUTCOME), *_of_hosts(os.path.dirname(file), found)):
            if outcome:
                break
            told = _fields(candidate)
            outcome = told if start in ("", told.get("start", "")) else {}
        if not outcome and "ExitCode" in job:
            outcome = {"code": job["ExitCode"], "reason": job.get("FailureReason", "")}
    if not rows:
        raise UsageError(f"{paths[0]}: the timeline has no events: the job ended before anything happened")
    shifts = clock_shifts(rows)
    began = min(row["at"] + shifts.get(row["host"], 0.0) for row in rows)
    events = sorted((_event(row, shifts.get(row["host"], 0.0) - began) for row in rows), key=lambda event: event.at)
    moments = placed(events)
    hosts = _by_rank(moments)
    name = name or _told(moments) or os.path.basename(os.path.abspath(paths[0]))
    attempts = max(moment.attempt for moment in moments)
    faults = faults_of(moments, outcome)
    curves = tuple(curve for folder in folders for curve in read_curves(folder, began))
    lanes = lanes_of(hosts, moments, faults)
    shown = printable(name, _LONGEST_NAME)
    left_out = tuple(one.path for one in left if one not in chosen)
    return History(shown, began, hosts, moments, outcome, shifts, attempts, faults, lanes, curves, left_out)


class _Left(NamedTuple):
    """A timeline in ``path``, and its ``rows``."""

    path: str
    file: str
    rows: list[dict[str, Any]]

    @property
    def start(self) -> str:
        return _start_of(self.rows)

    @property
    def began(self) -> float:
        return min((row["at"] for row in self.rows), default=0.0)

    @property
    def ended(self) -> float:
        return max((row["at"] for row in self.rows), default=0.0)


def _start_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """The start that a timeline tells of; empty: it got as far as no roll call."""
    return next((str(row["start"]) for row in rows if row["event"] == "hosts-met" and "start" in row), "")


def _newest_start(left: Sequence[_Left]) -> list[_Left]:
    """Picks the timelines of the newest start.

    A host that didn't get as far as a roll call is of the start that it ran beside.
    """
    newest = max((one for one in left if one.start), key=lambda one: one.began, default=None)
    if newest is None:
        return [*left]
    own = [one for one in left if one.start == newest.start]
    began = min(one.began for one in own)
    return [one for one in left if one.start == newest.start or (not one.start and one.ended >= began)]


def _by_rank(moments: Sequence[Moment]) -> tuple[str, ...]:
    """The hosts in the order of their ranks; those that had none come last."""
    least: dict[str, float] = {}
    for moment in moments:
        rank = moment.facts.get("rank") if moment.event == "rank-started" and moment.attempt == 1 else None
        if isinstance(rank, int):
            least[moment.host] = min(rank, least.get(moment.host, rank))
    hosts = natural({moment.host for moment in moments} - {CONTROL_PLANE})
    return tuple(sorted(hosts, key=lambda host: least.get(host, math.inf)))


def _told(moments: Sequence[Moment]) -> str:
    """The job's name as a host tells it; empty: none does."""
    return next(
        (str(each.facts["job"]) for each in moments if each.event == "host-prepared" and "job" in each.facts), ""
    )


def _only_one_job(rows: Sequence[Mapping[str, Any]], path: str, found_in: dict[str, str]) -> None:
    """``found_in``: the path of each host seen so far, to which those of ``rows`` are added."""
    for host in dict.fromkeys(row["host"] for row in rows):
        other = found_in.setdefault(host, path)
        if other != path:
            raise UsageError(
                f"{printable(host, _LONGEST_NAME)} is in {other} and in {path}: these are two jobs, or one job "
                "that was submitted twice; give what one job left: one directory of `muster local`'s, or one of "
                "each host"
            )


def clock_shifts(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds to add to each host's times, where its clock differs from the leader's.

    The leader's ``host-here`` and that host's ``seated`` are the two ends of one message.
    """
    seen = {row["of"]: row["at"] for row in rows if row["event"] == "host-here" and isinstance(row.get("of"), str)}
    shifts = {}
    for row in rows:
        if row["event"] == "seated" and row["host"] in seen and row["host"] not in shifts:
            shifts[row["host"]] = seen[row["host"]] - row["at"]
    return {host: round(shift, 6) for host, shift in shifts.items() if abs(shift) > _SKEW}


def _event(row: Mapping[str, Any], shift: float) -> Event:
    facts = {name: value for name, value in row.items() if name not in ("host", "at", "time", "event")}
    for name in ("since", "first_output"):
        if isinstance(facts.get(name), (int, float)):
            facts[name] += shift
    return Event(row["at"] + shift, row["host"], row["event"], facts)


def _timelines_of(path: str) -> list[tuple[str, str]]:
    """The directories that ``path`` stands for, and their timelines: several for a job on machines of one's own."""
    if os.path.isfile(path):
        return [(path, path)]
    for place in _PLACES:
        file = os.path.join(path, place, TIMELINE)
        if os.path.isfile(file):
            return [(path, file)]
    hosts = os.path.join(path, "hosts")
    names = natural(os.listdir(hosts)) if os.path.isdir(hosts) else ()
    found = [(os.path.join(hosts, name), os.path.join(hosts, name, TIMELINE)) for name in names]
    if found := [one for one in found if os.path.isfile(one[1])]:
        return found
    raise UsageError(f"{path}: {_why_not(path)}")


def _why_not(path: str) -> str:
    """Why there is no timeline at ``path``, and where there may be one, for people."""
    if not os.path.exists(path):
        meant, newest = _nearly(path), newest_job(".")
        near = f" (did you mean {meant}?)" if meant else f"; the newest job here is {newest}" if newest else ""
        return f"there is no such directory{near}"
    running, hosts = in_use(path), os.path.join(path, "hosts")
    if running or os.path.isdir(hosts):
        why = "its timeline is written at its end" if running else "it was ended before it wrote a timeline"
        logs = glob.glob(os.path.join(glob.escape(hosts), "*", "log"))
        where = f"; its hosts' logs are {os.path.join(hosts, '*', 'log')}" if logs else ""
        return f"this job {'still runs' if running else 'has no timeline'}: {why}{where}"
    newest = newest_job(path)
    near = f"; the newest job in it is {newest}" if newest else ""
    return (
        f"no {TIMELINE} there; expected a directory that `muster local` made, or what a host left in "
        f"/opt/ml/output (several hosts: name each one's directory){near}"
    )


def _nearly(path: str) -> str:
    """The directory that was meant by ``path``, there or in muster-jobs: of its name, else the newest whose name begins
    so, else the one with the most similar name; empty: there is none.
    """
    folder, name = os.path.split(os.path.normpath(path))
    found = {os.path.basename(place): place for place in _folders_of(folder)}
    begun = [place for own, place in found.items() if own.startswith(name)]
    return found.get(name) or (begun[-1] if begun else found.get(similar(name, found), ""))


def newest_job(folder: str) -> str:
    """The directory of the newest job that `muster local` left in ``folder``, or in its muster-jobs; else empty."""
    found = [path for path in _folders_of(folder) if os.path.isfile(os.path.join(path, TIMELINE))]
    return max(found, key=lambda path: os.path.getmtime(os.path.join(path, TIMELINE)), default="")


def _folders_of(folder: str) -> list[str]:
    """The folders in ``folder``, then those in its muster-jobs; of each the oldest first."""
    found: list[str] = []
    for parent in (folder or ".", os.path.join(folder, LOCAL_JOBS)):
        with contextlib.suppress(OSError):
            places = sorted(filter(os.DirEntry.is_dir, os.scandir(parent)), key=lambda each: each.stat().st_mtime)
            found += [os.path.normpath(place.path) for place in places]
    return found


def _rows(file: str) -> list[dict[str, Any]]:
    try:
        rows = checked(json.loads(read_regular(file, _LARGEST)))
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else f"it is no JSON: {printable(str(error), 200)}"
        raise UsageError(f"{file}: {why}") from None
    if not isinstance(rows, list):
        raise UsageError(f"{file}: a JSON {type(rows).__name__}, expected a list of events")
    for number, row in enumerate(rows, 1):
        if not (
            isinstance(row, dict)
            and _is_time(row.get("at"))
            and isinstance(row.get("host"), str)
            and isinstance(row.get("event"), str)
        ):
            raise UsageError(f'{file}: event {number} is not an object with "host", "at" and "event"')
    return escaped(rows)


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LATEST


def _of_hosts(folder: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where ``muster local`` keeps the outcomes of the hosts of a job."""
    hosts = natural({row["host"] for row in rows if os.path.basename(row["host"]) == row["host"]})
    return [os.path.join(folder, "hosts", host, "opt", "ml", "output", OUTCOME) for host in hosts]


def _fields(file: str) -> dict[str, Any]:
    try:
        found = checked(json.loads(read_regular(file, 1 << 20)))
    except (OSError, ValueError, RecursionError):
        return {}
    return escaped(found, lines=True) if isinstance(found, dict) else {}
