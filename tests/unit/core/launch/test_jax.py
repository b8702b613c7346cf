"""What ``jax.distributed.initialize()`` finds: its place in the job, and nothing of another launcher's."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.core.fabric.devices import Devices
from musterpoint.core.launch.inputs import STARTUP

from .conftest import Planner, Values

TWO = {"algo-1": 2, "algo-2": 2}


def test_every_rank_has_its_place(plan: Planner, values: Values) -> None:
    made = plan("jax", TWO, "algo-2")
    second = values(made, 1)
    expected = {
        "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "7777", "JAX_COORDINATOR_ADDRESS": "10.0.0.1:7701", "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": "3", "JAX_ENABLE_PREEMPTION_SERVICE": "false",
    }  # fmt: skip
    assert {name: second[name] for name in expected} == expected
    assert "JAX_LOCAL_DEVICE_IDS" not in second
    assert second["PYTHONPATH"].split(":")[:2] == [STARTUP, "/opt/ml/code"]
    assert [process.role for process in made.processes] == ["rank", "rank"], "nothing serves beside rank 0"
    assert made.processes[0].words == ["/usr/bin/python3", "train.py", "--lr", "0.1"]


def test_addresses(plan: Planner, values: Values) -> None:
    assert values(plan("jax", {"a": 2}))["JAX_COORDINATOR_ADDRESS"] == "127.0.0.1:7701"
    assert values(plan("jax", TWO, addresses="fd00::"))["JAX_COORDINATOR_ADDRESS"] == "[fd00::1]:7701"


@pytest.mark.parametrize(
    ("gpus", "slots", "environ", "ids"),
    [
        (8, 8, {}, ["0", "1", "2", "3", "4", "5", "6", "7"]),
        (8, 2, {}, ["0,1,2,3", "4,5,6,7"]),
        (8, 1, {}, ["0,1,2,3,4,5,6,7"]),
        (8, 3, {}, ["", "", ""]),
        (1, 2, {}, ["", ""]),
        (2, 2, {"JAX_LOCAL_DEVICE_IDS": "1"}, ["", ""]),
    ],
)
def test_slots_share_the_gpus(
    plan: Planner, values: Values, gpus: int, slots: int, environ: dict[str, str], ids: list[str]
) -> None:
    made = plan("jax", {"a": slots, "b": slots}, "b", devices=Devices(gpus=gpus), environ=environ)
    assert [values(made, slot).get("JAX_LOCAL_DEVICE_IDS", "") for slot in range(slots)] == ids


def test_no_rank_takes_itself_for_a_task_of_another_launcher(plan: Planner, values: Values) -> None:
    stale: dict[str, Any] = {
        "SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2",
        "SLURM_STEP_NODELIST": "n[1-2]",
        "OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.0.0.9:1", "OMPI_COMM_WORLD_RANK": "1", "JAX_COORDINATOR_PORT": "99",
        "JAX_COORDINATOR_ADDRESS": "10.9.9.9:1", "JAX_PROCESS_ID": "9", "RANK": "9",
    }  # fmt: skip
    made = plan("jax", TWO, "algo-1", environ={**stale, "JAX_ENABLE_PREEMPTION_SERVICE": "true"})
    assert set(made.unset) == set(stale) - {"SLURM_JOB_ID", "JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID", "RANK"}
    rank = values(made)
    assert (rank["JAX_COORDINATOR_ADDRESS"], rank["JAX_PROCESS_ID"], rank["RANK"]) == ("10.0.0.1:7701", "0", "0")
    assert "JAX_ENABLE_PREEMPTION_SERVICE" not in rank, "the user's own stays"
