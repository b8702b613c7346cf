"""What the variables of Slurm 22.05 say, as recorded in batch scripts, allocations and steps of two nodes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.model import Counted, Job, StartedRank
from musterpoint.core.job.platforms.slurm import kill_wait
from musterpoint.core.job.read import read_job

SALLOC = {
    "SLURM_CLUSTER_NAME": "muster", "SLURM_JOBID": "7", "SLURM_JOB_CPUS_PER_NODE": "2,1", "SLURM_JOB_ID": "7",
    "SLURM_JOB_NAME": "interactive", "SLURM_JOB_NODELIST": "fa-[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2",
    "SLURM_NODELIST": "fa-[1-2]", "SLURM_NODE_ALIASES": "(null)", "SLURM_NPROCS": "3", "SLURM_NTASKS": "3",
    "SLURM_TASKS_PER_NODE": "2,1", "SLURM_CONF": "/nowhere",
}  # fmt: skip
SBATCH = {
    **SALLOC, "SLURM_JOB_NAME": "tr", "SLURMD_NODENAME": "fa-1", "SLURM_NTASKS": "2", "SLURM_NPROCS": "2",
    "SLURM_NTASKS_PER_NODE": "1", "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_GTIDS": "0", "SLURM_NODEID": "0",
    "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_TASK_PID": "11284",
}  # fmt: skip
SRUN = {
    **SBATCH, "SLURM_STEPID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "fa-[1-2]",
    "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_LAUNCH_NODE_IPADDR": "10.79.1.1", "SLURM_SRUN_COMM_HOST": "10.79.1.1", "SLURM_SRUN_COMM_PORT": "37477",
    "SLURM_STEP_LAUNCHER_PORT": "37477", "SLURMD_NODENAME": "fa-2", "SLURM_NODEID": "1", "SLURM_PROCID": "1",
}  # fmt: skip
OF_ONE = {
    "SLURM_STEP_NODELIST": "fa-2", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NNODES": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_NTASKS": "1", "SLURM_NODEID": "0", "SLURM_PROCID": "0",
}  # fmt: skip
INTERACTIVE = {**SBATCH, **OF_ONE, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NODELIST": "fa-1", "SLURM_NNODES": "2"}
ONE_NODE = {**SBATCH, "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "fa-1"}
HETEROGENEOUS = {**ONE_NODE, "SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST_HET_GROUP_1": "fa-2"}


def read(environ: dict[str, str], base: Path = Path("/nowhere")) -> Job:
    return read_job(environ, Settings(), str(base), "train.py", ("--lr", "1"))


READ = [
    (SRUN, "fa-1 fa-2", "fa-2", "tr-7.0"),
    ({**SRUN, "SLURM_NODEID": "0", "SLURMD_NODENAME": "fa-1"}, "fa-1 fa-2", "fa-1", "tr-7.0"),
    ({**SRUN, "SLURMD_NODENAME": ""}, "fa-1 fa-2", "fa-2", "tr-7.0"),  # by its number
    ({**SRUN, "SLURMD_NODENAME": "front"}, "fa-1 fa-2", "fa-2", "tr-7.0"),
    ({**SRUN, "SLURM_JOB_ID": ""}, "fa-1 fa-2", "fa-2", "tr-7.0"),
    ({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "", "SLURM_STEP_NUM_TASKS": ""}, "fa-1 fa-2", "fa-2", "tr-7.0"),
    # what a wrapper around containers sets doesn't count
    ({**SRUN, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "PMIX_RANK": "0"}, "fa-1 fa-2", "fa-2", "tr-7.0"),
    # in another order than the names', and several kinds of names
    (
        {**SRUN, "SLURM_STEP_NODELIST": "gpu7,gpu2,cpu1", "SLURM_JOB_NODELIST": "", "SLURM_STEP_NUM_NODES": "3",
         "SLURM_NNODES": "3", "SLURM_NTASKS": "3", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
         "SLURMD_NODENAME": "gpu2"},
        "gpu7 gpu2 cpu1", "gpu2", "tr-7.0",
    ),
    ({**SRUN, **OF_ONE}, "fa-2", "fa-2", "tr-7.0"),  # of an allocation of two, for one on purpose
    (ONE_NODE, "fa-1", "fa-1", "tr-7"),
    ({**ONE_NODE, "SLURM_JOB_NAME": ""}, "fa-1", "fa-1", "slurm-7"),
    ({**INTERACTIVE, **ONE_NODE}, "fa-1", "fa-1", "tr-7"),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "hosts", "current", "name"), READ)
def test_the_hosts_of_a_step(environ: dict[str, str], hosts: str, current: str, name: str) -> None:
    job = read(environ)
    assert (job.platform, " ".join(job.hosts), job.current_host, job.name) == ("slurm", hosts, current, name)
    assert (job.group_hosts, job.entry_point.program, job.arguments) == (job.hosts, "train.py", ("--lr", "1"))


ALONE = [
    (SBATCH, "SLURM_JOB_NUM_NODES=2"),
    (SALLOC, "SLURM_JOB_NUM_NODES=2"),
    (INTERACTIVE, "SLURM_JOB_NUM_NODES=2"),
    ({**SBATCH, "SLURM_JOB_NUM_NODES": ""}, "SLURM_NNODES=2"),
    ({**SBATCH, "SLURM_JOB_NUM_NODES": "", "SLURM_NNODES": ""}, "SLURM_JOB_NODELIST=fa-[1-2]"),
    # submitted from inside of a step, whose variables sbatch passes on: of one node, and of one other node
    ({**SRUN, **OF_ONE, "SLURM_NNODES": "2", "SLURM_NTASKS": "2"}, "SLURM_JOB_NUM_NODES=2"),
    ({**SRUN, "SLURM_STEP_NODELIST": "login-1,login-2"}, "SLURM_JOB_NUM_NODES=2"),
    ({**SRUN, "SLURM_NTASKS": "4"}, "SLURM_JOB_NUM_NODES=2"),
]


@pytest.mark.parametrize(("environ", "named"), ALONE)
def test_one_process_for_several_nodes_is_refused_with_the_line_to_use(environ: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError) as error:
        read(environ)
    assert str(error.value).startswith(f"{named}: ")
    assert "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 muster launch" in str(error.value)
    assert read_job(environ, Settings(platform="plain"), "/nowhere", "train.py").platform == "plain"


@pytest.mark.parametrize(
    "passed", [{"SLURM_PROCID": "1"}, {"SLURM_NODEID": "1"}, {"SLURM_NNODES": "2"}, {"SLURM_LOCALID": "3"}]
)
def test_a_container_that_was_given_one_of_the_variables_does_not_train_alone(passed: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"^SLURM_JOB_NODELIST isn't set"):
        read_job(passed, Settings(), "/nowhere", "train.py")


def test_the_shell_of_salloc_is_on_no_node() -> None:
    one = {**SALLOC, "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "fa-1"}
    with pytest.raises(UsageError, match=r"^SLURM_JOB_NODELIST=fa-1: .* salloc: .*srun --nodes=1 --ntasks=1"):
        read(one)


HET_STEP = {
    "SLURM_HET_SIZE": "2", "SLURM_PACK_SIZE": "2", "SLURM_JOB_NODELIST_HET_GROUP_0": "fa-2",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "fa-1", "SLURM_JOB_NODELIST_PACK_GROUP_0": "fa-2",
    "SLURM_JOB_NODELIST_PACK_GROUP_1": "fa-1", "SLURM_DISTRIBUTION": "block",
}  # fmt: skip
"""As recorded: the second component has the node whose name sorts before the first one's."""
OF_COMPONENT = {
    **SRUN, **HET_STEP, **OF_ONE, "SLURM_JOB_NODELIST": "fa-2", "SLURM_JOB_NUM_NODES": "1", "SLURM_STEP_ID": "1",
}  # fmt: skip


