"""One job on this host, from what the platform says to the exit code. Read this first.

Each step turns one typed value into the next, in :func:`_road`::

    Request ─▶ JobContext ─▶ Part ─▶ Roster ─▶ LaunchPlan ─▶ Outcome

:mod:`musterpoint.core.prepare` makes this host's part, which the roll call, the check of all hosts and the job's data
narrow; :mod:`musterpoint.core.attempt` plans it, starts it and waits for it; :func:`_finish` is the end.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Callable

from musterpoint import __version__
from musterpoint.base import exit_codes, settings
from musterpoint.base.errors import PREPARING, MusterError, StoppedEarly
from musterpoint.base.exit_codes import STOPPED
from musterpoint.base.settings import OUTER, Settings
from musterpoint.core.attempt import Attempt
from musterpoint.core.channel.peers import Peers
from musterpoint.core.code.unwrap import ReadLine, unwrapped
from musterpoint.core.job.directories import forget_others, is_own
from musterpoint.core.job.model import Job
from musterpoint.core.job.read import read_job
from musterpoint.core.part import JobContext, Part, Ready, Refused, Stopped, met
from musterpoint.core.prepare import free_ports, prepare, understand, with_line
from musterpoint.core.processes.received_signals import STOPPING
from musterpoint.core.report import files, output_directory
from musterpoint.core.rollcall.agreed_ports import hold_early, next_master_port, rollcall_port
from musterpoint.core.rollcall.roll_call import RollCall, Seams
from musterpoint.core.rollcall.roster import Offer, Participant, Roster
from musterpoint.core.runtime import Request, Runtime
from musterpoint.core.supervise.context import LedByAnother, OtherEntryPoints
from musterpoint.core.supervise.state import Outcome

Check = Callable[[Runtime, Request, Job, Settings, Roster, Peers], None]
"""A look at all hosts before the ranks start; raises :class:`CheckError` where the job shouldn't."""


def run(request: Request, check: Check, read: ReadLine | None = None) -> int:
    """Runs this host's part of the job. Returns the exit code of this process; every ending has left its report.

    ``read``: reads command lines of ours, for a program that is wholly one.
    """
    if OUTER in request.environ:  # this may be a launch in the program of another job of ours
        from musterpoint.core.supervise.loan import below

        return below(request, Runtime, partial(_run, check=check, read=read), _finish)
    return _run(Runtime(request), _finish, check, read)


def _run(runtime: Runtime, end: Callable[[Runtime, Outcome], None], check: Check, read: ReadLine | None) -> int:
    others: OtherEntryPoints = OtherEntryPoints()
    stop_code = STOPPED
    try:
        context = _asked(runtime, read)
        stop_code = context.options.stop_exit_code
        others = _meet(runtime, context)
        outcome = _road(runtime, context, others, check, read)
    except LedByAnother as led:
        runtime.close(ends=True)
        return int(led.args[0])
    except Exception as error:  # a bug of ours is reported, too
        outcome = _outcome_of(error, runtime, stop_code)
    end(runtime, outcome)
    others.end(outcome.code)
    runtime.close(ends=True)
    return outcome.code


def _asked(runtime: Runtime, read: ReadLine | None) -> JobContext:
    """The job that this process was asked for.

    Raises:
        MusterError: there is none, or its options are wrong and it has no other hosts, which were to be told.
    """
    context = _understood(runtime.request)
    request, _, job, wrong = context
    if not wrong and request.program is not None:  # the platform's program is known once its code is here
        found = unwrapped(job, request.given, request.environ, "", read)
        context = with_line(runtime, request, found) if found else context
    loan = context.request.loan
    context = context if loan is None else context.with_job(loan.job(context.job))
    if wrong and len(context.job.hosts) == 1:
        raise wrong[0]
    return context


def _understood(request: Request) -> JobContext:
    """The job of ``request``, and errors of its options for the others to hear.

    Raises:
        MusterError: there is none, or they can't be told.
    """
    options, unread = settings.enough_to_meet(request.environ, request.given)
    wrong = unread if request.wrong is None else (request.wrong,)
    try:
        job = read_job(request.environ, options, "", request.program, request.arguments, request.module)
    except MusterError as error:
        raise (*wrong, error)[0] from None
    return JobContext(request, options, job, wrong)


