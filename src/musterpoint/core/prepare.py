"""Prepares this host's part of a job before the roll call, and makes its plan after it.

``muster plan`` and a nested launcher take the same steps.
"""

import os
import sys
from typing import TYPE_CHECKING, Callable, Iterable, Mapping, NamedTuple, Sequence

from musterpoint import __version__
from musterpoint.base.errors import UsageError
from musterpoint.base.executables import over_limit, size_of
from musterpoint.base.settings import LOCAL, PYTHON, Settings, split_endpoint
from musterpoint.core.code.project import requirements_beside
from musterpoint.core.code.workspace import Workspace, prepare
from musterpoint.core.fabric.devices import Devices, survey
from musterpoint.core.fabric.mpi import Mpi, find_mpi, mpirun_of
from musterpoint.core.job.exports import Machine, sagemaker_exports
from musterpoint.core.job.model import Job
from musterpoint.core.launch import smdistributed
from musterpoint.core.launch.choose import (
    MPIRUN,
    Choice,
    agreed_ports,
    build_plan,
    choose,
    modules_for,
    option_for_ports,
    wanted_ports,
    wants_ssh,
)
from musterpoint.core.launch.inputs import LaunchInputs, capacity_of
from musterpoint.core.launch.plan import LaunchPlan
from musterpoint.core.launch.unnamed import check_unnamed
from musterpoint.core.rollcall.ports import agreed_master_port, check_agreed, offered
from musterpoint.core.rollcall.roster import LONGEST_PLACE, Offer, Roster

if TYPE_CHECKING:
    from musterpoint.base.probe import Ask
    from musterpoint.core.code.tools import Tools
    from musterpoint.core.fabric.accelerate import Accelerate
    from musterpoint.core.fabric.facts import Fabric
    from musterpoint.core.fabric.memory import Memory
    from musterpoint.core.fabric.ssh import Ssh
    from musterpoint.core.job.log_rules import LogRule


class PreparedHost(NamedTuple):
    """This host before the roll call.

    ``workspace`` is the user's code and how it starts; ``devices`` are this host's; ``choice`` is the launcher and its
    slots. ``modules``: those that the launcher needs and the user's Python has. ``mpi`` is this host's MPI
    where the launcher is one, ``memory`` this host's where the launcher is Ray, ``accelerate`` what accelerate says
    where that is the launcher. ``slots_asked``: ranks per host that the program's own command line asks for.
    ``log_rules``: those that its ranks' output is watched by.
    ``fabric``: its accelerators and RDMA network, where it has any. ``ssh``: its OpenSSH, where hosts are to call each
    other by it.
    """

    workspace: Workspace
    devices: Devices
    choice: Choice
    modules: frozenset[str] = frozenset()
    mpi: Mpi | None = None
    memory: "Memory | None" = None
    accelerate: "Accelerate | None" = None
    slots_asked: int | None = None
    log_rules: "tuple[LogRule, ...]" = ()
    fabric: "Fabric | None" = None
    ssh: "Ssh | None" = None


def user_environment(environ: Mapping[str, str], python: str) -> Mapping[str, str]:
    """``environ`` as the user's program will see it: see :func:`musterpoint.core.code.interpreter.activated`.

    Raises:
        UsageError: there is no such conda environment.
    """
    if not python and not environ.get("SAGEMAKER_JOB_CONDA_ENV"):
        return environ
    from musterpoint.core.code.interpreter import activated

    return activated(environ, python)


