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
from musterpoint.errors import MusterError
from musterpoint.farewell import take_leave
from musterpoint.job.hyperparameters import text_of
from musterpoint.job.model import Job, Paths
from musterpoint.job.read import read_job
from musterpoint.job.sagemaker import base_of, paths_of
from musterpoint.launch.plan import LaunchPlan
from musterpoint.launch.ports import TENSORFLOW
from musterpoint.peers import Failure, Peers
from musterpoint.ready import Ready, activated, free_ports, get_ready, offer_of, plan_here
from musterpoint.report import oom
from musterpoint.report.room import Room
from musterpoint.rollcall.abandoned import Abandoned
from musterpoint.rollcall.muster import Muster
from musterpoint.rollcall.roster import Roster
from musterpoint.scene import Request, Scene
from musterpoint.settings import Settings
from musterpoint.supervise.handover import OUTER
from musterpoint.supervise.outcome import Outcome
from musterpoint.supervise.pid1 import deaf_pid1, pid1_note
from musterpoint.supervise.pump import Pump
from musterpoint.supervise.signals import STOPPING
from musterpoint.supervise.state import Rules, grace, whole_grace
from musterpoint.supervise.stream import ranks_of
from musterpoint.supervise.supervisor import Supervisor

if TYPE_CHECKING:
    from musterpoint.code.tools import Tools
    from musterpoint.report.explain import Explain
    from musterpoint.supervise.pid1_watch import Pid1Watch


def travel(request: Request) -> int:
    """The whole road. Returns the exit code of this process; every ending has left its report."""
    scene = Scene(request)
    job, options, watch = None, Settings(), None
    try:
        options = settings.from_environ(request.environ, request.given)
        watch = _watch_pid1(scene, options)
        job = read_job(request.environ, options, "", request.program, request.arguments, request.module)
        scene.learn(job)
        scene.room = Room(job.paths, OUTER in request.environ)
        scene.request = request._replace(environ=activated(request.environ))
        outcome = _muster_and_run(scene, job, options)
    except Abandoned as stop:
        outcome = Outcome(options.stop_exit_code, None, stop.host, ())
        scene.console.say(str(stop))
    except Exception as error:  # a bug of ours is reported like everything else
        failure = _failure_of(scene, error, job)
        outcome = Outcome(failure.code, failure, "", ())
        scene.console.say(failure.reason.removeprefix("muster: "))
    paths = job.paths if job else _paths_without_job(request)
    if not scene.room.folder:
        scene.room = Room(paths, OUTER in request.environ)
    take_leave(scene, outcome, paths)
    if watch is not None:
        watch.close()
    scene.companions.close()
    scene.ears.close()
    return outcome.code


def _watch_pid1(scene: Scene, options: Settings) -> Pid1Watch | None:
    """As early as possible: a stop may come while the code is being made ready."""
    name = deaf_pid1()
    if not name:
        return None
    if options.pid1_watch == "off":
        scene.console.say(pid1_note(name, "off"))
        return None
    from musterpoint.supervise.pid1_watch import Pid1Watch

    return Pid1Watch(
        scene.companions, scene.request.environ, name, scene.console.say, lambda: scene.ears.hear(signal.SIGTERM)
    )


def _failure_of(scene: Scene, error: Exception, job: Job | None) -> Failure:
    from musterpoint.report.reason import of_error

    if job is None:
        scene.suspect()
    return of_error(error, job.current_host if job else "", scene.masker.mask, time.time())


def _paths_without_job(request: Request) -> Paths:
    """Even what is wrong with the job's own files is reported where a platform looks for it."""
    paths = paths_of(base_of(request.environ))
    here = paths.base if request.program is None else paths.input_config
    return paths if os.path.isdir(here) else Paths()


def _muster_and_run(scene: Scene, job: Job, options: Settings) -> Outcome:
    say, record = scene.console.say, scene.timeline.add
    for said in job.notes:
        say(f"{said.level}: {said.text}".removeprefix("info: "))
    early: Abandoned | None = None
    try:
        ready, refusal = _ready_or_refused(scene, job, options)
    except Abandoned as stop:
        ready, refusal, early = None, None, stop
    muster = Muster(
        scene.loop, job.hosts, job.group_hosts, job.current_host, offer_of(job, options, ready), options, say, record
    )
    if early is not None:
        muster.pass_on(early)
    scene.ears.hear = lambda signo: muster.abandon(signo) if signo in STOPPING else None
    roster, peers = muster.run()
    plan = None
    if ready is not None:
        if len(roster.seats) > 1 and roster.me == job.leader:
            say(_all_here(roster, ready.choice.launcher))
        try:
            plan = plan_here(job, options, ready, roster, scene.request.environ)
            for note in plan.notes:
                say(note)
        except MusterError as error:
            refusal = _failure_of(scene, error, job)
    if ready is not None and plan is not None and text_of(job.hyperparameters, "sagemaker_s3_output"):
        _sync_outputs(scene, job, options, ready.workspace.interpreter)
    scene.room.reserve()
    scene.loop.call_later(0, lambda: _warn_of_locks(scene))
    outcome = _supervise(scene, job, options, roster, peers, plan, refusal)
    if plan is not None and plan.launcher in TENSORFLOW and roster.me == job.leader and not outcome.code:
        _look_for_a_model(say, job.paths)
    return outcome


