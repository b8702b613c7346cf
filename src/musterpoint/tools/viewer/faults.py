"""What failed first in each attempt of a job, and who heard of it when."""

from __future__ import annotations

import re
from typing import Any, Mapping, NamedTuple, Sequence

from musterpoint.base.untrusted import printable
from musterpoint.tools.viewer.events import Moment

_WHO = re.compile(r"rank \d+ \(local rank \d+\) on [^,]+, ")
_LONGEST_REASON = 500
STOPPED = 143
"""The exit code of a job that the platform stopped."""
HUNG = "all ranks alike"
"""Who has hung where none stands out."""


class Fault(NamedTuple):
    """What an attempt failed of.

    ``attempt``: from 1. ``who``: ``rank 3 on algo-2``; empty: nobody said. ``moment``: its event, if there is
    one. ``host``, ``rank``: where, as far as that is known. ``reason``: the error, in one line. ``heard``: who
    else heard of it, and how much later.
    """

    attempt: int
    who: str
    moment: Moment | None
    host: str
    rank: int | None
    reason: str
    heard: tuple[tuple[str, float], ...]

    @property
    def has_hung(self) -> bool:
        """Whether a rank, or the whole job, stood still."""
        return self.moment is not None and self.moment.event == "stalled"

    @property
    def at(self) -> float | None:
        """Seconds since the job began."""
        return self.moment.at if self.moment is not None else None


def faults_of(moments: Sequence[Moment], outcome: Mapping[str, Any]) -> tuple[Fault, ...]:
    """The failures that ended attempts, in the order of the attempts; an attempt that ended well, or was stopped, has
    none. ``outcome``: that of the last attempt, and so of the job.
    """
    last = max((moment.attempt for moment in moments), default=1)
    facts: dict[int, Mapping[str, Any]] = {}
    for moment in moments:
        if moment.event == "attempt-over":
            facts.setdefault(moment.attempt, _named(moment.facts))
    facts[last] = outcome
    by_attempt: dict[int, list[Moment]] = {}
    for moment in moments:
        by_attempt.setdefault(moment.attempt, []).append(moment)
    return tuple(
        fault
        for attempt, here in sorted(by_attempt.items())
        if (fault := _fault(attempt, here, facts.get(attempt, {}), attempt < last)) is not None
    )


def _named(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**facts, "host": facts.get("of")}


def _fault(attempt: int, moments: Sequence[Moment], told: Mapping[str, Any], over: bool) -> Fault | None:
    stopped = told.get("code") == STOPPED and any(moment.event == "stop-asked" for moment in moments)
    if told.get("code") == 0 or told.get("class") == "stopped" or stopped:
        return None
    host, rank = told.get("host"), told.get("rank")
    if over and not isinstance(host, str):  # of a version that doesn't tell
        heard = next((moment.facts for moment in moments if moment.event == "job-failed"), {})
        host, rank = heard.get("of"), heard.get("rank")
    first = _first(moments, host, rank)
    line = printable(str(told.get("reason") or "").partition("\n")[0], _LONGEST_REASON)
    reason = line[match.end() :] if (match := _WHO.match(line)) and first is not None else line
    where = host if isinstance(host, str) else ""
    number = rank if isinstance(rank, int) else None
    if first is None:
        return Fault(attempt, "", None, where, number, reason, ()) if over or told.get("code") is not None else None
    moment, who, culprit = first
    times: dict[str, float] = {}
    for other in moments:
        if other.event == "job-failed" and other.host != moment.host and other.at >= moment.at:
            times.setdefault(other.host, other.at - moment.at)
    return Fault(attempt, who, moment, culprit, number, reason, tuple(times.items()))


def _first(moments: Sequence[Moment], host: Any, rank: Any) -> tuple[Moment, str, str] | None:
    """The first moment of what is told as the cause, its name, and the host to blame."""
    for moment in moments:
        facts = moment.facts
        if moment.event == "rank-ended" and moment.host == host and rank is not None and facts.get("rank") == rank:
            return moment, f"rank {rank} on {host}", moment.host
        if moment.event == "stalled" and facts.get("ends"):
            return (
                moment,
                HUNG if rank is None else f"rank {rank} on {host} has hung",
                "" if rank is None else str(host),
            )
        if rank is not None:
            continue
        failed = facts.get("status") and not facts.get("signalled")
        if moment.event == "service-ended" and failed and moment.host == host:
            return moment, f"{facts.get('name')} on {host}", moment.host
        if moment.event == "rollcall-failed":
            return moment, f"the roll call on {moment.host}", ""
        if moment.event == "host-lost":
            lost = str(facts.get("of"))
            return moment, f"{lost} was lost", lost
        if moment.event == "failure-seen" and (not host or moment.host == host):
            return moment, f"host {moment.host}", moment.host
    seen = [moment for moment in moments if moment.event == "failure-seen"]
    for moment in seen:
        if rank is not None and moment.host == host:
            return moment, f"rank {rank} on {host}", moment.host
    return (seen[0], f"host {seen[0].host}", seen[0].host) if seen else None
