"""One job on this host, from what the platform says to the exit code. Read this first.

Each step turns one typed value into the next::

    job/  ─Job─▶  code/  ─Workspace─▶  rollcall/  ─Roster─▶  launch/  ─LaunchPlan─▶  supervise/  ─Outcome─▶  report/

:mod:`musterpoint.core.prepare` has the steps that ``muster plan`` takes, too; :mod:`musterpoint.core.finish` is the
end.
"""

import signal
import sys
from typing import TYPE_CHECKING, Callable, NamedTuple

from musterpoint.base import exit_codes, settings
from musterpoint.base.errors import MusterError, StoppedEarly
from musterpoint.base.failure import Failure
from musterpoint.base.settings import Settings
from musterpoint.base.stop_budget import rank_grace
from musterpoint.core.channel.peers import Peers
from musterpoint.core.finish import finish
from musterpoint.core.job import platforms
from musterpoint.core.job.directories import made
from musterpoint.core.job.hyperparameters import text_value
from musterpoint.core.job.model import Job
from musterpoint.core.job.read import read_job
from musterpoint.core.launch.plan import LaunchPlan
from musterpoint.core.launch.table import find
from musterpoint.core.prepare import (
    PreparedHost,
    empty_offer,
    free_ports,
    named_job,
    offer_of,
    ordered_job,
    plan_host,
    prepare_host,
    user_environment,
    warn_of_build_locks,
    what_is_wanted,
)
from musterpoint.core.processes.pump import Pump
from musterpoint.core.processes.signals import STOPPING
from musterpoint.core.processes.streams import OutputOptions, Prefix, ranks_of
from musterpoint.core.rollcall.ports import is_free, next_master_port
from musterpoint.core.rollcall.roll_call import RollCall
from musterpoint.core.rollcall.roster import Offer, Participant, Roster
from musterpoint.core.runtime import Request, Runtime
from musterpoint.core.supervise.context import RankTerminal, SupervisorContext
from musterpoint.core.supervise.state import SHORTEST_START, Outcome, Rules
from musterpoint.core.supervise.supervisor import Supervisor

if TYPE_CHECKING:
    from musterpoint.base.failure import Failure
    from musterpoint.core.diagnosis.facts import JobFacts
    from musterpoint.core.started_per_rank import Leader


Check = Callable[[Runtime, Request, Job, Settings, Roster, Peers], None]
"""A look at all hosts before the ranks start; raises :class:`CheckError` where the job shouldn't."""


def run(request: Request, check: Check | None = None) -> int:
    """Runs this host's part of the job. Returns the exit code of this process; every ending has left its report."""
    runtime = Runtime(request)
    options = Settings()
    others: Leader | None = None
    try:
        options = settings.from_environ(request.environ, request.given)
        job = read_job(request.environ, options, "", request.program, request.arguments, request.module)
        if job.started is not None and job.started.local_size > 1:
            from musterpoint.core.started_per_rank import meet

            met = meet(runtime, request.environ, job, job.started, options.secret)
            if isinstance(met, int):
                runtime.close(ends=True)
                return met
            others = met
        runtime.watch_pid1(options.pid1_watch)
        job, said = made(job)
        runtime.set_job(job)
        if said and runtime.leads:
            runtime.console.say(said)
        request = request._replace(environ=user_environment(request.environ, options.python))
        outcome = _run_job(runtime, request, job, options, others, check)
    except StoppedEarly as stop:
        outcome = Outcome(exit_codes.of_job(0, stop.signal, options.stop_exit_code), None, stop.host)
        runtime.console.say(str(stop))
    except Exception as error:  # a bug of ours is reported, too
        failure = runtime.failure_of(error)
        outcome = Outcome(failure.code, failure)
        runtime.console.say(failure.reason.removeprefix("muster: "))
    finish(runtime, outcome)
    if others is not None:
        others.end(outcome.code)
    runtime.close(ends=True)
    return outcome.code


def _run_job(
    runtime: Runtime, request: Request, job: Job, options: Settings, others: "Leader | None", check: Check | None
) -> Outcome:
    """All steps in order. A host that can't run its part, or was stopped, still takes part in the roll call: the others
    would wait for it.
    """
    for note in job.notes:
        if note.level != "plan":
            runtime.console.say(f"{note.level}: {note.text}".removeprefix("info: "))
    host, refusal, stop = None, None, None
    offer = empty_offer(job)
    try:
        host, offer = _prepare(runtime, request, job, options)
        runtime.timeline.add("host-prepared", launcher=offer.launcher)
        _say_what_has_no_effect(runtime, request, job, options, host)
        if others is not None:
            others.gather(options.rollcall_timeout)
    except StoppedEarly as error:
        stop = error
    except MusterError as error:
        refusal = runtime.failure_of(error)
    roster, peers = _call_the_roll(runtime, job, options, offer, stop)
    if job.unnamed is not None:
        if refusal is not None:
            refusal = refusal._replace(host=roster.me)
        job = named_job(job, roster)
        runtime.set_job(job)
    elif options.host_order == "topology":
        job = ordered_job(job, roster)
        runtime.set_job(job)
    if check is not None and options.check != "off" and not roster.attempt:
        try:
            check(runtime, request, job, options, roster, peers)
        except MusterError as error:
            refusal = runtime.failure_of(error)
    runtime.output.reserve()
    if notices := platforms.load(job.platform).notices:
        runtime.loop.call_later(0, lambda: runtime.watch_scheduled_events(notices))  # when the ranks have been started
    attempt = Attempt(runtime, request, job, options, host, refusal, others)
    if roster.max_restarts:
        outcome = _with_restarts(attempt, roster, peers)
    else:
        _supervisor, outcome = attempt.run(roster, peers)
    peers.close()
    afterwards = find(host.choice.launcher).afterwards if host is not None else None
    asked = afterwards is not None and job.in_group and roster.me == job.leader and not outcome.code
    if asked and afterwards is not None and (warning := afterwards(job.paths)):
        runtime.console.say(f"warning: {warning}")
    return outcome