def has_others(request: Request) -> bool:
    """Tells that the job of a wrong ``request`` has hosts that can be met. A launch in another job's program may."""
    try:
        return OUTER in request.environ or len(_understood(request).job.hosts) > 1
    except MusterError:
        return False


def _meet(runtime: Runtime, context: JobContext) -> OtherEntryPoints:
    """The other entry points of this host, where the platform started one per rank and this one leads them.

    Raises:
        LedByAnother: another one leads, and has run the job.
    """
    started = context.job.started
    if started is None or started.local_size == 1:
        return OtherEntryPoints()
    from musterpoint.core.started_per_rank.meeting import meet

    return meet(runtime, context.request.environ, context.job, started, context.options.secret)


def _road(
    runtime: Runtime, context: JobContext, others: OtherEntryPoints, check: Check, read: ReadLine | None
) -> Outcome:
    """All steps in order."""
    context = understand(runtime, context)
    if not context.options.asks_for_roles:  # else the host that leads is known by the job's file
        hold_early(context.job, context.options, runtime.ports)
    context, part = prepare(runtime, context, others, read)
    roster, peers = _call_the_roll(runtime, context, part)
    context, part = _settled(runtime, context, roster), met(part, roster)
    part = _checked(runtime, context, part, roster, peers, check)
    runtime.output.reserve()
    again: Callable[[Part, int], Part] = lambda part, _attempt: part  # noqa: E731
    if context.options.has_data:
        from musterpoint.core.job_data.before import bring_data  # 9 ms, for jobs with data

        context, part, again = bring_data(runtime, context, part, roster, peers)
    attempt = Attempt(runtime, context, others)
    if roster.max_restarts:
        outcome = _attempts(attempt, part, roster, peers, again)
    else:
        _, outcome = attempt.run(part, roster, peers)
    runtime.ports.keep(())
    _end_watchers(runtime, outcome)
    peers.close()
    return outcome


def _call_the_roll(runtime: Runtime, context: JobContext, part: Part) -> tuple[Roster, Peers]:
    """All hosts meet, also those that can't run their part: the others would wait for them.

    Raises:
        MusterError: not all are here.
        StoppedEarly: one was told to stop.
    """
    request, options, job, _ = context
    offer = part.offer if isinstance(part, Ready) else Offer(job.name, "", 0, __version__, capacity=0)
    addresses, seams = dict[str, tuple[str, ...]](), Seams()
    if request.loan is not None:
        offer, addresses, seams = request.loan.in_roll_call(offer, job.entry_point.program)
    participant = Participant.of(job, offer, options)
    say, port = runtime.console.say, job.master_port
    roll_call = RollCall(runtime.loop, participant, say, runtime.timeline.add, runtime.ports, addresses, seams, port)

    def on_signal(signo: int) -> None:
        if signo in STOPPING and not roll_call.stop(signo):
            runtime.signals.keep(signo)

    runtime.signals.route_to(on_signal)
    if isinstance(part, Stopped):
        roll_call.report_stop(StoppedEarly(job.own_name, part.signal, PREPARING))
    roster, peers = roll_call.run()
    if roster.is_whole and len(roster.seats) > 1 and roster.me == roster.leader:
        say(roster.summary(offer.launcher, offer.independent))
    return roster, peers


def _settled(runtime: Runtime, context: JobContext, roster: Roster) -> JobContext:
    """The job with the hosts' names and order from the roll call."""
    runtime.kept["start"] = roster.start
    runtime.timeline.add("hosts-met", start=roster.start)
    forget_others(context.job)
    job = roster.settled(context.job)
    if job.roles:
        runtime.kept["roles"] = {role.name: list(role.hosts) for role in job.roles}
    if job is not context.job:
        runtime.set_job(job)
    return context.with_job(job)


def _checked(runtime: Runtime, context: JobContext, part: Part, roster: Roster, peers: Peers, check: Check) -> Part:
    """``part``, or the error of a check of all hosts, where one was asked for."""
    if context.options.check == "off" or roster.attempt:
        return part
    try:
        check(runtime, context.request, context.job, context.options, roster, peers)
    except MusterError as error:
        return Refused(runtime.failure_of(error))
    return part


