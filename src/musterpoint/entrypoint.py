"""The road: one job, from what the platform says to the exit code. Read this first.

Each step turns one typed value into the next and knows nothing of those behind it::

    job/  ─Job─▶  code/  ─Workspace─▶  rollcall/  ─Roster─▶  launch/  ─LaunchPlan─▶  supervise/  ─Outcome─▶  report/
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Callable

from musterpoint import settings
from musterpoint.channel.peers import Peers
from musterpoint.errors import MusterError, StoppedEarly
from musterpoint.failure import Failure
from musterpoint.finish import finish
from musterpoint.job.hyperparameters import text_of
from musterpoint.job.model import Job, Paths
from musterpoint.job.read import read_job
from musterpoint.job.sagemaker import base_of, paths_of
from musterpoint.launch.plan import LaunchPlan
from musterpoint.launch.service_ports import TENSORFLOW
from musterpoint.prepare import Ready, activated, free_ports, get_ready, offer_of, plan_here
from musterpoint.processes.pid1 import pid1_note, unstoppable_pid1
from musterpoint.processes.process import oom_kills
from musterpoint.processes.pump import Pump
from musterpoint.processes.signals import STOPPING
from musterpoint.processes.streams import OutputOptions, ranks_of
from musterpoint.report.output_directory import OutputDirectory
from musterpoint.rollcall.roll_call import RollCall
from musterpoint.rollcall.roster import Participant, Roster
from musterpoint.runtime import Request, Runtime
from musterpoint.settings import Settings
from musterpoint.stop_budget import grace, whole_grace
from musterpoint.supervise.handover import OUTER
from musterpoint.supervise.outcome import Outcome
from musterpoint.supervise.state import Rules
from musterpoint.supervise.supervisor import Supervisor

if TYPE_CHECKING:
    from musterpoint.code.tools import Tools
    from musterpoint.diagnosis.explain import Explain
    from musterpoint.processes.pid1 import Pid1Watch


def run(request: Request) -> int:
    """The whole road. Returns the exit code of this process; every ending has left its report."""
    runtime = Runtime(request)
    job, options, watch = None, Settings(), None
    try:
        options = settings.from_environ(request.environ, request.given)
        watch = _watch_pid1(runtime, options)
        job = read_job(request.environ, options, "", request.program, request.arguments, request.module)
        runtime.learn(job)
        runtime.room = OutputDirectory(job.paths, OUTER in request.environ)
        runtime.request = request._replace(environ=activated(request.environ, options.python))
        outcome = _muster_and_run(runtime, job, options)
    except StoppedEarly as stop:
        outcome = Outcome(options.stop_exit_code, None, stop.host, ())
        runtime.console.say(str(stop))
    except Exception as error:  # a bug of ours is reported like everything else
        failure = _failure_of(runtime, error, job)
        outcome = Outcome(failure.code, failure, "", ())
        runtime.console.say(failure.reason.removeprefix("muster: "))
    paths = job.paths if job else _paths_without_job(request)
    if not runtime.room.folder:
        runtime.room = OutputDirectory(paths, OUTER in request.environ)
    finish(runtime, outcome, paths)
    if watch is not None:
        watch.close()
    runtime.sidecars.close()
    runtime.ears.close()
    return outcome.code


def _watch_pid1(runtime: Runtime, options: Settings) -> Pid1Watch | None:
    """As early as possible: a stop may come while the code is being made ready."""
    name = unstoppable_pid1()
    if not name:
        return None
    if options.pid1_watch == "off":
        runtime.console.say(pid1_note(name, "off"))
        return None
    from musterpoint.processes.pid1 import Pid1Watch

    return Pid1Watch(
        runtime.sidecars,
        runtime.request.environ,
        name,
        runtime.console.say,
        lambda: runtime.ears.deliver(signal.SIGTERM),
    )


def _failure_of(runtime: Runtime, error: Exception, job: Job | None) -> Failure:
    from musterpoint.diagnosis.reason import of_error

    if job is None:
        runtime.suspect()
    return of_error(error, job.current_host if job else "", runtime.masker.mask, time.time())


def _paths_without_job(request: Request) -> Paths:
    """Even what is wrong with the job's own files is reported where a platform looks for it."""
    paths = paths_of(base_of(request.environ))
    here = paths.base if request.program is None else paths.input_config
    return paths if os.path.isdir(here) else Paths()


