"""Prepares this host's part of a job before the roll call, and makes its plan after it.

``muster plan`` takes the same steps.
"""

import os
from typing import TYPE_CHECKING, Callable, Iterable, Mapping, Protocol, Sequence

from musterpoint import __version__
from musterpoint.base import probe
from musterpoint.base.errors import LauncherError, UsageError
from musterpoint.base.executables import over_limit, size_of
from musterpoint.base.probe import Ask
from musterpoint.base.readers import split_endpoint
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import LOCAL, Settings
from musterpoint.core.code.interpreter import UserEnvironment, modules_among
from musterpoint.core.code.program import NoProgram
from musterpoint.core.code.project import requirements_beside
from musterpoint.core.code.workspace import Code, Workspace
from musterpoint.core.fabric.devices import Devices, survey
from musterpoint.core.job import restarts
from musterpoint.core.job.exports import Machine, sagemaker_exports
from musterpoint.core.job.model import Job
from musterpoint.core.launch import smdistributed
from musterpoint.core.launch.build import build_plan
from musterpoint.core.launch.choose import Choice, choose
from musterpoint.core.launch.inputs import LaunchInputs, capacity_of
from musterpoint.core.launch.launcher import (
    MPIRUN,
    Lacks,
    Launcher,
    Question,
    Wanted,
    asks_for_ssh,
    check_unnamed,
    option_for_ports,
    refuse,
    wanted_ports,
)
from musterpoint.core.launch.plan import LaunchPlan
from musterpoint.core.launch.table import find, instead_of, of_program
from musterpoint.core.rollcall.ports import Ports, offered
from musterpoint.core.rollcall.roster import LONGEST_PLACE, Offer, Roster

if TYPE_CHECKING:
    from musterpoint.core.fabric.facts import Fabric
    from musterpoint.core.fabric.ssh import Ssh


class Door(Protocol):
    """Where this host is called by ssh: its port, and its public key."""

    port: int
    key: str


class PreparedHost(NamedTuple):
    """This host before the roll call.

    ``workspace`` is the user's code and how it starts; ``devices`` are this host's; ``choice`` is the launcher and its
    slots. ``modules``: those of the launcher's that the user's Python has. ``known``: what else the launcher has to
    know of this host. ``fabric``: its accelerators and RDMA
    network, where it has any. ``ssh``: its OpenSSH, where hosts are to call each other by it. ``notes``: what stands
    for something that this host lacks, in a plan.
    """

    workspace: Workspace
    devices: Devices
    choice: Choice
    modules: frozenset[str] = frozenset()
    known: object = None
    fabric: "Fabric | None" = None
    ssh: "Ssh | None" = None
    notes: tuple[str, ...] = ()


def what_is_wanted(
    job: Job, options: Settings, seen: UserEnvironment, ask: Ask | None = None, lacks: Lacks | None = None
) -> Wanted:
    """What is to be run: ``job`` and ``options`` as they are, unless the program is a launcher's own command line.

    ``seen`` has the program's Python and its variables. ``lacks`` is told where this host lacks that launcher, for a
    plan.

    Raises:
        MusterError: the line is wrong, or contradicts the job.
    """
    program = job.entry_point.program
    name = of_program(os.path.basename(program), program)
    read = find(name).typed if name else None
    question = Question(job, options, seen.environ, seen.python, ask=ask, lacks=lacks)
    found = read(question) if read is not None else None
    return (found or Wanted(job, options))._replace(python=seen.python)


def _instead(job: Job) -> str:
    """What stands for a program that isn't there and is called as a launcher's command is, for people."""
    instead = instead_of(os.path.basename(job.entry_point.program), "launch", job)
    return instead and f"; {instead}"


