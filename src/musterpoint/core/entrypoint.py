"""One job on this host, from what the platform says to the exit code. Read this first.

Each step turns one typed value into the next::

    job/  ─Job─▶  code/  ─Workspace─▶  rollcall/  ─Roster─▶  launch/  ─LaunchPlan─▶  supervise/  ─Outcome─▶  report/

:mod:`musterpoint.core.prepare` has the steps that ``muster plan`` takes, too; :mod:`musterpoint.core.attempts` starts
the ranks and watches them; :func:`_finish` is the end.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Callable, Union

from musterpoint.base import exit_codes, settings
from musterpoint.base.errors import MusterError, StoppedEarly, UsageError
from musterpoint.base.exit_codes import STOPPED
from musterpoint.base.failure import Failure
from musterpoint.base.settings import OUTER, Settings
from musterpoint.core.attempts import Attempt, check_results
from musterpoint.core.channel.peers import Peers
from musterpoint.core.code.unwrap import ReadLine, unwrapped
from musterpoint.core.job.directories import forget_others, is_own
from musterpoint.core.job.model import Job
from musterpoint.core.job.read import read_job
from musterpoint.core.prepare import free_ports
from musterpoint.core.processes.received_signals import STOPPING
from musterpoint.core.ready import (
    Prepared,
    Understood,
    below,
    prepare_this_host,
    refused,
    understood,
    with_line,
    with_own_folder,
)
from musterpoint.core.report import files, output_directory
from musterpoint.core.rollcall.ports import hold_early, next_master_port, rollcall_port
from musterpoint.core.rollcall.roll_call import RollCall
from musterpoint.core.rollcall.roster import Participant, Roster
from musterpoint.core.runtime import Request, Runtime
from musterpoint.core.supervise.state import Outcome

if TYPE_CHECKING:
    from musterpoint.core.job_data.carrier import Carrier
    from musterpoint.core.started_per_rank.leader import Leader
    from musterpoint.core.supervise.loan import Lender

Check = Callable[[Runtime, Request, Job, Settings, Roster, Peers], None]
"""A look at all hosts before the ranks start; raises :class:`CheckError` where the job shouldn't."""


def run(request: Request, check: Check | None = None, read: ReadLine | None = None) -> int:
    """Runs this host's part of the job. Returns the exit code of this process; every ending has left its report.

    ``read``: reads command lines of ours, for a program that is wholly one.
    """
    if OUTER in request.environ:  # this may be a launch in the program of another job of ours
        return below(request, lambda lent, lender: _run(lent, check, read, lender))
    return _run(request, check, read)


def _run(request: Request, check: Check | None, read: ReadLine | None, lender: Lender | None = None) -> int:
    runtime, wrong = Runtime(request), request.wrong
    if lender is not None:
        runtime.timeline.pass_on(lender.tell)
        lender.watch(runtime.loop)
    try:
        options, wrong = _options(request)
        job = read_job(request.environ, options, "", request.program, request.arguments, request.module)
        if wrong is None and request.program is not None:  # the platform's program is known once its code is here
            found = unwrapped(job, request.given, request.environ, "", read)
            request, options, job = with_line(runtime, request, found) if found else (request, options, job)
        job = job if request.loan is None else request.loan.job(job)
        if wrong is not None and len(job.hosts) == 1:
            raise wrong
    except Exception as error:  # a bug of ours is reported, too
        return _end(runtime, _outcome_of(wrong or error, runtime), lender=lender)
    try:
        others = _meet(runtime, request, options, job)
    except Exception as error:
        return _end(runtime, _outcome_of(error, runtime, options.stop_exit_code), lender=lender)
    if isinstance(others, int):  # another entry point of this host has run the job
        runtime.close(ends=True)
        return others
    try:
        job, taken = with_own_folder(runtime, options, job) if lender is None else (job, None)
        asked = understood(runtime, request, options, job)
        outcome = _run_job(runtime, asked, others, check, read, wrong or taken)
    except Exception as error:
        outcome = _outcome_of(error, runtime, options.stop_exit_code)
    return _end(runtime, outcome, others, lender)


