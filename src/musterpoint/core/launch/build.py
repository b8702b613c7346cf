"""This host's plan: what its launcher makes, and then the steps that the plans of all launchers take."""

from typing import Callable

from musterpoint.core.launch import expansion
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launcher import asks_for_ssh
from musterpoint.core.launch.mpi.options import without_mpi
from musterpoint.core.launch.plan import LaunchPlan, told_local_rank
from musterpoint.core.launch.ssh import with_ssh
from musterpoint.core.launch.table import ON_ITS_OWN

Step = Callable[[LaunchInputs, LaunchPlan], LaunchPlan]


def build_plan(inputs: LaunchInputs) -> LaunchPlan:
    """This host's launch plan. A host outside the distribution group runs the program on its own.

    Raises:
        LauncherError: the launcher can't start this job here.
        UsageError: an option or a variable of the launcher's is wrong.
    """
    own = inputs if inputs.roster.seat.grouped else inputs._replace(launcher=ON_ITS_OWN)
    plan = own.kind.plan(own)
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
    if not (given.options or more) or not grouped or "mpi_options" in inputs.kind.reads:
        return plan

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
    launcher = inputs.kind
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
    if not inputs.roster.seat.grouped or not asks_for_ssh(inputs.kind, inputs.settings):
        return plan
    return with_ssh(inputs, plan)


def _expanded(inputs: LaunchInputs, plan: LaunchPlan) -> LaunchPlan:
    """``plan`` with ``$LOCAL_RANK`` and the like replaced, where the platform's guides write so."""
    if not inputs.platform.unexpanded or not any("$" in word for word in inputs.workspace.argv):
        return plan
    return expansion.expand(plan, inputs.environ)


STEPS: tuple[Step, ...] = (_without_mpi, _with_mpi_options, _with_local_rank, _with_ssh, _expanded)
"""In their order."""