def prepare_host(
    wanted: Wanted,
    environ: Mapping[str, str],
    typed: bool = False,
    code: Code | None = None,
    installs: bool = False,
    ask: Ask | None = None,
    lacks: Lacks = refuse,
) -> PreparedHost:
    """The steps that need no other host: the user's code, this host's devices, the launcher and its slots.

    ``environ`` has the variables that the program sees. ``code``: where it is on this host already; None: nothing is
    fetched, and nothing installed. ``installs``: packages beside the program are the job's.
    ``ask`` asks programs of this host, and is interrupted by a stop. ``lacks`` is told of what the launcher needs and
    isn't here; where it returns, the host is prepared for a plan as if it had that.

    Raises:
        MusterError: the program, its code, packages or launcher are missing.
    """
    job, options = wanted.job, wanted.settings
    if options.max_restarts:
        restarts.check(job, options)
    interpreter = wanted.interpreter
    requirements = _requirements(job, options, typed and installs)
    try:
        code = code or Code(job, environ, interpreter)
        workspace = code.workspace(job, interpreter, options.installer, requirements)
    except NoProgram as error:
        raise UsageError(f"{error}{_instead(job)}") from None
    devices = survey(environ)

    of_launcher = _LauncherModules(workspace.interpreter, environ, ask)

    def has(module: str) -> bool:
        if module != MPIRUN:
            return module in of_launcher.among((module,))
        from musterpoint.core.fabric.mpi import mpirun_of

        return bool(mpirun_of(environ))

    local = typed or bool(environ.get(LOCAL))
    choice = choose(job, options, devices, has, local, environ, wanted, lacks)
    launcher = find(choice.launcher)
    check_unnamed(job, options, launcher)
    told = (workspace.note,) if workspace.note else ()
    if not job.in_group:
        return PreparedHost(workspace, devices, choice, notes=told)
    if workspace.kind in ("python", "module"):

        def beside(module: str) -> bool:
            return module in _among((module,), workspace.interpreter, environ, ask)

        smdistributed.check(job, environ, beside, lacks)
    modules = of_launcher.among(launcher.modules).union((launcher.needs,) if launcher.needs else ())
    question = Question(job, options, environ, interpreter, choice.reason, ask)
    known, notes = wanted.known, tuple(filter(None, (wanted.assumed,)))
    if launcher.survey is not None and known is None:
        known, notes = _known(launcher, question, not launcher.needs or has(launcher.needs), lacks)
    surveyed = None
    if devices.accelerated and (len(job.hosts) > 1 or choice.slots > 1 or devices.gpus > 1):
        from musterpoint.core.fabric.facts import survey_fabric  # 3 ms, where there are accelerators

        surveyed = survey_fabric(devices, environ, workspace.interpreter)
    ssh = None
    if len(job.group_hosts) > 1 and (asked := asks_for_ssh(launcher, options)):
        from musterpoint.core.fabric.ssh import ASSUMED, find_ssh

        try:
            ssh = find_ssh(environ, asked)
        except LauncherError as error:
            lacks(error)
            ssh = ASSUMED
    return PreparedHost(workspace, devices, choice, modules, known, surveyed, ssh, (*told, *notes))


def _known(launcher: Launcher, question: Question, usable: bool, lacks: Lacks) -> tuple[object, tuple[str, ...]]:
    """What the launcher has to know of this host; or what stands for it in a plan, and how that differs."""
    assert launcher.survey is not None
    if launcher.assumed is None:
        return launcher.survey(question), ()
    try:
        if usable:
            return launcher.survey(question), ()
    except LauncherError as error:
        lacks(error)
    known, note = launcher.assumed()
    return known, (note,)


def _requirements(job: Job, options: Settings, beside: bool) -> str:
    """The list of packages that was asked for, absolute; else with ``beside`` the one beside the program; or empty."""
    if options.requirements:
        return _file(options.requirements)
    return requirements_beside(job.entry_point.program, job.paths.code) if beside else ""


def _file(requirements: str) -> str:
    """The path of ``--requirements``, absolute; a UsageError where there is no such file."""
    path = os.path.abspath(requirements)
    if not os.path.isfile(path):
        why = f"{path} is a folder" if os.path.isdir(path) else f"there is no file {path}"
        raise UsageError(f"--requirements={requirements!r}: {why}")
    return path


class _LauncherModules:
    """The modules that a launcher, which is started without the user's PYTHONPATH, finds in the user's Python.

    Each is asked for once.
    """

    def __init__(self, interpreter: str, environ: Mapping[str, str], ask: Ask | None) -> None:
        self._interpreter, self._ask = interpreter, ask
        self._environ = {name: value for name, value in environ.items() if name != "PYTHONPATH"}
        self._answers: dict[str, bool] = {}

    def among(self, modules: Sequence[str]) -> frozenset[str]:
        """Those of ``modules`` that are there."""
        unknown = [module for module in modules if module not in self._answers]
        if unknown:
            found = _among(unknown, self._interpreter, self._environ, self._ask)
            self._answers.update((module, module in found) for module in unknown)
        return frozenset(module for module in modules if self._answers[module])


def _among(modules: Iterable[str], interpreter: str, environ: Mapping[str, str], ask: Ask | None) -> frozenset[str]:
    """Those of ``modules`` that ``interpreter`` finds with these variables, in a folder without modules."""
    return modules_among(modules, interpreter, environ, "/", ask or probe.ask)


def named_job(job: Job, roster: Roster) -> Job:
    """``job`` with the roster's names, which the roll call learned where the platform names no hosts."""
    if job.unnamed is None:
        return job
    hosts = tuple(seat.name for seat in roster.seats)
    return job._replace(hosts=hosts, group_hosts=hosts, current_host=roster.me, unnamed=None)


def ordered_job(job: Job, roster: Roster) -> Job:
    """``job`` with its hosts in the roster's order."""
    hosts, group = (tuple(seat.name for seat in seats) for seats in (roster.seats, roster.group))
    return job._replace(hosts=hosts, group_hosts=group)