def _attempts(
    attempt: Attempt, part: Part, roster: Roster, peers: Peers, again: Callable[[Part, int], Part]
) -> Outcome:
    """The outcome of the last of a job's attempts, on the same hosts, until one ends well or no other may follow.
    ``again`` gives this host's part in another one, by its number.
    """
    from musterpoint.core.supervise.restart_rules import (
        RestartRules,  # 4 ms with the next, for jobs that may be repeated
    )
    from musterpoint.core.supervise.restarts import Between, Restarts, fingerprint

    runtime, (_request, options, job, _) = attempt.runtime, attempt.context

    def ports() -> tuple[int, ...]:
        try:
            found = free_ports(job, options, part.host, runtime.ports) if isinstance(part, Ready) else ()
            return (*found, *runtime.watchers.ports)
        except MusterError:  # the plan says so
            return roster.seat.ports

    between = Between(
        runtime.loop,
        lambda text: runtime.console.say(text, runtime.masker.mask_user),
        runtime.timeline.add,
        runtime.signals.route_to,
        ports,
        lambda last: next_master_port(options.master_port, last, runtime.ports),
        lambda: fingerprint((job.paths.checkpoints, job.paths.model)),
        options.stop_exit_code,
    )
    rules = RestartRules(options.max_restarts, options.restart_on, options.rejoin_timeout)
    restarts = Restarts(between, peers, roster, rules)
    following: Roster | Outcome = roster
    this = part
    while isinstance(following, Roster):
        following = restarts.after(*attempt.run(this, following, peers))
        if isinstance(following, Roster):
            own = (following.master_port, following.launch_port, rollcall_port(job, options))
            runtime.ports.keep({*own, *following.seat.ports, *following.seat.master_ports})
            this = again(part, following.attempt)
    return following


def _outcome_of(error: Exception, runtime: Runtime, stop_code: int) -> Outcome:
    """What an error, or a stop before the ranks, means for the job; it is said."""
    if isinstance(error, StoppedEarly):
        runtime.console.say(str(error))
        return Outcome(exit_codes.of_job(0, error.signal, stop_code), None, error.host)
    failure = runtime.failure_of(error)
    runtime.console.say(failure.reason.removeprefix("muster: "))
    return Outcome(failure.code, failure)


def _end_watchers(runtime: Runtime, outcome: Outcome) -> None:
    """Ends what looked on beside the ranks, which may take long: a failure is reported before."""
    if outcome.code and runtime.watchers.all:
        runtime.open_output()
        files.write(outcome, runtime.paths, runtime.output, runtime.request.environ, data=runtime.kept)
    runtime.kept.update(runtime.watchers.ends(outcome))


def _finish(runtime: Runtime, outcome: Outcome) -> None:
    """Writes the reports, and returns files to their owner; the platform may end the container then. Raises nothing."""
    runtime.open_output()
    _report(runtime, outcome)
    for problem in files.write_timeline(runtime.timeline, runtime.output, runtime.masker.mask_facts):
        runtime.console.say(f"warning: {problem}")
    runtime.output.close()
    output_directory.give_back(runtime.paths)


def _report(runtime: Runtime, outcome: Outcome) -> None:
    for problem in files.write(outcome, runtime.paths, runtime.output, runtime.request.environ, data=runtime.kept):
        runtime.console.say(f"warning: {problem}")
    if outcome.failure is None or not runtime.leads:
        return
    hint = next((line for line in outcome.failure.reason.splitlines() if line.startswith("hint: ")), "")
    if hint and not runtime.request.environ.get(settings.LOCAL):  # muster local shows the whole reason
        runtime.console.say(hint)
    if is_own(runtime.paths.failure):
        try:
            kept = os.path.getsize(runtime.paths.failure) > 0
        except OSError:
            kept = False
        where = f"is in {runtime.paths.failure}" if kept else f"could not be kept:\n{outcome.failure.reason}"
        runtime.console.say(f"the whole reason {where}")