def _muster_and_run(runtime: Runtime, job: Job, options: Settings) -> Outcome:
    say, record = runtime.console.say, runtime.timeline.add
    for said in job.notes:
        say(f"{said.level}: {said.text}".removeprefix("info: "))
    early: StoppedEarly | None = None
    try:
        ready, refusal = _ready_or_refused(runtime, job, options)
    except StoppedEarly as stop:
        ready, refusal, early = None, None, stop
    offer = offer_of(job, options, ready)
    participant = Participant(job.hosts, job.group_hosts, job.current_host, offer, options)
    roll_call = RollCall(runtime.loop, participant, say, record)
    if early is not None:
        roll_call.stopped_before(early)
    runtime.ears.route_to(lambda signo: roll_call.stop(signo) if signo in STOPPING else None)
    roster, peers = roll_call.run()
    plan = None
    if ready is not None:
        if len(roster.seats) > 1 and roster.me == job.leader:
            say(_all_here(roster, ready.choice.launcher))
        try:
            plan = plan_here(job, options, ready, roster, runtime.request.environ)
            for note in plan.notes:
                say(note)
        except MusterError as error:
            refusal = _failure_of(runtime, error, job)
    if ready is not None and plan is not None and text_of(job.hyperparameters, "sagemaker_s3_output"):
        _sync_outputs(runtime, job, options, ready.workspace.interpreter)
    runtime.room.reserve()
    runtime.loop.call_later(0, lambda: _warn_of_locks(runtime))
    outcome = _supervise(runtime, job, options, roster, peers, plan, refusal)
    if plan is not None and plan.launcher in TENSORFLOW and roster.me == job.leader and not outcome.code:
        _look_for_a_model(say, job.paths)
    return outcome


def _sync_outputs(runtime: Runtime, job: Job, options: Settings, interpreter: str) -> None:
    """The ranks find the directory; what uploads starts after them."""
    from musterpoint.outputs.sync import Sync, sync_plan

    say = runtime.console.say
    whole = whole_grace(job.grace, options.stop_grace)
    environ = settings.without_own(runtime.request.environ)
    plan = sync_plan(job, environ, interpreter, whole, say, below_toolkit=runtime.request.program is not None)
    if plan is not None:
        runtime.sync = Sync(plan, runtime.loop, runtime.sidecars, say, runtime.timeline.add)
        runtime.loop.call_later(0, runtime.sync.begin)


def _look_for_a_model(say: Callable[[str], None], paths: Paths) -> None:
    from musterpoint.report.saved_model import warning_of

    if missing := warning_of(paths.model):
        say(f"warning: {missing}")


def _warn_of_locks(runtime: Runtime) -> None:
    """Called when the ranks have been started: it is early enough for them, and they start that much earlier."""
    from musterpoint.code.build_locks import warnings

    for text in warnings(runtime.request.environ):
        runtime.console.say(f"warning: {text}")


def _all_here(roster: Roster, launcher: str) -> str:
    """What the leader says once, so that the log shows what world this is."""
    slots = {seat.slots for seat in roster.group}
    each = f"{slots.pop()} each" if len(slots) == 1 else "uneven slots"
    outside = len(roster.seats) - len(roster.group)
    others = f"; {outside} more outside the group" if outside else ""
    ranks = f"{roster.world_size} rank{'s' if roster.world_size != 1 else ''}"
    return f"{len(roster.group)} hosts are here: launcher {launcher}, {ranks} ({each}){others}"


def _ready_or_refused(runtime: Runtime, job: Job, options: Settings) -> tuple[Ready | None, Failure | None]:
    """A host that can't run its part still attends the roll call, or the others would wait for it in vain."""
    request = runtime.request
    made: list[Tools] = []

    def tools() -> Tools:
        made[:] = made or [runtime.tools(job, options)]
        return made[0]

    try:
        # a program that somebody typed is here, with what it needs
        given = tools if request.program is None else None
        ready = get_ready(job, options, request.environ, request.typed, given, runtime.ask)
        return ready._replace(ports=free_ports(job, options, ready)), None
    except StoppedEarly:
        raise
    except MusterError as error:
        return None, _failure_of(runtime, error, job)


def _supervise(
    runtime: Runtime, job: Job, options: Settings, roster: Roster, peers: Peers, plan: LaunchPlan | None,
    refusal: Failure | None,
) -> Outcome:  # fmt: skip
    prefix, ranks = options.log_prefix, ranks_of(options.log_ranks)
    output = OutputOptions(prefix, job.current_host, ranks, options.log_dir)  # type: ignore[arg-type,unused-ignore]
    pump = Pump(output, streams=plan.local_ranks if plan else 1)
    runtime.console.sink = pump.write_message
    rules = Rules(
        host=job.current_host, grace=grace(job.grace, options.stop_grace), on_failure=options.on_failure,
        stop_code=options.stop_exit_code, outside=not job.in_group, outside_stops=options.outside == "stop",
        tolerates_lost_peers=plan.tolerates_lost_peers if plan else False,
    )  # fmt: skip

    def explain() -> Explain:
        from musterpoint.diagnosis.explain import Explain

        return Explain(job.current_host, runtime.masker.mask_user, job.paths.code)

    def say(text: str) -> None:
        # failures quote the user's own words
        runtime.console.say(text, runtime.masker.mask_user)

    supervisor = Supervisor(
        runtime.loop, rules, peers, pump, explain,
        stop_signal=getattr(signal, "SIG" + options.stop_signal), say=say, record=runtime.timeline.add,
        oom_kills=oom_kills, roster={**roster.to_wire(), "me": roster.me}, sidecars=runtime.sidecars,
    )  # fmt: skip
    runtime.masker.know(supervisor.token)
    runtime.ears.route_to(supervisor.hear)
    outcome = supervisor.run(plan, settings.without_own(runtime.request.environ), refusal)
    peers.close()
    return outcome
