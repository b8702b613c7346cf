"""How a job ends on two hosts, for every way a rank can end and every launcher that can start it."""

from __future__ import annotations

import pytest


@pytest.mark.lane("suite")
def test_a_program_that_cannot_be_executed_ends_every_host_with_64(local) -> None:  # type: ignore[no-untyped-def]
    ran = local.run("--hosts", "2", "--backend", "process", local.program("\0 is no text\n", "tool"))
    assert ran.code == 64, ran.stderr
    assert "tool" in ran.reason
    assert [ran.outcome(host)["code"] for host in ("algo-1", "algo-2")] == [64, 64]


UNEVEN = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
seen = torch.tensor([1])
dist.all_reduce(seen)
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"]
print("I am", *(os.environ[name] for name in names), "of", seen.item(), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.lane("suite")
@pytest.mark.parametrize(
    "words",
    [("ranks",), ("torchrun",), pytest.param(("torchrun", "--rendezvous", "c10d"), marks=pytest.mark.lane("hosts"))],
    ids=" ".join,
)
def test_uneven_hosts_make_one_world(local, words: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    options = ("--hosts", "2", "--backend", "process", "--host-slots", "1,2", "--launcher", *words)
    ran = local.run(*options, local.program(UNEVEN))
    assert ran.code == 0, ran.stderr + ran.stdout
    assert ran.stdout.count("of 3") == 3
    if "c10d" not in words:  # which gives ranks in the order in which hosts come
        assert "I am 0 0 3 1 of 3" in ran.log("algo-1")
        assert all(f"I am {rank} {rank - 1} 3 2 of 3" in ran.log("algo-2") for rank in (1, 2))
