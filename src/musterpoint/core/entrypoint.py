"""One job on this host, from what the platform says to the exit code. Read this first.

Each step turns one typed value into the next::

    job/  ─Job─▶  code/  ─Workspace─▶  rollcall/  ─Roster─▶  launch/  ─LaunchPlan─▶  supervise/  ─Outcome─▶  report/

:mod:`musterpoint.core.prepare` has the steps that ``muster plan`` takes, too; :mod:`musterpoint.core.attempts` starts
the ranks and watches them; :mod:`musterpoint.core.finish` is the end.
"""

from typing import TYPE_CHECKING, Callable, Union

from musterpoint.base import settings
from musterpoint.base.errors import MusterError, UsageError
from musterpoint.base.failure import Failure
from musterpoint.base.settings import Settings
from musterpoint.core.attempt_hooks import check_results
from musterpoint.core.attempts import Attempt
from musterpoint.core.channel.peers import Peers
from musterpoint.core.finish import finish, outcome_of
from musterpoint.core.further_attempts import run_until_over
from musterpoint.core.job.model import Job
from musterpoint.core.job.read import read_job
from musterpoint.core.processes.received_signals import STOPPING
from musterpoint.core.ready import Prepared, Understood, prepare_this_host, refused, understood, with_own_folder
from musterpoint.core.rollcall.ports import hold_early
from musterpoint.core.rollcall.roll_call import RollCall
from musterpoint.core.rollcall.roster import Participant, Roster
from musterpoint.core.runtime import Request, Runtime
from musterpoint.core.started_per_rank.meeting import meet
from musterpoint.core.supervise.state import Outcome

if TYPE_CHECKING:
    from musterpoint.core.job_data.carrier import Carrier
    from musterpoint.core.started_per_rank.leader import Leader

Check = Callable[[Runtime, Request, Job, Settings, Roster, Peers], None]
"""A look at all hosts before the ranks start; raises :class:`CheckError` where the job shouldn't."""


def run(request: Request, check: Check | None = None) -> int:
    """Runs this host's part of the job. Returns the exit code of this process; every ending has left its report."""
    runtime, wrong = Runtime(request), request.wrong
    try:
        options, wrong = _options(request)
        job = read_job(request.environ, options, "", request.program, request.arguments, request.module)
        if wrong is not None and len(job.hosts) == 1:
            raise wrong
    except Exception as error:  # a bug of ours is reported, too
        return _end(runtime, outcome_of(wrong or error, runtime))
    try:
        others = _meet(runtime, request, options, job)
    except Exception as error:
        return _end(runtime, outcome_of(error, runtime, options.stop_exit_code))
    if isinstance(others, int):  # another entry point of this host has run the job
        runtime.close(ends=True)
        return others
    try:
        job, taken = with_own_folder(runtime, options, job)
        outcome = _run_job(runtime, understood(runtime, request, options, job), others, check, wrong or taken)
    except Exception as error:
        outcome = outcome_of(error, runtime, options.stop_exit_code)
    return _end(runtime, outcome, others)


def _meet(runtime: Runtime, request: Request, options: Settings, job: Job) -> "Union[Leader, int, None]":
    """The other entry points of this host, where the platform started one per rank and this one leads them; or the
    exit code, where another one does. None: this is the only one.
    """
    if job.started is None or job.started.local_size == 1:
        return None

    return meet(runtime, request.environ, job, job.started, options.secret)


def has_others(request: Request) -> bool:
    """Whether the job of a ``request`` that is wrong has several hosts, which this one can meet."""
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
    runtime: Runtime, asked: Understood, others: "Leader | None", check: Check | None, wrong: UsageError | None = None
) -> Outcome:
    """All steps in order. ``wrong``: what is wrong with this host's options; the other hosts are told."""
    for note in asked.job.notes:
        if note.level != "plan":
            runtime.console.say(f"{note.level}: {note.text}".removeprefix("info: "))
    hold_early(asked.job, asked.options, runtime.ports)
    prepared = refused(runtime, asked, wrong) if wrong is not None else prepare_this_host(runtime, asked, others)
    roster, peers = _call_the_roll(runtime, asked, prepared)
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


def _attempts(attempt: Attempt, roster: Roster, peers: Peers, carrier: "Carrier | None") -> Outcome:
    if not roster.max_restarts:
        return attempt.run(roster, peers)[1]

    return run_until_over(attempt, roster, peers, carrier)


def _call_the_roll(runtime: Runtime, asked: Understood, prepared: Prepared) -> tuple[Roster, Peers]:
    participant = Participant.of(asked.job, prepared.offer, asked.options)
    say, port = runtime.console.say, asked.job.master_port
    roll_call = RollCall(runtime.loop, participant, say, runtime.timeline.add, runtime.ports, master_port=port)

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


def _end(runtime: Runtime, outcome: Outcome, others: "Leader | None" = None) -> int:
    finish(runtime, outcome)
    if others is not None:
        others.end(outcome.code)
    runtime.close(ends=True)
    return outcome.code
