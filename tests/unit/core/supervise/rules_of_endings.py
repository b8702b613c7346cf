"""What must hold at the end of every simulated job, whatever happened to its hosts."""

from __future__ import annotations

from musterpoint.base import exit_codes
from musterpoint.core.channel.peers import GroupEnded, PeerLost
from musterpoint.core.supervise import events as ev

from .rules_of_roles import counted, of_roles, told_apart
from .simulated_hosts import HORIZON, Dies, Fails, Freezes, Host, Job, Snaps, Stops, Unplugs
from .simulated_network import TIMEOUTS
from .simulated_restarts import RestartingHost

CROSSING = 12.0
"""Seconds in which a stop reaches the leader, also where the connection ends just then, or stands still for a while."""
SAFE_CUT = 8.0
"""Seconds that nothing may pass, near the end of a job, without a host being given up: silence is 15 s, a beat 5 s."""
SHORT_WAY = 0.01
"""Seconds to the leader, from where a failure is known there within the time that another one waits for it."""
ENDING = 80.0
"""More than a job's end takes where all hosts answer: a symptom held, 30 s for the ranks, late hosts."""


def wrong(job: Job) -> list[str]:
    """The rules that this job's end broke, in words; empty if none."""
    found = [f"{host.name} said: {text}" for host in job.hosts for text in host.machine.said if "internal" in text]
    found += [
        f"{host.name} said: {text}" for host in job.hosts for text in host.machine.said if "connection is" in text
    ]
    for host in job.hosts:
        if host.is_gone:
            continue
        if host.left_at is None:
            found.append(f"{host.name} does not end")
        elif (points := _without_answer(job, host)) and host.over_at != host.began:
            found.append(f"{host.name} has no answer to {points}")
        elif host.alive_at_end:
            found.append(f"{host.name} ends before {host.alive_at_end} rank(s) of it")
    found += job.broken
    if found:
        return found
    together = _together(job)
    if job.history.restarts:
        found += _attempts(job, together)
    if job.history.finish and not any(isinstance(fault, Stops) for fault in job.history.faults):
        last = max((host.ranks_ended_at for host in together), default=0.0)
        found += [f"{host.name} ends at {host.over_at:g}, before the last rank at {last:g}, with --on-failure finish"
                  for host in together if (host.over_at or 0.0) < last]  # fmt: skip
    ends = {host.outcome for host in together}
    if len(ends) > 1:
        found.append(f"hosts end differently: {sorted(ends)}")
    found += of_roles(job, together) if job.history.roles else []
    return [*found, *_codes(job, together), *_causes(job, together), *_order(job, together), *_times(job)]


def _without_answer(job: Job, host: Host) -> list[str]:
    """The points where an answer was due: the leader asked, too, and it had waited for one that is gone until its time
    was over, or for nobody.
    """
    asked, over = job.hosts[0].asked, host.over_at or 0.0
    waited = {point for point in asked if any(one.is_gone and point not in one.asked for one in job.hosts)}
    return sorted(point for point in host.unanswered & asked.keys() if point not in waited or asked[point] < over)


def _together(job: Job) -> list[Host]:
    """The hosts that could hear each other all the time, as far as the rules need it: they have to agree."""
    faults = job.history.faults
    apart = {fault.host for fault in faults if isinstance(fault, Dies)}
    for kind in (Freezes, Unplugs):
        for fault in faults:
            if isinstance(fault, kind):
                lasts = fault.seconds + (fault.more if isinstance(fault, Unplugs) else 0.0)
                near = [other for other in faults if other is not fault and isinstance(other, (Freezes, Unplugs))]
                if lasts > SAFE_CUT or near:
                    apart.add(fault.host)
    left = job.hosts[0].left_at or HORIZON
    # a connection that ends just when the leader leaves takes its last words along
    apart |= {fault.host for fault in faults if isinstance(fault, Snaps) and left - 2.0 <= fault.at <= left + 1.0}
    if 0 in apart:
        return []
    return [host for host in job.hosts if host.index not in apart]


def _attempts(job: Job, together: list[Host]) -> list[str]:
    """Whether the job was started again as often as it may be, on all hosts, and not after a stop."""
    found = []
    history = job.history
    made = {host.name: len(host.attempts) for host in together if isinstance(host, RestartingHost)}
    if len(set(made.values())) > 1 and not job.stops_heard:
        found.append(f"hosts made different numbers of attempts: {made}")
    if max(made.values(), default=0) > history.restarts + 1:
        found.append(f"more attempts than {history.restarts} restarts: {made}")
    if history.on == "infra" and max(made.values(), default=0) > 1:
        causes = [failure for host in job.hosts for failure in host.earlier]
        if causes and all(failure.kind in ("user", "oom") for failure in causes):
            found.append(f"started again after errors of the program's own: {made}")
    if len(together) == len(job.hosts) and job.stops_heard:
        known = min(job.stops_heard) + 2 * max(history.latencies) + CROSSING
        late = [at for host in together if isinstance(host, RestartingHost) for at in host.attempts[1:] if at > known]
        if late:
            found.append(f"an attempt begins at {late[0]:g}, after a stop at {min(job.stops_heard):g}")
        if any(host.outcome[0] == 0 and len(host.attempts) > 1 and host.attempts[-1] > min(job.stops_heard)
               for host in together if isinstance(host, RestartingHost)):  # fmt: skip
            found.append("a job that was stopped is started again, and ends with 0")
    leader = job.hosts[0]
    if isinstance(leader, RestartingHost) and history.saves is not None:
        began = leader.attempts
        for number in range(history.saves + 2, len(began)):  # two attempts before it that left nothing new
            last, before = began[number] - began[number - 1], began[number - 1] - began[number - 2]
            if last <= before:
                found.append(f"attempt {number} begins, though the last took {last:g} s after {before:g} s")
    return found