class Attempt(NamedTuple):
    """What the attempts of a job have in common; most jobs have one. ``refusal``: why this host can't run its part."""

    runtime: Runtime
    request: Request
    job: Job
    options: Settings
    host: PreparedHost | None
    refusal: Failure | None
    others: "Leader | None"

    def run(self, roster: Roster, peers: Peers) -> tuple[Supervisor, Outcome]:
        """Plans this host's part and runs it until nothing of it is left."""
        runtime, job, options, environ = self.runtime, self.job, self.options, self.request.environ
        plan, refusal = None, self.refusal
        if self.host is not None:
            try:
                plan = plan_host(job, options, self.host, roster, environ)
            except MusterError as error:
                refusal = runtime.failure_of(error)
            else:
                runtime.masker.know_named((setting.name, setting.value) for setting in plan.environment)
                for text in plan.notes:
                    runtime.console.say(text)
                for setting in plan.environment:
                    if setting.name == settings.PROGRESS:
                        runtime.watch_progress(setting.value)
                if runtime.sync is None and text_value(job.hyperparameters, "sagemaker_s3_output"):
                    runtime.start_sync(job, options, environ, self.host.workspace.interpreter)
        runtime.loop.call_later(0, lambda: warn_of_build_locks(environ, runtime.console.say))
        if plan is not None and self.host is not None and self.host.devices.gpus and not roster.attempt:
            _watch_gpus(runtime, self.request)
        pump = _pump(job, options, plan, settings.SHOW_RANKS in environ)
        runtime.console.write_through(pump.write_message)
        for rank, (out, err) in self.others.outlets.items() if self.others is not None else ():
            pump.give(rank, out, err)
        facts = lambda: _facts(job, plan, self.request)  # noqa: E731
        context = _context(runtime, job, pump)._replace(
            others=self.others,
            about_job=facts,
            ssh=runtime.ssh,
            terminal=RankTerminal.from_variable(environ.get(settings.TERMINAL, "")),
            code_copy_of=environ.get(settings.CODE_COPY_OF, ""),
        )
        rules = _rules(job, options, plan, self.host)
        supervisor = Supervisor(context, rules, peers, roster)
        runtime.masker.know(supervisor.token)
        runtime.signals.route_to(supervisor.on_signal)
        outcome = supervisor.run(plan, settings.without_own(environ), refusal)
        pump.close()
        return supervisor, outcome


def _with_restarts(attempt: Attempt, roster: Roster, peers: Peers) -> Outcome:
    """Attempts of the job, on the same hosts, until one ends well or there may be no other."""
    from musterpoint.core.supervise.checkpoints import fingerprint
    from musterpoint.core.supervise.restart_rules import RestartRules
    from musterpoint.core.supervise.restarts import Between, Restarts

    runtime, options, job = attempt.runtime, attempt.options, attempt.job

    def ports() -> tuple[int, ...]:
        try:
            ports = free_ports(job, options, attempt.host) if attempt.host is not None else ()
            return ports if runtime.ssh is None else (*ports, runtime.ssh.port)
        except MusterError:  # the plan says so
            return roster.seat.ports

    between = Between(
        runtime.loop,
        lambda text: runtime.console.say(text, runtime.masker.mask_user),
        runtime.timeline.add,
        runtime.signals.route_to,
        ports,
        lambda last: next_master_port(options.master_port, last, is_free),
        lambda: fingerprint((job.paths.checkpoints, job.paths.model)),
        options.stop_exit_code,
    )
    rules = RestartRules(options.max_restarts, options.restart_on, options.rejoin_timeout)
    restarts = Restarts(between, peers, roster, rules)
    while True:
        following = restarts.after(*attempt.run(roster, peers))
        if isinstance(following, Outcome):
            return following
        roster = following