def _meet(runtime: Runtime, request: Request, options: Settings, job: Job) -> Union[Leader, int, None]:
    """The other entry points of this host, where the platform started one per rank and this one leads them; or the
    exit code, where another one does. None: this is the only one.
    """
    if job.started is None or job.started.local_size == 1:
        return None
    from musterpoint.core.started_per_rank.meeting import meet

    return meet(runtime, request.environ, job, job.started, options.secret)


def has_others(request: Request) -> bool:
    """The job of a ``request`` that is wrong has several hosts, and this one can meet them. A launch in another job's
    program may have them.
    """
    if OUTER in request.environ:
        return True
    options = settings.enough_to_meet(request.environ, request.given)
    if options is None:
        return False
    try:
        job = read_job(request.environ, options, "", request.program, request.arguments, request.module)
    except MusterError:
        return False
    return len(job.hosts) > 1


def _options(request: Request) -> tuple[Settings, UsageError | None]:
    """The options; and why some can't be read, where the rest is enough to tell the other hosts.

    Raises:
        UsageError: they can't be read.
    """
    try:
        if request.wrong is not None:
            raise request.wrong
        return settings.from_environ(request.environ, request.given), None
    except UsageError as error:
        options = settings.enough_to_meet(request.environ, request.given)
        if options is None:
            raise
        return options, error


def _run_job(
    runtime: Runtime,
    asked: Understood,
    others: Leader | None,
    check: Check | None,
    read: ReadLine | None,
    wrong: UsageError | None = None,
) -> Outcome:
    """All steps in order. ``wrong``: what is wrong with this host's options; the other hosts are told."""
    for note in asked.job.notes:
        if note.level != "plan":
            runtime.console.say(f"{note.level}: {note.text}".removeprefix("info: "))
    hold_early(asked.job, asked.options, runtime.ports)
    prepared = refused(runtime, asked, wrong) if wrong is not None else prepare_this_host(runtime, asked, others, read)
    roster, peers = _call_the_roll(runtime, prepared.asked, prepared)
    runtime.kept["start"] = roster.start
    runtime.timeline.add("hosts-met", start=roster.start)
    forget_others(asked.job)
    settled = prepared.asked.on(roster)
    if settled.job is not asked.job:
        runtime.set_job(settled.job)
    if not roster.is_whole:  # the host that can't run its part tells why
        prepared = prepared._replace(host=None)
    refusal = _check(runtime, settled, roster, peers, check) or prepared.refused_by(settled)
    runtime.output.reserve()
    carrier = None
    if settled.options.has_data and refusal is None and prepared.host is not None:
        interpreter = prepared.host.workspace.interpreter
        from musterpoint.core.job_data.carrier import Carrier  # 9 ms, for jobs with data

        carrier = Carrier(runtime, settled, interpreter, peers, roster.session, roster.attempt)
        settled, may_start, refusal = carrier.bring()
        prepared = prepared if may_start else prepared._replace(host=None)
    outcome = _attempts(Attempt(runtime, settled, prepared.host, refusal, others), roster, peers, carrier)
    runtime.ports.keep(())
    if carrier is not None:
        carrier.send(outcome)
    peers.close()
    if not outcome.code and prepared.host is not None:
        check_results(runtime, settled, prepared.host.choice.launcher)
    return outcome


def _attempts(attempt: Attempt, roster: Roster, peers: Peers, carrier: Carrier | None) -> Outcome:
    if not roster.max_restarts:
        return attempt.run(roster, peers)[1]
    return _run_until_over(attempt, roster, peers, carrier)


def _call_the_roll(runtime: Runtime, asked: Understood, prepared: Prepared) -> tuple[Roster, Peers]:
    offer, addresses, seams = prepared.offer, None, None
    if asked.request.loan is not None:
        offer, addresses, seams = asked.request.loan.in_roll_call(offer, asked.job.entry_point.program)
    participant = Participant.of(asked.job, offer, asked.options)
    say, port = runtime.console.say, asked.job.master_port
    roll_call = RollCall(runtime.loop, participant, say, runtime.timeline.add, runtime.ports, addresses, seams, port)

    def on_signal(signo: int) -> None:
        if signo in STOPPING and not roll_call.stop(signo):
            runtime.signals.keep(signo)

    runtime.signals.route_to(on_signal)
    roster, peers = roll_call.run(prepared.stop)
    if roster.is_whole and len(roster.seats) > 1 and roster.me == roster.group[0].name:
        say(roster.summary(prepared.offer.launcher, prepared.offer.independent))
    return roster, peers