def prepare_host(
    job: Job,
    options: Settings,
    environ: Mapping[str, str],
    typed: bool = False,
    tools: "Callable[[], Tools] | None" = None,
    ask: "Ask | None" = None,
) -> PreparedHost:
    """The steps that need no other host: the user's code, this host's devices, the launcher and its slots.

    ``environ`` is a :func:`user_environment`. Without ``tools`` nothing is fetched and nothing installed. ``ask`` asks
    programs of this host, and is interrupted by a stop.

    Raises:
        MusterError: the program, its code, packages or launcher are missing.
    """
    if options.max_restarts:
        from musterpoint.core.job.restarts import check

        check(job, options)
    interpreter = environ.get(PYTHON) or sys.executable
    job, options, accelerate, slots_asked = _typed_accelerate(job, options, interpreter, environ, ask)
    requirements = options.requirements and _file(options.requirements)
    if typed and tools is not None and not requirements:
        requirements = requirements_beside(job.entry_point.program, job.paths.code)
    workspace = prepare(job, environ, interpreter, tools, options.installer, requirements)
    devices = survey(environ)

    of_launcher = _LauncherModules(workspace.interpreter, environ, ask)

    def has(module: str) -> bool:
        return bool(mpirun_of(environ)) if module == MPIRUN else module in of_launcher.among((module,))

    local = typed or bool(environ.get(LOCAL))
    choice = choose(job, options, devices, has, local, environ, typed=accelerate is not None)
    check_unnamed(job, options, choice.launcher)
    if not job.in_group:
        return PreparedHost(workspace, devices, choice)
    log_rules = _log_rules(job, options)
    if choice.launcher == "accelerate" and accelerate is None:
        from musterpoint.core.fabric.accelerate import ask_accelerate

        accelerate = ask_accelerate(interpreter, (), _here(options.accelerate_config), job.paths.code, environ, ask)
    if workspace.kind in ("python", "module"):
        smdistributed.check(job, environ, lambda name: name in _among((name,), workspace.interpreter, environ, ask))
    modules = of_launcher.among(modules_for(choice.launcher))
    mpi = find_mpi(environ, choice.reason, ask) if choice.launcher == "mpi" else None
    memory = None
    if choice.launcher == "ray":
        from musterpoint.core.fabric.memory import survey_memory

        memory = survey_memory()
    fabric = None
    if devices.accelerated and (len(job.hosts) > 1 or choice.slots > 1 or devices.gpus > 1):
        from musterpoint.core.fabric.facts import survey_fabric

        fabric = survey_fabric(devices, environ, workspace.interpreter)
    ssh = None
    if len(job.group_hosts) > 1 and wants_ssh(choice.launcher, options):
        from musterpoint.core.fabric.ssh import find_ssh

        ssh = find_ssh(environ, "--launcher ssh" if choice.launcher == "ssh" else "--ssh on")
    return PreparedHost(
        workspace, devices, choice, modules, mpi, memory, accelerate, slots_asked, log_rules, fabric, ssh
    )


def _log_rules(job: Job, options: Settings) -> "tuple[LogRule, ...]":
    """The rules of ``--log-rules``; none where it isn't given."""
    if not options.log_rules:
        return ()
    from musterpoint.core.job.log_rules import check_channel, read_log_rules

    rules = read_log_rules(options.log_rules, job.paths.code)
    check_channel(rules, len(job.hosts), options.rollcall)
    return rules


def _here(path: str) -> str:
    """A file that is here as an absolute path; any other path as it is, for where the code is."""
    return os.path.abspath(path) if path and os.path.exists(path) else path


def _file(requirements: str) -> str:
    """The path of ``--requirements``, absolute; a UsageError where there is no such file."""
    path = os.path.abspath(requirements)
    if not os.path.isfile(path):
        raise UsageError(f"--requirements={requirements!r}: there is no file {path}")
    return path


class _LauncherModules:
    """The modules that a launcher, which is started without the user's PYTHONPATH, finds in the user's Python.

    Each is asked for once.
    """

    def __init__(self, interpreter: str, environ: Mapping[str, str], ask: "Ask | None") -> None:
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


def _among(modules: Iterable[str], interpreter: str, environ: Mapping[str, str], ask: "Ask | None") -> frozenset[str]:
    """Those of ``modules`` that ``interpreter`` finds with these variables, in a folder without modules."""
    from musterpoint.base import probe
    from musterpoint.core.code.interpreter import modules_among

    return modules_among(modules, interpreter, environ, "/", ask or probe.ask)