def plan_host(
    job: Job, options: Settings, host: PreparedHost, roster: Roster, environ: Mapping[str, str]
) -> LaunchPlan:
    """What this host starts. ``muster plan`` calls it with an assumed roster, a job with the real one.

    Raises:
        MusterError: the launcher can't start this job, or its arguments and variables are more than the system takes.
    """
    _check_leader(options, roster)
    devices = host.devices
    machine = Machine(devices.machine_cpus, devices.gpus, devices.neuron_cores)
    exports = sagemaker_exports(job, environ, machine, roster.master_address, roster.master_port)
    bare = LaunchInputs(
        host.choice.launcher,
        job,
        host.workspace,
        roster,
        devices,
        options,
        environ,
        tuple(exports),
        modules=host.modules,
        known=host.known,
        ssh=host.ssh,
    )
    inputs, notes = bare, list[str]()
    if len(roster.group) > 1 or host.choice.slots > 1 or devices.gpus or job.counted.variable:
        from musterpoint.core.launch.fabric import with_fabric  # 7 ms and 0.6 MiB, for worlds of several ranks

        inputs, about_fabric = with_fabric(bare, host.fabric)
        notes += about_fabric
    plan = build_plan(inputs)
    if job.in_group:
        smdistributed.check_layout(job, environ, inputs.kind, plan)
    _check_size(plan, environ)
    notes += host.notes
    if options.max_restarts and not roster.attempt:
        notes.append(restarts.note(options))
    if job.in_group:
        notes += smdistributed.notes(job, environ, inputs.kind, host.choice.reason)
    return plan._replace(notes=(*plan.notes, *notes)) if notes else plan


def _check_leader(options: Settings, roster: Roster) -> None:
    """Raises a UsageError if the leader that was asked for is another host of the roster; looks no name up."""
    if not options.rollcall_leader or len(roster.group) < 2:
        return
    asked, _ = split_endpoint(options.rollcall_leader)
    leader, *others = roster.group
    if asked in (leader.name, leader.address):
        return
    for seat in others:
        if asked in (seat.name, seat.address):
            raise UsageError(
                f"--rollcall-leader (torchrun's --master-addr or --rdzv-endpoint) is {asked}, which is {seat.name}, "
                f"and rank 0 is on {leader.name} ({leader.address}): leave it out, since the platform names the hosts"
            )


def _check_size(plan: LaunchPlan, environ: Mapping[str, str]) -> None:
    """Raises a UsageError, with the longest words, if a process's arguments and variables are too large."""
    for process in plan.processes:
        variables = dict(environ)
        variables.update((setting.name, setting.value) for setting in (*plan.environment, *process.environment))
        exceeded = over_limit((*process.words, *(f"{name}={value}" for name, value in variables.items())))
        if exceeded is not None:
            before = ("", *process.words)
            sizes = [(size_of(word), f"the argument behind {before[at]:.80}") for at, word in enumerate(process.words)]
            sizes += [(size_of(value), f"the variable {name:.80}") for name, value in variables.items()]
            longest = ", ".join(f"{what} ({size:,} bytes)" for size, what in sorted(sizes, reverse=True)[:3])
            taken, limit = exceeded
            raise UsageError(
                f"the arguments and variables of {process.name} take {taken:,} bytes, and this system takes {limit:,}: "
                f"the longest are {longest}; send them as files of an input channel"
            )


def empty_offer(job: Job) -> Offer:
    """What a host that can't run its part says about itself in the roll call."""
    return Offer(job.name, "", 0, __version__, capacity=0)


def offer_of(
    job: Job, options: Settings, host: PreparedHost, held: Ports, open_door: "Callable[[Ssh], Door] | None" = None
) -> Offer:
    """What this host says about itself in the roll call. ``open_door`` makes its keys and its port for ssh.

    ``held`` are the ports that are held for the job.

    Raises:
        MusterError: a port that all hosts must use is taken.
    """
    capacity, ports = capacity_of(job, options, host.devices), free_ports(job, options, host, held)
    place = _place(job, options)
    libraries = host.fabric.libraries.compared if host.fabric is not None else ()
    choice = host.choice
    door = open_door(host.ssh) if host.ssh is not None and open_door is not None else None
    return Offer(
        job.name,
        choice.launcher,
        choice.slots,
        __version__,
        capacity,
        ports if door is None else (*ports, door.port),
        libraries,
        place,
        ssh_key="" if door is None else door.key,
        independent=find(choice.launcher).independent,
    )


def _place(job: Job, options: Settings) -> str:
    """Where this host is in the network, if that decides the rank order."""
    if options.host_order != "topology" or len(job.hosts) == 1:
        return ""
    place = f"{options.topology}.{job.own_name}" if options.topology else job.place  # the host itself comes last
    return place[:LONGEST_PLACE]


def free_ports(job: Job, options: Settings, host: PreparedHost, held: Ports) -> tuple[int, ...]:
    """Ports of this host for servers of the launcher's framework, which are ``held`` from now on.

    Raises:
        MusterError: a port that all hosts must use is taken.
    """
    launcher = find(host.choice.launcher)
    wanted = wanted_ports(launcher, host.modules, options, job) if job.in_group else ()
    if job.in_group and len(job.hosts) > 1 and host.devices.neuron_cores:
        from musterpoint.core.launch.fabric import wanted_for_neuron

        wanted += wanted_for_neuron(launcher, host.devices)
    return offered(wanted, held, option_for_ports(launcher, options))
