"""``muster local`` plays the control planes of all platforms on two hosts, as ``muster plan`` says."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from musterpoint.local.platforms import playable

SHOW = """
import os
names = ("SLURM_PROCID", "SLURM_NTASKS", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "PET_NODE_RANK", "JOB_COMPLETION_INDEX")
seen = {name: os.environ[name] for name in names if name in os.environ}
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "at", os.environ["MASTER_ADDR"], "in",
      os.path.basename(os.getcwd()), seen, flush=True)
"""
PLAYED = {
    "slurm": ((), lambda rank: {"SLURM_PROCID": f"{rank}", "SLURM_NTASKS": "4"}),
    "kubernetes": ((), lambda rank: {"JOB_COMPLETION_INDEX": f"{rank // 2}"}),
    "kubeflow": (
        ("--distribution", '{"runtime": "jax"}'),
        lambda rank: {"JAX_PROCESS_ID": f"{rank}", "JAX_NUM_PROCESSES": "4", "JOB_COMPLETION_INDEX": f"{rank // 2}"},
    ),
}  # fmt: skip
IN_SUITE = (*PLAYED, "skypilot", "azurebatch")
"""Beside those with variables of their own: a list of addresses, and places by arrival."""


@pytest.mark.parametrize(
    "platform", [pytest.param(each, marks=[pytest.mark.lane("suite")] * (each in IN_SUITE)) for each in playable()]
)
def test_two_hosts_become_the_world_that_was_planned(local: Any, platform: str) -> None:
    more, expected = PLAYED.get(platform, ((), None))
    words = ["--platform", platform, "--hosts", "2", "--launcher", "ranks", "--slots", "2", *more]
    words.append(str(local.program(SHOW)))
    planned = [local.python, "-m", "musterpoint", "plan", "--json", *words]
    said = subprocess.run(planned, env=local.environ, cwd=local.folder, capture_output=True, check=True).stdout
    ran = local.run(*words)
    assert ran.code == 0, ran.stderr
    hosts = sorted((each.name for each in (local.output / "hosts").iterdir()), key=lambda name: name.split("."))
    for number, (host, plan) in enumerate(zip(hosts, json.loads(said)["hosts"], strict=True)):
        first, count, variables = plan["first_rank"], plan["local_ranks"], plan["processes"][0]["environment"]
        leader = next(each["value"] for each in variables if each["name"] == "MASTER_ADDR")
        assert [event["launcher"] for event in ran.events(host) if event["event"] == "host-prepared"] == ["ranks"]
        seen = sorted(line for line in ran.log(host).splitlines() if line.startswith("rank "))
        assert (first, count, len(seen)) == (2 * number, 2, 2)
        for rank, line in zip((first, first + 1), seen):
            assert line.startswith(f"rank {rank} of 4 at {leader} in ")
            assert expected is None or line.endswith(f" in wd {expected(rank)}")
