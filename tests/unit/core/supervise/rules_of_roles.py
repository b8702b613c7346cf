"""What must hold at the end of every simulated job with roles, beside what holds for all jobs."""

from __future__ import annotations

from musterpoint.base.failure import Failure
from musterpoint.core.channel.peers import GroupEnded, JobFailed, StopAll
from musterpoint.core.supervise import events as ev
from musterpoint.core.supervise.policy import LEFT_SECONDS

from .simulated_hosts import GRACE, HORIZON, Dies, Freezes, Host, Job, Snaps, Stops, Unplugs

A_MOMENT = 0.5
"""Seconds: a cause waits as long for an earlier one, and some milliseconds."""
DISTURBED = 80.0
"""Seconds that a word may take where the network, or a host, has a fault."""
FREE = 90.0
"""Seconds from the end of the job's roles to the job's: services have a grace, and are killed then."""


def told_apart(host: Host) -> list[Failure]:
    """The failures that no program had: a role left too early, or wasn't ready in time."""
    return [one for one in host.reported if " left while " in one.reason or " isn't ready after " in one.reason]


def way(job: Job) -> float:
    """Seconds within which what happens on a host is known to the leader, or the other way."""
    disturbed = any(isinstance(fault, (Dies, Freezes, Snaps, Unplugs)) for fault in job.history.faults)
    return max(job.history.latencies) + A_MOMENT + (DISTURBED if disturbed else 0.0)


def counted(job: Job, host: Host) -> list[Failure]:
    """The failures of a host that count: what fails of a service when the job's roles are through doesn't."""
    serving = {part.name for part in job.history.roles if part.ends != "job"}
    until = job.through_at - way(job)
    early = [one for one in told_apart(host) if job.when(one) < until and not host.rules.finish_on_failure]
    return [one for one in host.failures if one.role not in serving or job.when(one) < until] + early


def of_roles(job: Job, together: list[Host]) -> list[str]:
    """The rules that the end of a job with roles broke, in words."""
    found = []
    for host in together:
        found += [*_starts(job, host), *_told(job, host)]
        if job.through_at < HORIZON and (host.over_at or 0.0) > job.through_at + FREE + way(job):
            found.append(f"{host.name} ends {(host.over_at or 0.0) - job.through_at:g} s after the job's roles")
    return [*found, *_leaves(job, together)]


def _starts(job: Job, host: Host) -> list[str]:
    """Whether nothing starts once the job ends, nor before what it waits for."""
    found = []
    parts = {part.name: part for part in host.parts}
    ends = (JobFailed, StopAll, ev.StopAsked, GroupEnded)
    over = min((at for at, event in host.events if isinstance(event, ends) and at >= host.began), default=HORIZON)
    for name, at in host.starts.items():
        if at > over:
            found.append(f"{name} starts on {host.name} at {at:g}, and the job was ending at {over:g}")
        for part in job.history.roles:
            if part.name in parts[name].after:
                late = [
                    other.name for index in part.on if (other := job.hosts[index]).starts.get(part.name, HORIZON) > at
                ]
                if late:
                    found.append(f"{name} starts on {host.name} before {part.name} runs on {', '.join(late)}")
    return found


def _told(job: Job, host: Host) -> list[str]:
    """Whether services are told when the job's roles are through, or at half of a stop's grace; before only where
    something failed.
    """
    stops = [fault.at for fault in job.history.faults if isinstance(fault, Stops)]
    if not host.parts or job.history.restarts or job.hosts[0].is_gone:
        return []
    failed = min((at for at, event in host.events if isinstance(event, JobFailed)), default=HORIZON)
    stopped = min((at for at, event in host.events if isinstance(event, (ev.StopAsked, StopAll))), default=HORIZON)
    half = stopped + GRACE / 2 if stops else HORIZON
    found = []
    for key, at in host.signalled.items():
        serves, first = host.ends_of(key) != "job", min(job.through_at, half, failed)
        if serves and not host.killed and not _alone(host) and at < first - 1e-6:
            found.append(f"{key} on {host.name} is told at {at:g}, before {first:g}")
        if not serves and at < min(stopped, failed) - 1e-6:
            found.append(f"{key} on {host.name} is told at {at:g}, and there was no reason")
    for key in host.live.keys() | host.ended_at.keys():
        ran_on = host.ended_at.get(key, HORIZON) > min(stopped, failed) and not host.rules.finish_on_failure
        if ran_on and host.ends_of(key) == "job" and key not in host.signalled:
            found.append(f"{key} on {host.name} is never told")
    return found


def _alone(host: Host) -> bool:
    """Whether a host decides without the leader."""
    return bool(host.index and host.peers.is_alone)


def _leaves(job: Job, together: list[Host]) -> list[str]:
    """Whether a service that ended with 0 long before the job's roles is a failure, unless it may."""
    if any(isinstance(fault, Stops) for fault in job.history.faults) or job.history.restarts:
        return []
    until = min(job.through_at, job.clock.now) - LEFT_SECONDS - way(job)
    early = [f"{name} on {host.name}" for host in together for name, at in host.left_early.items() if at < until]
    if early and any(host.outcome[0] == 0 for host in together):
        return [f"{early} left early, and a host ends with 0"]
    return []
