"""``muster local`` plays the control planes of other platforms on two hosts."""

from __future__ import annotations

from typing import Any

import pytest

SHOW = """
import os
names = ("SLURM_PROCID", "SLURM_NTASKS", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "PET_NODE_RANK", "JOB_COMPLETION_INDEX")
seen = {name: os.environ[name] for name in names if name in os.environ}
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "in", os.path.basename(os.getcwd()), seen, flush=True)
"""
PLAYED = {
    "slurm": ((), "node1 node2", lambda rank: {"SLURM_PROCID": f"{rank}", "SLURM_NTASKS": "4"}),
    "kubernetes": ((), "train-0.train train-1.train", lambda rank: {"JOB_COMPLETION_INDEX": f"{rank // 2}"}),
    "kubeflow": (
        ("--distribution", '{"runtime": "jax"}'), "train-node-0-0.train train-node-0-1.train",
        lambda rank: {"JAX_PROCESS_ID": f"{rank}", "JAX_NUM_PROCESSES": "4", "JOB_COMPLETION_INDEX": f"{rank // 2}"},
    ),
    # addresses that are listed; a first host that isn't told its own; places by arrival
    "skypilot": ((), "node1 node2", lambda rank: {}),
    "awsbatch": ((), "node1 node2", lambda rank: {}),
    "azurebatch": ((), "node1 node2", lambda rank: {}),
}  # fmt: skip


@pytest.mark.parametrize("platform", PLAYED)
def test_two_hosts_become_one_world(local: Any, platform: str) -> None:
    more, names, expected = PLAYED[platform]
    program = local.program(SHOW)
    ran = local.run("--platform", platform, "--hosts", "2", "--launcher", "ranks", "--slots", "2", *more, program)
    assert ran.code == 0, ran.stderr
    for number, host in enumerate(names.split()):
        seen = sorted(line for line in ran.log(host).splitlines() if line.startswith("rank "))
        assert seen == [f"rank {rank} of 4 in wd {expected(rank)}" for rank in (2 * number, 2 * number + 1)]
