"""This host's plan: what its launcher makes, then the steps that the plans of all launchers take, then the checks."""

import re
from typing import TYPE_CHECKING, Callable, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.executables import over_limit, size_of
from musterpoint.base.readers import split_endpoint
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.core.code.workspace import Workspace
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job import restartable
from musterpoint.core.job.exports import Machine, sagemaker_exports
from musterpoint.core.job.model import Job, Role
from musterpoint.core.launch import smdistributed
from musterpoint.core.launch.choose import Choice
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import Argument, LaunchPlan, ProcessPlan, told_local_rank
from musterpoint.core.launch.launcher import asks_for_ssh
from musterpoint.core.launch.launchers import ON_ITS_OWN, find_launcher
from musterpoint.core.rollcall.roster import Roster

if TYPE_CHECKING:
    from musterpoint.core.fabric.fabric_facts import Fabric
    from musterpoint.core.fabric.ssh import Ssh


class PreparedHost(NamedTuple):
    """This host before the roll call."""

    workspace: Workspace
    """The user's code, and how it starts."""
    devices: Devices
    choice: Choice
    """The launcher and its slots."""
    modules: frozenset[str] = frozenset()
    """The launcher's, as far as the user's Python has them."""
    known: object = None
    """More that the launcher has to know of this host."""
    fabric: "Fabric | None" = None
    """Its accelerators and RDMA network, where it has any."""
    ssh: "Ssh | None" = None
    """Its OpenSSH, where hosts are to call each other by it."""
    notes: tuple[str, ...] = ()
    """Sentences for what this host lacks, in a plan."""
    beside: tuple[tuple[Role, Workspace], ...] = ()
    """The roles beside this host's own, and how their programs start."""


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
        find_launcher(host.choice.launcher),
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
    if job.roles:
        from musterpoint.core.launch.role_plan import with_roles

        plan = with_roles(inputs, plan, host.beside)
    if job.in_group:
        smdistributed.check_layout(job, environ, inputs.launcher, plan)
    _check_size(plan, environ)
    notes += host.notes
    if options.max_restarts and not roster.attempt:
        notes.append(restartable.note(options))
    if job.in_group:
        notes += smdistributed.notes(job, environ, inputs.launcher, host.choice.reason)
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


