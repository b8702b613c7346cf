"""``tensorflow``: the program once per host, with the TF_CONFIG that ``MultiWorkerMirroredStrategy`` reads.

Every host of the group is a worker, in rank order; worker 0 is the chief. One host alone gets no TF_CONFIG, as on the
platforms, unless ``--tf-port`` asks for it. How workers exchange gradients (RING, NCCL) is the program's to say.
"""

from __future__ import annotations

from musterpoint.errors import UsageError
from musterpoint.fabric.setting import EnvSetting
from musterpoint.launch.inputs import LaunchInputs
from musterpoint.launch.plan import LaunchPlan, ProcessPlan
from musterpoint.launch.stub import program_arguments
from musterpoint.launch.tensorflow import config
from musterpoint.launch.tensorflow.config import Given


def plan_tensorflow(inputs: LaunchInputs) -> LaunchPlan:
    """This host's worker."""
    roster = inputs.roster
    found = config.given(inputs.environ)
    if found is not None:
        return plan_given("tensorflow", inputs, found)
    if inputs.hosts == 1 and inputs.settings.tf_port is None:
        note = "one host: no TF_CONFIG is set; --tf-port asks for one"
        return plan_of("tensorflow", inputs, (rank(inputs, roster.first_rank),), 1, notes=(note,))
    workers = [seat.name for seat in roster.group]
    text = config.encode(
        {"worker": [config.address(inputs, "tensorflow", host, 0) for host in workers]},
        "worker", roster.node_rank, inputs.job.platform,
    )  # fmt: skip
    chief = "the chief" if roster.node_rank == 0 else f"{workers[0]} is the chief"
    setting = EnvSetting(config.NAME, text, f"this host is worker {roster.node_rank} of {len(workers)}; {chief}")
    moved = config.taken(inputs, "tensorflow", [(host, 0) for host in workers])
    notes = moved if roster.node_rank == 0 else ()
    return plan_of("tensorflow", inputs, (rank(inputs, roster.first_rank, setting),), roster.world_size, notes=notes)


def plan_given(launcher: str, inputs: LaunchInputs, found: Given) -> LaunchPlan:
    """The program with the TF_CONFIG that was set already; as a service where it only serves the others."""
    roster = inputs.roster
    note = f"TF_CONFIG was set already and is kept: {roster.me} is {found.task}"
    if not found.serves:
        return plan_of(launcher, inputs, (rank(inputs, roster.first_rank),), roster.world_size, notes=(note,))
    check_channel(inputs, launcher)
    return plan_of(launcher, inputs, (beside(inputs, found.task),), roster.world_size, local_ranks=0, notes=(note,))


def check_channel(inputs: LaunchInputs, launcher: str) -> None:
    """Services run until every host is done, which only the roll call's channel tells.

    Raises:
        UsageError: there are several hosts without that channel.
    """
    if inputs.hosts > 1 and inputs.settings.rollcall != "full":
        raise UsageError(
            f"--rollcall {inputs.settings.rollcall}: launcher {launcher} has processes that run until all hosts are "
            "done, which only --rollcall full can tell"
        )


def rank(inputs: LaunchInputs, number: int, *settings: EnvSetting) -> ProcessPlan:
    """The program as this host's one rank."""
    workspace = inputs.workspace
    return ProcessPlan(
        "rank", f"rank {number}", program_arguments(workspace.argv), settings, workspace.cwd, number, 0
    )  # fmt: skip


def beside(inputs: LaunchInputs, name: str, *settings: EnvSetting) -> ProcessPlan:
    """The program as a service called ``name``."""
    workspace = inputs.workspace
    return ProcessPlan("service", name, program_arguments(workspace.argv), settings, workspace.cwd, users=True)


def plan_of(
    launcher: str, inputs: LaunchInputs, processes: tuple[ProcessPlan, ...], world_size: int, *, local_ranks: int = 1,
    first_rank: int | None = None, notes: tuple[str, ...] = (),
) -> LaunchPlan:  # fmt: skip
    """A plan of the program's and our own processes, none of which a stub starts."""
    return LaunchPlan(
        launcher=launcher,
        host=inputs.roster.me,
        processes=processes,
        environment=inputs.environment_of(),
        local_ranks=local_ranks,
        world_size=world_size,
        first_rank=inputs.roster.first_rank if first_rank is None else first_rank,
        user_cwd=inputs.workspace.cwd,
        user_pythonpath=inputs.pythonpath,
        notes=notes,
    )