def _check(runtime: Runtime, settled: Understood, roster: Roster, peers: Peers, check: Check | None) -> Failure | None:
    """Why the job shouldn't start, by the look at all hosts that was asked for."""
    if check is None or settled.options.check == "off" or roster.attempt:
        return None
    try:
        check(runtime, settled.request, settled.job, settled.options, roster, peers)
    except MusterError as error:
        return runtime.failure_of(error)
    return None


def _end(runtime: Runtime, outcome: Outcome, others: Leader | None = None, lender: Lender | None = None) -> int:
    if lender is None:
        _finish(runtime, outcome)
    else:
        lender.ended(outcome)
    if others is not None:
        others.end(outcome.code)
    runtime.close(ends=True)
    return outcome.code


def _run_until_over(attempt: Attempt, roster: Roster, peers: Peers, carrier: Carrier | None) -> Outcome:
    """The outcome of the last of a job's attempts, on the same hosts, until one ends well or no other may follow.

    ``carrier`` has the job's data, where it has any."""
    runtime, (_request, options, job) = attempt.runtime, attempt.asked

    def ports() -> tuple[int, ...]:
        try:
            found = free_ports(job, options, attempt.host, runtime.ports) if attempt.host is not None else ()
            return found if runtime.ssh is None else (*found, runtime.ssh.port)
        except MusterError:  # the plan says so
            return roster.seat.ports

    from musterpoint.core.supervise.restart_rules import (
        RestartRules,  # 4 ms with the next, for jobs that may be repeated
    )
    from musterpoint.core.supervise.restarts import Between, Restarts, fingerprint

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
    while isinstance(following, Roster):
        this = attempt
        if following is not roster and carrier is not None:
            may_start, refusal = carrier.again(following.attempt)
            this = attempt if may_start else attempt._replace(host=None, refusal=refusal or attempt.refusal)
        following = restarts.after(*this.run(following, peers))
        if isinstance(following, Roster):
            own = (following.master_port, following.launch_port, rollcall_port(job, options))
            runtime.ports.keep({*own, *following.seat.ports})
    return following


def _outcome_of(error: Exception, runtime: Runtime, stop_code: int = STOPPED) -> Outcome:
    """What an error, or a stop before the ranks, means for the job; it is said."""
    if isinstance(error, StoppedEarly):
        runtime.console.say(str(error))
        return Outcome(exit_codes.of_job(0, error.signal, stop_code), None, error.host)
    failure = runtime.failure_of(error)
    runtime.console.say(failure.reason.removeprefix("muster: "))
    return Outcome(failure.code, failure)


def _finish(runtime: Runtime, outcome: Outcome) -> None:
    """Uploads what is left of the outputs, writes the reports and returns files to their owner. Raises nothing.

    A failure is reported before the last uploads, in case they hang; a success after them, since the platform may end
    the container then.
    """
    runtime.open_output()
    if outcome.code:
        _report(runtime, outcome)
    _finish_sync(runtime, outcome)
    if not outcome.code:
        _report(runtime, outcome)
    _write_timeline(runtime)
    runtime.output.close()
    _give_back(runtime)


def _finish_sync(runtime: Runtime, outcome: Outcome) -> None:
    """The final upload of intermediate outputs. After a stop it gets the rest of the platform's grace."""
    sync = runtime.sync
    if sync is not None:
        runtime.signals.route_to(sync.on_signal)
        left = None if outcome.stopped_at is None else outcome.stopped_at + sync.grace - runtime.loop.clock()
        sync.finish(left)


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


def _write_timeline(runtime: Runtime) -> None:
    for problem in files.write_timeline(runtime.timeline, runtime.output, runtime.masker.mask_facts):
        runtime.console.say(f"warning: {problem}")


def _give_back(runtime: Runtime) -> None:
    output_directory.give_back(runtime.paths)