def test_the_nodes_of_a_heterogeneous_step_are_in_the_order_of_its_tasks() -> None:
    first = {**SRUN, **HET_STEP, "SLURM_NODEID": "0", "SLURM_PROCID": "0"}
    second = {**SRUN, **HET_STEP, "SLURMD_NODENAME": "fa-1"}
    assert [(read(each).hosts, read(each).current_host) for each in (first, second)] == [
        (("fa-2", "fa-1"), "fa-2"), (("fa-2", "fa-1"), "fa-1"),
    ]  # fmt: skip
    older = {name: text for name, text in second.items() if "HET" not in name}
    assert read(older).hosts == ("fa-2", "fa-1")
    several = {"SLURM_STEP_TASKS_PER_NODE": "2,1", "SLURM_STEP_NUM_TASKS": "3", "SLURM_NTASKS": "3"}
    last = read({**second, **several, "SLURM_PROCID": "2", "SLURM_LOCALID": "1"})
    assert last.started == StartedRank(2, 1, 3, 2, sizes=(1, 2))
    assert read({**first, **several}).started == StartedRank(0, 0, 3, 1, sizes=(1, 2))


def test_a_step_of_one_component_says_that_it_leaves_the_others_out() -> None:
    job = read(OF_COMPONENT)
    assert job.hosts == ("fa-2",)
    (said,) = [note.text for note in job.notes if note.level == "warning"]
    assert said.startswith("SLURM_HET_SIZE=2: this step runs on 1 of the job's 2 nodes, without fa-1: ")
    assert said.endswith("srun --het-group=0-1 --ntasks-per-node=1 muster launch ...")
    with pytest.raises(UsageError, match=r"^SLURM_HET_SIZE=2: .*srun --het-group=0-1 "):
        read(HETEROGENEOUS)


