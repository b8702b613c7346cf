"""The road: one job, from what the platform says to the exit code. Read this first.

Each step turns one typed value into the next and knows nothing of those behind it::

    job/  ─Job─▶  code/  ─Workspace─▶  rollcall/  ─Roster─▶  launch/  ─LaunchPlan─▶  supervise/  ─Outcome─▶  report/
"""

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple

from musterpoint import __version__, settings
from musterpoint.code.prepare import prepare
from musterpoint.code.workspace import Workspace
from musterpoint.console import Console
from musterpoint.errors import MusterError
from musterpoint.fabric.devices import Devices
from musterpoint.fabric.setting import EnvSetting
from musterpoint.fabric.survey import survey
from musterpoint.job.exports import sagemaker_exports
from musterpoint.job.model import Job, Paths
from musterpoint.job.read import read_job
from musterpoint.job.sagemaker import base_of, paths_of
from musterpoint.launch.build import build_plan
from musterpoint.fabric.mpi import Mpi
from musterpoint.launch.choose import WANTED, Choice, choose, room_for_ranks
from musterpoint.launch.pid1 import pid1_note
from musterpoint.launch.plan import LaunchPlan
from musterpoint.launch.ports import TENSORFLOW, insisted, wanted_ports
from musterpoint.loop import Loop
from musterpoint.masking import Masker
from musterpoint.peers import Failure, Peers
from musterpoint.report import oom
from musterpoint.rollcall.abandoned import Abandoned
from musterpoint.rollcall.muster import Muster
from musterpoint.rollcall.ports import offered
from musterpoint.rollcall.roster import Offer, Roster
from musterpoint.settings import LOCAL, Settings
from musterpoint.supervise.outcome import Outcome
from musterpoint.supervise.state import Rules, grace
from musterpoint.supervise.pump import Pump
from musterpoint.supervise.signals import STOPPING, Signals
from musterpoint.supervise.stream import ranks_of
from musterpoint.supervise.supervisor import Supervisor
from musterpoint.timeline import Timeline

if TYPE_CHECKING:
    from musterpoint.code.tools import Tools
    from musterpoint.report.explain import Explain

SHARE_OF_ROLLCALL = 0.9
"""Of the roll call's deadline, what getting this host's code ready may take: the others still hear why it failed."""


class Request(NamedTuple):
    """What was asked of this process. ``given`` are options of the command line, by field.

    ``program`` is None for ``train``, where the platform names it. ``typed`` is true where a person did.
    """

    environ: Mapping[str, str]
    given: Mapping[str, Any] = {}
    program: str | None = None
    arguments: tuple[str, ...] = ()
    module: bool = False
    typed: bool = False


class Scene:
    """What every step may use: the loop, our voice, our memory, our ears."""

    def __init__(self, request: Request) -> None:
        _open_standard_streams()
        self.request = request
        self.started_at = time.time()
        self.loop = Loop()
        self.masker = Masker(request.environ)
        self.console = Console(lambda text: self.masker.mask(text))
        self.timeline = Timeline()
        self.timeline.add("started", version=__version__)
        self.ears = Signals(self.loop, lambda signo: None)

    def learn(self, job: Job) -> None:
        """What the job says may be secret, too; and whose timeline this is."""
        values = {entry.name: entry.value for entry in job.hyperparameters}
        self.masker = Masker(self.request.environ, values)
        self.timeline.host = job.current_host

    def tools(self, job: Job, options: Settings) -> "Tools":
        """What the user's code is fetched and packages are installed with; a stop ends that work."""
        from musterpoint.code.tools import Tools

        waited_for = len(job.hosts) > 1 and options.rollcall != "off"
        tools = Tools(
            self.loop, self.console.say, self.console.show, self.timeline.add,
            options.rollcall_timeout * SHARE_OF_ROLLCALL if waited_for else None,
            lambda signo: Abandoned(job.current_host, signo, "while its code was being made ready"),
        )  # fmt: skip
        self.ears.hear = lambda signo: tools.hear(signo) if signo in STOPPING else None
        return tools


class Ready(NamedTuple):
    """This host, before any other is known: what it would run, and the devices it has."""

    workspace: Workspace
    devices: Devices
    choice: Choice
    modules: frozenset[str] = frozenset()
    mpi: Mpi | None = None
    ports: tuple[int, ...] = ()


def travel(request: Request) -> int:
    """The whole road. Returns the exit code of this process; every ending has left its report."""
    scene = Scene(request)
    job, options = None, Settings()
    try:
        options = settings.from_environ(request.environ, request.given)
        job = read_job(request.environ, options, "", request.program, request.arguments, request.module)
        scene.learn(job)
        scene.request = request._replace(environ=_activated(request.environ))
        outcome = _muster_and_run(scene, job, options)
    except Abandoned as stop:
        outcome = Outcome(options.stop_exit_code, None, stop.host, ())
        scene.console.say(str(stop))
    except Exception as error:  # a bug of ours is reported like everything else
        failure = _failure_of(scene, error, job)
        outcome = Outcome(failure.code, failure, "", ())
        scene.console.say(failure.reason.removeprefix("muster: "))
    _report(scene, outcome, job.paths if job else _paths_without_job(request))
    scene.ears.close()
    return outcome.code