def _prepare(runtime: Runtime, request: Request, job: Job, options: Settings) -> tuple[PreparedHost, Offer]:
    # a program from a command line is here already, and its packages are left to the user unless an installer is named
    asked = request.program is None or bool(options.requirements) or options.installer in ("pip", "uv")
    tools = (lambda: runtime.tools(job, options)) if asked else None
    wanted = what_is_wanted(job, options, request.environ, runtime.ask)
    host = prepare_host(wanted, request.environ, request.typed, tools, runtime.ask)
    offer = offer_of(job, options, host)
    if host.ssh is None:
        return host, offer
    door = runtime.open_ssh(host.ssh, request.environ)
    return host, offer._replace(ports=(*offer.ports, door.port), ssh_key=door.key)


def _say_what_has_no_effect(
    runtime: Runtime, request: Request, job: Job, options: Settings, host: PreparedHost
) -> None:
    typed = request.program is not None
    if not request.given and not typed and not any(name.startswith("MUSTER_") for name in request.environ):
        return
    from musterpoint.core.unheeded import unheeded

    for text in unheeded(job, options, request.environ, request.given, host.choice, typed):
        runtime.console.say(text)


def _call_the_roll(
    runtime: Runtime, job: Job, options: Settings, offer: Offer, stop: StoppedEarly | None
) -> tuple[Roster, Peers]:
    if job.rollcall_port and options.rollcall_port == settings.ROLLCALL_PORT:
        options = options._replace(rollcall_port=job.rollcall_port)
    participant = Participant(job.hosts, job.group_hosts, job.own_name, offer, options, job.unnamed)
    roll_call = RollCall(
        runtime.loop, participant, runtime.console.say, runtime.timeline.add, master_port=job.master_port
    )

    def on_signal(signo: int) -> None:
        if signo in STOPPING and not roll_call.stop(signo):
            runtime.signals.keep(signo)

    runtime.signals.route_to(on_signal)
    roster, peers = roll_call.run(stop)
    if offer.launcher and len(roster.seats) > 1 and roster.me == roster.group[0].name:
        runtime.console.say(roster.summary(offer.launcher, offer.independent))
    return roster, peers


def _watch_gpus(runtime: Runtime, request: Request) -> None:
    """Warns of GPUs that the job leaves idle, once its programs have had the time to open them."""
    from musterpoint.core.processes.idle_gpus import AFTER, warn_of_idle

    def look() -> None:
        from musterpoint.core.fabric.gpus import seen_gpus, survey_gpus

        gpus = [gpu.number for gpu in seen_gpus(survey_gpus(), request.environ)]
        warn_of_idle(gpus, runtime.console.say)

    runtime.loop.call_later(AFTER, look)


def _pump(job: Job, options: Settings, plan: LaunchPlan | None, show_ranks: bool) -> Pump:
    """``show_ranks``: each line has its rank where this host has several, unless the job's options say otherwise."""
    ranks = ranks_of(options.log_ranks, plan.first_rank if plan else 0)
    several: Prefix = "rank" if show_ranks and plan is not None and plan.local_ranks > 1 else "none"
    output = OutputOptions(options.log_prefix or several, job.current_host, ranks, options.log_dir)
    return Pump(output, streams=plan.local_ranks if plan else 1)


def _context(runtime: Runtime, job: Job, pump: Pump) -> SupervisorContext:
    mask = runtime.masker.mask_user  # failures quote the user's program
    return SupervisorContext(
        runtime.loop,
        pump,
        runtime.sidecars,
        lambda text: runtime.console.say(text, mask),
        runtime.timeline.add,
        job.current_host,
        mask,
        job.paths.code,
        keep=lambda name, content: _keep(job, name, content),
    )


def _facts(job: Job, plan: LaunchPlan | None, request: Request) -> "JobFacts":
    """What a failure's hint depends on."""
    from musterpoint.core.diagnosis.facts import JobFacts

    local = bool(request.environ.get(settings.LOCAL)) or ":local:" in job.arn
    channels = tuple(channel.name for channel in job.channels)
    return JobFacts(
        platforms.load(job.platform).missing_channel,
        local,
        channels,
        plan.launcher if plan else "",
        plan.local_ranks if plan else 0,
        python=request.environ.get(settings.PYTHON) or sys.executable,
        debugged=bool(request.environ.get(settings.TERMINAL)),
    )


def _keep(job: Job, name: str, content: str | bytes) -> str:
    """Keeps what tells of a failure with the job's output data; returns where, empty where the job has no place."""
    from musterpoint.core.report.collected import keep

    return keep(job.paths.output_data, job.current_host, name, content) if job.paths.output_data else ""


def _rules(job: Job, options: Settings, plan: LaunchPlan | None, host: PreparedHost | None) -> Rules:
    return Rules(
        host=job.current_host,
        grace=rank_grace(job.grace, options.stop_grace),
        stop_signal=getattr(signal, "SIG" + options.stop_signal),
        stop_code=options.stop_exit_code,
        finish_on_failure=options.on_failure == "finish",
        outside=not job.in_group,
        outside_stops=options.outside == "stop",
        tolerates_lost_peers=plan.independent if plan else False,
        stall_timeout=options.stall_timeout,
        stall_ends=options.on_stall == "end",
        log_rules=host.log_rules if host else (),
        start_timeout=max(options.rollcall_timeout, SHORTEST_START),
    )