def _codes(job: Job, together: list[Host]) -> list[str]:
    faults = job.history.faults
    codes = {host.outcome[0] for host in together}
    stops = [fault for fault in faults if isinstance(fault, Stops)]
    failures = [one for host in job.hosts for one in (*host.earlier, *host.failures, *host.late, *told_apart(host))]
    lost = any(isinstance(fault, (Dies, Freezes, Unplugs)) for fault in faults)
    found = []
    stopped = exit_codes.STOPPED if not any(stop.signal == 2 for stop in stops) else 130
    if not lost and not failures:
        expected = {0, exit_codes.STOPPED, stopped} if stops else {0}
        if not codes <= expected:
            found.append(f"nothing failed, and hosts end with {sorted(codes)}, not {sorted(expected)}")
    died = [job.hosts[fault.host] for fault in faults if isinstance(fault, Dies) and not job.history.tolerates]
    if not stops and 0 in codes and any(host.is_gone and (_needed(job, host) or host.failures) for host in died):
        found.append("a host died before its ranks ended, and another ends with 0")
    if any(counted(job, host) for host in together) and not stops and 0 in codes:
        found.append("something failed, and a host ends with 0")
    return found


def _needed(job: Job, host: Host) -> bool:
    """Whether something runs on a host whose end the job waits for; services until the job's own roles are through."""
    known = any(isinstance(event, PeerLost) and event.host == host.name for _, event in job.hosts[0].events)
    return any(known or job.through_at == HORIZON or host.ends_of(key) == "job" for key in host.live)


def _causes(job: Job, together: list[Host]) -> list[str]:
    symptoms = [job.when(failure) for host in job.hosts for failure in host.failures if failure.is_symptom]
    known = min(symptoms, default=HORIZON) + TIMEOUTS.hold / 4
    causes = [failure for host in job.hosts for failure in host.failures if not failure.is_symptom]
    early = {failure.reason for failure in causes if job.when(failure) < known}
    real = {failure.reason for failure in (*causes, *(late for host in job.hosts for late in host.late))}
    real |= {failure.reason for host in job.hosts for failure in told_apart(host)}
    echoes = {failure.reason for host in job.hosts for failure in host.failures if failure.is_symptom}
    lost = any(isinstance(fault, (Dies, Freezes, Unplugs)) for fault in job.history.faults)
    found = []
    for host in together:
        _, where, reason = host.outcome
        if not reason or reason in real or (lost and "lost" in reason):
            continue
        if reason not in echoes:
            found.append(f"{host.name} ends with a failure that there was not: {reason} on {where}")
        elif early and not lost and not job.history.finish:
            found.append(f"{host.name} ends with an echo, {reason} on {where}, instead of {sorted(early)}")
    return found


def _order(job: Job, together: list[Host]) -> list[str]:
    """Whether of two causes, told at about the same time, the one that happened first is the root cause, whatever the
    hosts' clocks show; only where nothing was in the way of a word.
    """
    history = job.history
    if len(history.faults) > 2 or not all(isinstance(fault, Fails) for fault in history.faults) or history.restarts:
        return []
    causes = [failure for host in job.hosts for failure in host.failures if not failure.is_symptom]
    if len(causes) < 2 or max(history.latencies) > SHORT_WAY or len(together) < len(job.hosts):
        return []
    first, second = sorted(causes, key=job.when)[:2]
    apart = job.when(second) - job.when(first)
    ends = {host.outcome[2] for host in together}
    if job.when(first) > max(history.starts) + 1.0 and 0.001 < apart < 1.0 and ends != {first.reason}:
        return [f"the root cause is {sorted(ends)}, not {first.reason}, {apart:.3f} s before"]
    return []


def _times(job: Job) -> list[str]:
    """Whether the end came in time after the first failure or stop, where all hosts answer."""
    history = job.history
    if history.finish or history.outside or len(_together(job)) < len(job.hosts):
        return []
    first = [at for host in job.hosts for at, event in host.events if _ends_job(event) and at >= host.began]
    ends = [host.over_at for host in job.hosts if host.over_at is not None]
    if first and ends and max(ends) > min(first) + ENDING + max(history.drains) + history.rejoin:
        return [f"the job ends {max(ends) - min(first):.0f} s after its first failure or stop"]
    return []


def _ends_job(event: ev.Event) -> bool:
    return isinstance(event, (ev.StopAsked, ev.Broken, GroupEnded)) or (
        isinstance(event, (ev.RankEnded, ev.ServiceOrLauncherEnded)) and event.failure is not None
    )