HET_WRONG = [
    ({"SLURM_NODEID": "0"}, "SLURM_HET_SIZE=2, SLURM_NODEID=0, SLURMD_NODENAME=fa-1"),
    ({"SLURM_JOB_NODELIST_HET_GROUP_0": "fa-9"}, "aren't the step's"),
    ({"SLURM_HET_SIZE": "3", "SLURM_JOB_NODELIST_HET_GROUP_2": "fa-1"}, "aren't the step's"),
    ({"SLURM_HET_SIZE": "x"}, "SLURM_HET_SIZE is"),
    ({"SLURM_JOB_NODELIST_HET_GROUP_1": "fa-[1"}, "SLURM_JOB_NODELIST_HET_GROUP_1"),
    ({"SLURM_STEP_NODELIST": "fa-[1,1]", "SLURM_JOB_NODELIST": "fa-[1,1]"}, "has 1 nodes, and SLURM_STEP_NUM_NODES"),
]


@pytest.mark.parametrize(("different", "named"), HET_WRONG)
def test_components_that_do_not_fit_are_refused(different: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError, match=re.escape(named)):
        read({**SRUN, **HET_STEP, "SLURMD_NODENAME": "fa-1", **different})


WRONG = [
    ({"SLURM_STEP_NODELIST": "fa-[1-"}, "SLURM_STEP_NODELIST"),
    ({"SLURM_STEP_NODELIST": "fa-[1-3]", "SLURM_JOB_NODELIST": "fa-[1-3]"}, "SLURM_STEP_NUM_NODES is 2"),
    ({"SLURM_STEP_NUM_NODES": "two", "SLURM_NNODES": "two"}, "SLURM_STEP_NUM_NODES"),
    ({"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": ""}, "SLURM_JOB_NODELIST isn't set"),
    ({"SLURMD_NODENAME": "", "SLURM_NODEID": ""}, "SLURM_NODEID isn't set"),
    ({"SLURMD_NODENAME": "", "SLURM_NODEID": "2"}, "SLURM_NODEID is 2"),
    ({"SLURMD_NODENAME": "", "SLURM_NODEID": "-1"}, "SLURM_NODEID"),
    ({"SLURM_STEP_TASKS_PER_NODE": "1(x3)"}, "SLURM_STEP_TASKS_PER_NODE"),
    ({"SLURM_STEP_TASKS_PER_NODE": "1(y2)"}, "SLURM_STEP_TASKS_PER_NODE"),
    ({"OMPI_COMM_WORLD_SIZE": "4"}, "OMPI_COMM_WORLD_SIZE=4: an mpirun"),
    ({"OMPI_COMM_WORLD_SIZE": "9" * 5000}, "99...: an mpirun"),
    ({"TORCHELASTIC_RUN_ID": "1", "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "16"}, "RANK=1, LOCAL_RANK=1, WORLD_S"),
    ({"SLURM_GPUS_ON_NODE": "all"}, "SLURM_GPUS_ON_NODE"),
    ({"SLURM_GPUS_PER_NODE": "a100:"}, "SLURM_GPUS_PER_NODE"),
]


@pytest.mark.parametrize(("different", "named"), WRONG)
def test_a_wrong_variable_is_named(different: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError, match=re.escape(named)):
        read({**SRUN, **different})


PER_SLOT = {
    **SRUN, "SLURM_STEP_TASKS_PER_NODE": "2,3", "SLURM_STEP_NUM_TASKS": "5", "SLURM_NTASKS": "5", "SLURM_PROCID": "4",
    "SLURM_LOCALID": "2", "SLURM_NODEID": "1",
}  # fmt: skip


def test_a_task_for_every_slot_is_a_rank_that_srun_has_started() -> None:
    job = read({**PER_SLOT, "RANK": "0", "LOCAL_RANK": "0"})  # a wrapper's, which count nothing
    assert (job.started, job.distribution.processes_per_host) == (StartedRank(4, 2, 5, 3, sizes=(2, 3)), 3)
    first = {"SLURMD_NODENAME": "fa-1", "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "PMIX_RANK": "1"}
    assert read({**PER_SLOT, **first}).started == StartedRank(1, 1, 5, 2, mpi=True, sizes=(2, 3))
    one_node = {**SRUN, **OF_ONE, "SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"}
    assert read(one_node).started == StartedRank(0, 0, 4, 4)
    assert read(SRUN).started is None


@pytest.mark.parametrize(
    ("different", "named"),
    [
        ({"SLURM_DISTRIBUTION": "cyclic"}, "SLURM_DISTRIBUTION=cyclic: "),
        ({"SLURM_PROCID": "3"}, "SLURM_PROCID=3, SLURM_LOCALID=2: "),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "3"}, "SLURM_PROCID=5, SLURM_LOCALID=3: "),
        ({"SLURM_LOCALID": ""}, "SLURM_LOCALID isn't set"),
    ],
)
def test_tasks_that_are_not_numbered_node_by_node_are_refused(different: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError, match=f"^{named}"):
        read({**PER_SLOT, **different})


GPUS = [
    ({}, Counted()),
    ({"SLURM_GPUS_ON_NODE": "8"}, Counted(8, "SLURM_GPUS_ON_NODE")),
    ({"SLURM_GPUS_ON_NODE": "4", "SLURM_GPUS_PER_NODE": "a100:8"}, Counted(4, "SLURM_GPUS_ON_NODE")),
    ({"SLURM_GPUS_PER_NODE": "a100:8"}, Counted(8, "SLURM_GPUS_PER_NODE")),
    ({"SLURM_GPUS_PER_NODE": "volta:3,kepler:1"}, Counted(4, "SLURM_GPUS_PER_NODE")),
    ({"SLURM_GPUS_ON_NODE": "0"}, Counted()),
    ({"SLURM_GPUS_ON_NODE": "8", "SM_NUM_GPUS": "2"}, Counted(2, "SM_NUM_GPUS")),
]


@pytest.mark.parametrize(("different", "counted"), GPUS)
def test_slots_are_the_gpus_that_slurm_allocated(different: dict[str, str], counted: Counted) -> None:
    assert read({**SRUN, **different}).counted == counted


GRACES = [
    (None, 30.0),
    ("", 30.0),
    ("KillWait=45", 45.0),
    ("SlurmctldHost=a\n  killwait = 120   # the sites own\nMaxTime=1\n", 120.0),
    ("#KillWait=7", 30.0),
    ("KillWait=soon", 30.0),
]


@pytest.mark.parametrize(("text", "grace"), GRACES)
def test_the_grace_is_slurms_where_its_configuration_is_here(
    text: str | None, grace: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("musterpoint.core.job.platforms.slurm.CONFIGURATIONS", ())
    path = tmp_path / "slurm.conf"
    if text is not None:
        path.write_text(text)
    assert kill_wait({"SLURM_CONF": str(path)}) == grace


def test_a_batch_script_of_one_node_says_what_its_tasks_are_not() -> None:
    job = read({**ONE_NODE, "SLURM_NTASKS": "4"})
    assert [note.text.partition(" counts")[0] for note in job.notes[1:]] == ["SLURM_NTASKS=4"]
    assert len(read({**ONE_NODE, "SLURM_NTASKS": "1"}).notes) == len(read(SRUN).notes) == 1


def test_two_jobs_on_one_node_have_ports_of_their_own() -> None:
    steps = [{"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)} for job in range(700, 720) for step in (0, 1)]
    ports = [read({**SRUN, **step}).rollcall_port for step in steps]
    assert len(set(ports)) == len(ports)
    assert all(20000 <= port < 32000 for port in ports)
    assert read({**SRUN, "SLURM_JOB_ID": "x"}).rollcall_port == 0


def test_hosts_that_somebody_named_go_first() -> None:
    environ = {**SBATCH, "SM_HOSTS": '["a", "b"]', "SM_CURRENT_HOST": "b"}
    assert read(environ).hosts == ("a", "b")