Step = Callable[[LaunchInputs, LaunchPlan], LaunchPlan]
EXPANDED = ("LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "RANK")
"""The variables that are replaced, as ``$NAME`` or ``${NAME}``; no name begins with one before it."""
_ANY = "|".join(EXPANDED)
_NAME = re.compile(rf"\$(?:\{{({_ANY})\}}|({_ANY})(?![A-Za-z0-9_]))")


def build_plan(inputs: LaunchInputs) -> LaunchPlan:
    """This host's launch plan. A host outside the distribution group runs the program on its own.

    Raises:
        LauncherError: the launcher can't start this job here.
        UsageError: an option or a variable of the launcher's is wrong.
    """
    own = inputs if inputs.roster.seat.grouped else inputs._replace(launcher=find_launcher(ON_ITS_OWN))
    plan = own.launcher.plan(own)
    for step in STEPS:
        plan = step(own, plan)
    return plan


def _without_mpi(inputs: LaunchInputs, plan: LaunchPlan) -> LaunchPlan:
    """``plan`` without the variables of a rank that the platform started this process as, where ranks are started."""
    if inputs.job.started is None or inputs.started is not None:
        return plan
    own = {name for name in inputs.environ if name in _IDENTITY}
    if not plan.independent:
        own |= {name for name in inputs.environ if name.startswith(MPI_VARIABLES)}
    return plan._replace(unset=tuple(dict.fromkeys((*plan.unset, *sorted(own)))))


MPI_VARIABLES = ("OMPI_", "PMIX_", "PMI_", "MPI_LOCAL", "ORTE_", "PRTE_", "HYDI_", "HYDRA_", "I_MPI_HYDRA_")
"""How the variables begin by which an mpirun identifies the processes that it has started."""
_IDENTITY = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")


def _with_mpi_options(inputs: LaunchInputs, plan: LaunchPlan) -> LaunchPlan:
    """The plan with the variables that options for mpirun give every rank, and a note about the other options.

    A launcher that reads the options itself has followed them.
    """
    given, more = inputs.job.distribution, inputs.settings.mpi_options
    grouped = inputs.roster.seat.grouped
    if not (given.options or more) or not grouped or "mpi_options" in inputs.launcher.reads:
        return plan

    from musterpoint.core.launch.mpi.mpirun_options import without_mpi  # 3 ms, for jobs with such options

    exports, rest = without_mpi(given, more)
    own = {setting.name for process in plan.processes for setting in process.environment}
    environment = {setting.name: setting for setting in plan.environment}
    environment.update((setting.name, setting) for setting in exports if setting.name not in own)
    where = " and ".join(
        name for name, text in (("custom_mpi_options", given.options), ("--mpi-options", more)) if text
    )
    foreign = (process.name for process in plan.processes if process.role == "launcher")
    by = next(foreign, f"launcher {plan.launcher}")
    note = (f"{where}: {rest} isn't followed: {by} starts the ranks",) if rest else ()
    return plan._replace(environment=tuple(environment.values()), notes=(*plan.notes, *note))


def _with_local_rank(inputs: LaunchInputs, plan: LaunchPlan) -> LaunchPlan:
    """``plan`` with ``--local_rank=N`` behind a script's or module's name, where settings or the launcher want it."""
    launcher = inputs.launcher
    wanted = inputs.settings.local_rank or launcher.local_rank
    flag = "--local-rank" if wanted == "dashed" else "--local_rank"
    at = {"python": 2, "module": 3}.get(inputs.workspace.kind, -1)
    if wanted == "variable" or at < 0:
        return plan
    if plan.foreign:
        more = launcher.before_script(inputs) if launcher.before_script else 0
        return plan._replace(local_rank_at=at + more, local_rank_flag=flag)
    processes = tuple(told_local_rank(process, inputs.workspace.argv, at, flag) for process in plan.processes)
    place = at if plan.of_others else plan.local_rank_at
    return plan._replace(processes=processes, local_rank_at=place, local_rank_flag=flag)


def _with_ssh(inputs: LaunchInputs, plan: LaunchPlan) -> LaunchPlan:
    """``plan`` with ssh between the hosts, where that was asked for."""
    if not inputs.roster.seat.grouped or not asks_for_ssh(inputs.launcher, inputs.settings):
        return plan
    from musterpoint.core.launch.ssh_settings import with_ssh  # 2 ms

    return with_ssh(inputs, plan)


def _expanded(inputs: LaunchInputs, plan: LaunchPlan) -> LaunchPlan:
    """``plan`` with ``$LOCAL_RANK`` and the like replaced, where the platform's guides write so."""
    if not inputs.platform.unexpanded or not any("$" in word for word in inputs.workspace.argv):
        return plan
    return expand(plan, inputs.environ)


def expanded(word: str, environment: Mapping[str, str]) -> str:
    """``word`` with the values of :data:`EXPANDED`; one that isn't set stays as it is written."""
    return _NAME.sub(lambda found: environment.get(found[1] or found[2], found[0]), word)


def expand(plan: LaunchPlan, environ: Mapping[str, str]) -> LaunchPlan:
    """``plan`` with variables replaced in the words of its ranks; where stubs start them, these are told to do it.

    A shell in front of ``muster launch`` has replaced them already; here are those that it couldn't know, for they
    differ by rank, and those of jobs that no shell starts (SDK v1). A rank that a launcher starts gets them from its
    stub.
    """
    words = [word for process in (*plan.processes, *plan.of_others) for word in process.words]
    if not any(_NAME.search(word) for word in words):
        return plan
    inherited = {name: value for name, value in environ.items() if name not in plan.unset}
    processes = tuple(
        process if process.role == "launcher" else _with_values(process, {**inherited, **_values(plan.environment)})
        for process in plan.processes
    )
    return plan._replace(processes=processes, expands=True)


def _values(settings: tuple[EnvSetting, ...]) -> dict[str, str]:
    return {setting.name: setting.value for setting in settings}


def _with_values(process: ProcessPlan, environment: Mapping[str, str]) -> ProcessPlan:
    own = {**environment, **_values(process.environment)}
    return process._replace(argv=tuple(_argument(argument, own) for argument in process.argv))


def _argument(argument: Argument, environment: Mapping[str, str]) -> Argument:
    text = expanded(argument.text, environment)
    return argument if text == argument.text else Argument(text, f"{argument.text}, replaced", argument.ours)


PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


def _past_proxies(inputs: LaunchInputs, plan: LaunchPlan) -> LaunchPlan:
    """``plan`` with the job's hosts among those that no proxy is asked for, where servers on them talk."""
    proxy = next((name for name in PROXIES if inputs.environ.get(name)), "")
    if not proxy or not inputs.launcher.talks_grpc or len(inputs.roster.group) < 2:
        return plan
    hosts = [word for seat in inputs.roster.group for word in dict.fromkeys((seat.name, seat.address)) if word]
    settings = []
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        given = inputs.environ.get(name)  # the lower one goes before the upper one, and gRPC knows no other
        words = given if given is not None or name != "no_proxy" else inputs.environ.get("NO_PROXY")
        kept = [word.strip() for word in (words or "").split(",") if word.strip()]
        added = [host for host in hosts if host not in kept]
        if added and "*" not in kept and (given is not None or name == "no_proxy"):
            reason = f"the job's hosts too: what their servers say would go to {proxy}"
            settings.append(EnvSetting(name, ",".join((*kept, *added)), reason))
    if not settings:
        return plan
    names = {setting.name for setting in settings}
    note = f"{settings[0].name} has the job's hosts, too: with {proxy} their servers would call each other by the proxy"
    others = tuple(setting for setting in plan.environment if setting.name not in names)
    return plan._replace(environment=(*others, *settings), notes=(*plan.notes, note))


STEPS: tuple[Step, ...] = (_without_mpi, _with_mpi_options, _with_local_rank, _with_ssh, _past_proxies, _expanded)
"""In their order."""