def _sync_outputs(scene: Scene, job: Job, options: Settings, interpreter: str) -> None:
    """The ranks find the directory; what uploads starts after them."""
    from musterpoint.outputs.begin import sync_of
    from musterpoint.outputs.sync import Means

    means = Means(scene.loop, scene.companions, scene.console.say, scene.timeline.add)
    whole = whole_grace(job.grace, options.stop_grace)
    environ = settings.without_own(scene.request.environ)
    scene.sync = sync_of(job, environ, interpreter, whole, means, scene.request.program is not None)
    if scene.sync is not None:
        scene.loop.call_later(0, scene.sync.begin)


def _look_for_a_model(say: Callable[[str], None], paths: Paths) -> None:
    from musterpoint.report.saved_model import warning_of

    if missing := warning_of(paths.model):
        say(f"warning: {missing}")


def _warn_of_locks(scene: Scene) -> None:
    """Called when the ranks have been started: it is early enough for them, and they start that much earlier."""
    from musterpoint.code.build_locks import warnings

    for text in warnings(scene.request.environ):
        scene.console.say(f"warning: {text}")


def _all_here(roster: Roster, launcher: str) -> str:
    """What the leader says once, so that the log shows what world this is."""
    slots = {seat.slots for seat in roster.group}
    each = f"{slots.pop()} each" if len(slots) == 1 else "uneven slots"
    outside = len(roster.seats) - len(roster.group)
    others = f"; {outside} more outside the group" if outside else ""
    ranks = f"{roster.world_size} rank{'s' if roster.world_size != 1 else ''}"
    return f"{len(roster.group)} hosts are here: launcher {launcher}, {ranks} ({each}){others}"


def _ready_or_refused(scene: Scene, job: Job, options: Settings) -> tuple[Ready | None, Failure | None]:
    """A host that can't run its part still attends the roll call, or the others would wait for it in vain."""
    request = scene.request
    made: list[Tools] = []

    def tools() -> Tools:
        made[:] = made or [scene.tools(job, options)]
        return made[0]

    try:
        # a program that somebody typed is here, with what it needs
        given = tools if request.program is None else None
        ready = get_ready(job, options, request.environ, request.typed, given, scene.ask)
        return ready._replace(ports=free_ports(job, options, ready)), None
    except Abandoned:
        raise
    except MusterError as error:
        return None, _failure_of(scene, error, job)


def _supervise(
    scene: Scene, job: Job, options: Settings, roster: Roster, peers: Peers, plan: LaunchPlan | None,
    refusal: Failure | None,
) -> Outcome:  # fmt: skip
    pump = Pump(
        prefix=options.log_prefix, host=job.current_host, log_ranks=ranks_of(options.log_ranks),
        log_dir=options.log_dir, streams=plan.local_ranks if plan else 1,
    )  # fmt: skip
    scene.console.sink = pump.say
    rules = Rules(
        host=job.current_host, grace=grace(job.grace, options.stop_grace), on_failure=options.on_failure,
        stop_code=options.stop_exit_code, outside=not job.in_group, outside_stops=options.outside == "stop",
        tolerates_lost_peers=plan.tolerates_lost_peers if plan else False,
    )  # fmt: skip

    def explain() -> Explain:
        from musterpoint.report.explain import Explain

        return Explain(job.current_host, scene.masker.mask_user, job.paths.code)

    def say(text: str) -> None:
        # failures quote the user's own words
        scene.console.say(text, scene.masker.mask_user)

    supervisor = Supervisor(
        scene.loop, rules, peers, pump, explain,
        stop_signal=getattr(signal, "SIG" + options.stop_signal), say=say, record=scene.timeline.add,
        oom_kills=oom.oom_kills, roster={**roster.to_wire(), "me": roster.me}, companions=scene.companions,
    )  # fmt: skip
    scene.masker.know(supervisor.token)
    scene.ears.hear = supervisor.hear
    outcome = supervisor.run(plan, settings.without_own(scene.request.environ), refusal)
    peers.close()
    return outcome