def _typed_accelerate(
    job: Job, options: Settings, interpreter: str, environ: Mapping[str, str], ask: "Ask | None"
) -> tuple[Job, Settings, "Accelerate | None", int | None]:
    """Reads a program that is `accelerate launch SCRIPT`: the job and the options that it stands for."""
    if not _HANDS_OVER.intersection((os.path.basename(job.entry_point.program), job.entry_point.program)):
        return job, options, None, None
    from musterpoint.core.launch.accelerate import as_typed, typed_words

    words = typed_words(job, options)
    if words is None:
        return job, options, None, None
    from musterpoint.core.fabric.accelerate import ask_accelerate

    found = ask_accelerate(interpreter, words, _here(options.accelerate_config), job.paths.code, environ, ask)
    job, slots = as_typed(job, options, found)
    return job, options._replace(slots=slots or options.slots), found, slots


_HANDS_OVER = frozenset(
    {
        "accelerate",
        "accelerate-launch",
        "accelerate.commands.launch",
        "accelerate.commands.accelerate_cli",
        "trl",
        "trl.cli",
    }
)
"""Programs that start ranks of their own by accelerate's launcher."""


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
    inputs = LaunchInputs(
        host.choice.launcher,
        job,
        host.workspace,
        roster,
        devices,
        options,
        environ,
        tuple(exports),
        (),
        host.modules,
        host.mpi,
        host.memory,
        host.accelerate,
        ssh=host.ssh,
    )
    notes: tuple[str, ...] = ()
    if len(roster.group) > 1 or host.choice.slots > 1 or devices.gpus or job.counted.variable:
        from musterpoint.core.launch.fabric import with_fabric

        inputs, notes = with_fabric(inputs, host.fabric)
    plan = build_plan(inputs)
    if job.in_group:
        smdistributed.check_layout(job, environ, plan)
    _check_size(plan, environ)
    if options.max_restarts and not roster.attempt:
        from musterpoint.core.job.restarts import note as note_of_restarts

        notes += (note_of_restarts(options),)
    if job.in_group:
        notes += smdistributed.notes(job, environ, host.choice.launcher, host.choice.reason)
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
    return Offer(job.name, "", 0, __version__)


def offer_of(job: Job, options: Settings, host: PreparedHost) -> Offer:
    """What this host says about itself in the roll call.

    Raises:
        MusterError: a port that all hosts must use is taken.
    """
    capacity, ports = capacity_of(job, options, host.devices), free_ports(job, options, host)
    place = _place(job, options)
    libraries = host.fabric.libraries.compared if host.fabric is not None else ()
    return Offer(job.name, host.choice.launcher, host.choice.slots, __version__, capacity, ports, libraries, place)


def _place(job: Job, options: Settings) -> str:
    """Where this host is in the network, if that decides the rank order; a UsageError where it can't."""
    if options.host_order != "topology" or len(job.hosts) == 1:
        return ""
    if options.rollcall != "full":
        raise UsageError(
            f"--host-order topology with --rollcall {options.rollcall}: only the full roll call tells every host where "
            "the others are: leave one of the two out"
        )
    place = f"{options.topology}.{job.own_name}" if options.topology else job.place  # the host itself comes last
    return place[:LONGEST_PLACE]


def free_ports(job: Job, options: Settings, host: PreparedHost) -> tuple[int, ...]:
    """Ports of this host for servers of the launcher's framework.

    Raises:
        MusterError: a port that all hosts must use is taken.
    """
    launcher = host.choice.launcher
    wanted = wanted_ports(launcher, host.modules, options, job) if job.in_group else ()
    if job.in_group and len(job.hosts) > 1 and options.rollcall == "full" and host.devices.neuron_cores:
        from musterpoint.core.launch.fabric import wanted_for_neuron

        wanted += wanted_for_neuron(launcher, host.devices)
    ports = offered(wanted, option_for_ports(launcher, options))
    if options.rollcall != "full" and len(job.hosts) > 1:
        agreed = agreed_ports(launcher, host.modules, agreed_master_port(options.master_port, job.master_port))
        leads = job.current_host == job.leader
        check_agreed(f"--rollcall {options.rollcall}", options.master_port, agreed, leads)
    return ports


def warn_of_build_locks(environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Warns of stale locks on builds of torch's extensions (:mod:`musterpoint.core.code.build_locks`).

    Call it when the ranks have been started, to start them earlier; the warning is in time then, too.
    """
    from musterpoint.core.code.build_locks import warnings

    for text in warnings(environ):
        say(f"warning: {text}")