def _open_standard_streams() -> None:
    """A closed 0, 1 or 2 would be given to the next file we open, and ranks would write into it."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _report(scene: Scene, outcome: Outcome, paths: Paths) -> None:
    # imported when the user's program has long been running: its first line comes that much earlier
    from musterpoint.report import files, timeline

    problems = files.write(outcome, paths, scene.started_at, scene.request.environ)
    for problem in [*problems, *timeline.write(scene.timeline, paths)]:
        scene.console.say(f"warning: {problem}")


def _reserve(paths: Paths) -> None:
    from musterpoint.report.files import reserve

    reserve(paths)


def _failure_of(scene: Scene, error: Exception, job: Job | None) -> Failure:
    from musterpoint.report.reason import of_error

    return of_error(error, job.current_host if job else "", scene.masker.mask, time.time())


def _paths_without_job(request: Request) -> Paths:
    """``train`` reports even what is wrong with the job's own files."""
    paths = paths_of(base_of(request.environ))
    return paths if request.program is None and os.path.isdir(paths.base) else Paths()


def _activated(environ: Mapping[str, str]) -> Mapping[str, str]:
    if not environ.get("SAGEMAKER_JOB_CONDA_ENV"):
        return environ
    from musterpoint.code.conda import activated

    return activated(environ)


def get_ready(
    job: Job, options: Settings, environ: Mapping[str, str], typed: bool = False,
    tools: "Callable[[], Tools] | None" = None,
) -> Ready:  # fmt: skip
    """The steps that need no other host: the user's code, this host's devices, the launcher and its slots.

    Without ``tools`` nothing is fetched and nothing installed.

    Raises:
        MusterError: the program is missing, its code or packages can't be had, or the launcher can't.
    """
    environ = _activated(environ)
    workspace = prepare(job, environ, environ.get("MUSTER_PYTHON") or sys.executable, tools, options.installer)
    devices = survey(environ)

    # asked as the launcher will be started: without the user's PYTHONPATH, in a folder without modules
    launcher_environ = {name: value for name, value in environ.items() if name != "PYTHONPATH"}

    answers: dict[str, bool] = {}

    def has(module: str) -> bool:
        from musterpoint.code.interpreter import has_module

        if module not in answers:
            answers[module] = has_module(workspace.interpreter, module, launcher_environ, "/")
        return answers[module]

    local = typed or bool(environ.get(LOCAL))
    choice = choose(job, options, devices, has, local, environ)
    if not job.in_group:
        return Ready(workspace, devices, choice)
    module = WANTED.get(choice.launcher, "")
    modules = frozenset([module]) if module and has(module) else frozenset()
    mpi = None
    if choice.launcher == "mpi":
        from musterpoint.fabric.mpi import find_mpi

        mpi = find_mpi(environ)
    return Ready(workspace, devices, choice, modules, mpi)


def plan_here(job: Job, options: Settings, ready: Ready, roster: Roster, environ: Mapping[str, str]) -> LaunchPlan:
    """What this host starts. ``muster plan`` calls it with an imagined roster, the road with the real one."""
    devices = ready.devices
    exports = sagemaker_exports(
        job, environ, devices.machine_cpus, devices.gpus, devices.neuron_cores, roster.master_address,
        roster.master_port,
    )  # fmt: skip
    network: tuple[EnvSetting, ...] = ()
    if len(roster.group) > 1:
        from musterpoint.fabric.network import network_settings

        network = network_settings(devices, roster.master_address, len(roster.group), environ)
    return build_plan(
        job, ready.workspace, roster, devices, options, ready.choice, exports, environ, network, ready.modules, ready.mpi
    )


def _muster_and_run(scene: Scene, job: Job, options: Settings) -> Outcome:
    say, record = scene.console.say, scene.timeline.add
    for text in [*(f"{note.level}: {note.text}" for note in job.notes), pid1_note()]:
        if text:
            say(text.removeprefix("info: "))
    ready, refusal = _ready_or_refused(scene, job, options)
    muster = Muster(
        scene.loop, job.hosts, job.group_hosts, job.current_host, _offer(job, options, ready), options, say, record
    )
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
    scene.loop.call_later(0, lambda: _reserve(job.paths))
    scene.loop.call_later(0, lambda: _warn_of_locks(scene))
    outcome = _supervise(scene, job, options, roster, peers, plan, refusal)
    if plan is not None and plan.launcher in TENSORFLOW and roster.me == job.leader and not outcome.code:
        _look_for_a_model(say, job.paths)
    return outcome


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
    request, made = scene.request, list["Tools"]()

    def tools() -> "Tools":
        made[:] = made or [scene.tools(job, options)]
        return made[0]

    try:
        # a program that somebody typed is here, with what it needs
        given = tools if request.program is None else None
        ready = get_ready(job, options, request.environ, request.typed, given)
        return ready._replace(ports=_free_ports(job, options, ready)), None
    except Abandoned:
        raise
    except MusterError as error:
        return None, _failure_of(scene, error, job)


def _free_ports(job: Job, options: Settings, ready: Ready) -> tuple[int, ...]:
    """What this host offers for servers of the launcher's framework."""
    launcher = ready.choice.launcher
    wanted = wanted_ports(launcher, ready.modules, options, job) if job.in_group else ()
    return offered(wanted, insisted(launcher, options))


def _offer(job: Job, options: Settings, ready: Ready | None) -> Offer:
    if ready is None:
        return Offer(job.name, "", 0, __version__)
    room = room_for_ranks(job, options, ready.devices)
    return Offer(job.name, ready.choice.launcher, ready.choice.slots, __version__, room, ready.ports)


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

    def explain() -> "Explain":
        from musterpoint.report.explain import Explain

        return Explain(job.current_host, scene.masker.mask_user, job.paths.code)

    supervisor = Supervisor(
        scene.loop, rules, peers, pump, explain,
        stop_signal=getattr(signal, "SIG" + options.stop_signal), say=scene.console.say, record=scene.timeline.add,
        oom_kills=oom.oom_kills, roster={**roster.to_wire(), "me": roster.me},
    )  # fmt: skip
    scene.ears.hear = supervisor.hear
    outcome = supervisor.run(plan, settings.without_own(scene.request.environ), refusal)
    peers.close()
    return outcome
