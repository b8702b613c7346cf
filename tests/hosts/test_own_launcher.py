"""A launcher of the user's own: the program of each host is a script that starts torchrun, which starts ranks."""

from __future__ import annotations

import pytest

from ..faults.launchers import OWN_TORCHRUN

TRAIN = """
import os, signal, sys, time
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])

def save(*_):
    time.sleep(6)
    print("rank", rank, "has saved", flush=True)
    sys.exit(0)

dist.init_process_group("gloo")
if rank == 2:
    signal.signal(signal.SIGTERM, save)
one = torch.ones(1)
dist.all_reduce(one)
print("rank", rank, "works", flush=True)
if rank == 2:
    dist.send(one, 3)  # its handler is there
    while True:
        time.sleep(0.05)
if rank == 3:
    dist.recv(one, 2)
    print("ready to be stopped", flush=True)
    time.sleep(600)
dist.recv(one, 3)
"""


@pytest.mark.parametrize(
    ("own", "saved"),
    [((), True), pytest.param(("--env", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=2"), False, marks=pytest.mark.lane("hosts"))],
    ids=["it saves", "the job's own timeout"],
)
def test_a_stop_leaves_the_ranks_of_its_torchrun_their_time(local, own: tuple[str, ...], saved: bool) -> None:  # type: ignore[no-untyped-def]
    """torchrun reads a variable for how long its ranks may take to end; a value of the job's own stays."""
    local.program(TRAIN)
    launcher = local.program(OWN_TORCHRUN, "launcher.py")
    ran = local.stop(
        "--hosts", "2", "--backend", "process", "--launcher", "script", *own, launcher, when="ready to be stopped",
        lines=1,
    )  # fmt: skip
    assert ran.code == 143, ran.stderr + ran.stdout
    assert ("rank 2 has saved" in ran.log("algo-2")) == saved, ran.log("algo-2")
    for host in ("algo-1", "algo-2"):
        assert (ran.outcome(host)["code"], ran.outcome(host)["class"]) == (143, "stopped")


MEETS = "import torch.distributed as d\nd.init_process_group('gloo')\n"


@pytest.mark.lane("hosts")
@pytest.mark.parametrize("ranks", ["--launcher=ranks", "--launcher=torchrun"])
def test_worlds_of_its_own_beside_others_are_told(local, ranks: str) -> None:  # type: ignore[no-untyped-def]
    local.program(MEETS, "meets.py")
    own = f"exec {local.python} -m torch.distributed.run --master-port $((29000 + RANK)) --nproc-per-node 2 meets.py\n"
    run = local.program(f"#!/bin/bash\n{own}", "run.sh")
    ran = local.run("--hosts", "2", "--slots", "2", ranks, run)
    assert ran.code == 0, ran.stderr
    for host in ("algo-1", "algo-2"):
        (warning,) = ran.outcome(host)["warnings"]
        assert warning.startswith("torch.distributed.run in the place of rank ") and "--launcher script" in warning
