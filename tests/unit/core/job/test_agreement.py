"""What the platform and the user say of the hosts: which counts, and that no contradiction ends in worlds of one."""

from __future__ import annotations

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.read import read_job

from .conftest import read
from .test_slurm import OF_ONE, PER_SLOT, SRUN

ONE = {**SRUN, **OF_ONE}
"""A step on fa-2 alone, in an allocation of fa-1 and fa-2."""
WHOLE = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "fa-1", "MASTER_PORT": "29500"}
"""What a script gives to the step of each node (AWS: 2.train-mpt-manual-distributed.sbatch)."""
INDEXED = {"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "train-1", "MUSTER_NNODES": "2"}
SAGEMAKER = {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-2"}


@pytest.mark.parametrize(
    ("words", "options", "place", "port"),
    [
        (WHOLE, {}, 1, 0),
        ({"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "fa-1"}, {}, 1, 0),
        ({"PET_NNODES": "2", "PET_RDZV_ENDPOINT": "fa-1:29400"}, {}, None, 29400),
        ({"NUM_NODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "fa-1"}, {}, 1, 0),
        ({}, {"nnodes": 2, "node_rank": 1, "rollcall_leader": "fa-1"}, 1, 0),
        ({}, {"nnodes": 2, "rollcall_leader": "fa-1:29400"}, None, 29400),
        ({"NNODES": "3"}, {"nnodes": 2, "node_rank": 1, "rollcall_leader": "fa-1"}, 1, 0),
    ],
)
def test_a_complete_description_counts(
    words: dict[str, str], options: dict[str, object], place: int | None, port: int
) -> None:
    job = read({**ONE, **words}, **options)
    assert (job.platform, job.hosts) == ("slurm", ("node-0", "node-1"))
    assert job.unnamed is not None
    assert (job.unnamed.nnodes, job.unnamed.node_rank, job.unnamed.leader, job.unnamed.port) == (2, place, "fa-1", port)
    assert job.own_name == "fa-2"
    assert any("describes; by Slurm's description there is one host (fa-2)" in note.text for note in job.notes)
    assert not any(note.level == "warning" for note in job.notes)


def test_steps_that_are_joined_have_one_name_and_one_port() -> None:
    first = {**ONE, "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "fa-1", "SLURMD_NODENAME": "fa-1"}
    jobs = [read({**environ, **WHOLE}) for environ in ({**first, "SLURM_STEP_ID": "4"}, {**ONE, "SLURM_STEP_ID": "5"})]
    assert len({(job.name, job.rollcall_port) for job in jobs}) == 1


@pytest.mark.parametrize(
    ("environ", "options", "said"),
    [
        ({**ONE, "NNODES": "2", "NODE_RANK": "1"}, {}, "NNODES=2, NODE_RANK=1, but by Slurm's description there is "
         "one host (fa-2): set MASTER_ADDR to the first host's name or address, the same on all hosts; or let the "
         "platform start one job on all hosts (srun --ntasks-per-node=1); or pass --platform plain"),
        ({**ONE, "NNODES": "2", "MASTER_ADDR": "fa-1"}, {}, "(fa-2): set NODE_RANK to each host's place, from 0; or"),
        ({**ONE, "PET_NNODES": "2"}, {}, "PET_NNODES=2, but by Slurm's description there is one host (fa-2): set "),
        ({**ONE}, {"nnodes": 2}, "--nnodes 2, but by Slurm's description there is one host (fa-2): pass --rollcall"),
        ({**ONE}, {"node_rank": 1}, "--node-rank 1, but by Slurm's description there is one host (fa-2): pass --nn"),
        ({**SRUN}, {"nnodes": 3}, "--nnodes 3, but by Slurm's description there are 2 hosts (fa-1, fa-2): pass --roll"),
        ({**SRUN}, {"nnodes": 1}, "--nnodes=1 (MUSTER_NNODES), but by Slurm's description there are 2 hosts"),
        ({**PER_SLOT, **WHOLE, "NNODES": "4"}, {}, "let the platform start one job on all hosts (srun --ntasks-per-"),
        ({**SAGEMAKER, "NNODES": "3", "NODE_RANK": "0"}, {}, "by SageMaker's description there are 2 hosts (algo-1, "),
    ],
)  # fmt: skip
def test_an_incomplete_contradiction_is_refused_with_both_sides(
    environ: dict[str, str], options: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError) as error:
        read(environ, **options)
    assert said in str(error.value)
    if "one host" in said:
        assert "leave" not in str(error.value)


@pytest.mark.parametrize(
    "environ",
    [
        {**SRUN, **WHOLE},
        {**SRUN, **WHOLE, "NODE_RANK": "0"},  # set once, in the batch script
        {**SRUN, "NNODES": "4"},  # nothing beside it says that it counts hosts
        {**SRUN, "NNODES": "1", "NODE_RANK": "0", "MASTER_ADDR": "localhost"},
        {**SRUN, "NNODES": "two", "NODE_RANK": "0", "MASTER_ADDR": "fa-1"},
        {**SRUN, "NNODES": "9" * 40, "NODE_RANK": "0", "MASTER_ADDR": "fa-1"},
    ],
)
def test_the_platforms_hosts_count_otherwise(environ: dict[str, str]) -> None:
    job = read(environ)
    assert (job.unnamed, job.hosts, job.current_host) == (None, ("fa-1", "fa-2"), "fa-2")


def test_what_a_platform_says_itself_is_compared_with_nothing() -> None:
    pods = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "tj-node-0-0.tj"}
    assert read(pods).hosts == ("tj-node-0-0.tj", "tj-node-0-1.tj")
    assert read({**pods, "NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "tj-node-0-0.tj"}).unnamed is None
    assert read({**INDEXED, "NNODES": "2", "NODE_RANK": "1"}).hosts == ("train-0", "train-1")


def test_train_reads_no_variables_of_a_login_node() -> None:
    assert read_job({**SAGEMAKER, **WHOLE, "NNODES": "5"}, Settings(), "/nowhere").hosts == ("algo-1", "algo-2")


def test_a_step_that_covers_fewer_nodes_than_were_allocated_says_so() -> None:
    (note,) = (note for note in read(ONE).notes if note.level == "warning")
    assert note.text.startswith("this step runs on 1 of the job's 2 nodes, without fa-1, and trains without them")
    assert "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 muster launch" in note.text
    assert [note for note in read(SRUN).notes if note.level == "warning"] == []
