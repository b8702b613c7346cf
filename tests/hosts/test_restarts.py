"""Jobs that are started again on the hosts that they have, after a failure that another attempt may not see."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Ran

pytestmark = [pytest.mark.netns, pytest.mark.timeout(300)]

TRAIN = """
import json, os, signal, sys, time
import torch
import torch.distributed as dist

folder, attempt = sys.argv[1], int(os.environ["MUSTER_ATTEMPT"])
plan = json.loads(sys.argv[2])  # by attempt: rank, step, and what it does there
dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.ones(1)
dist.all_reduce(total)
path = os.path.join(folder, "checkpoint")
first = torch.load(path)["step"] + 1 if os.path.exists(path) else 0
facts = {"attempt": attempt, "rank": rank, "world": int(total), "first": first, "port": os.environ["MASTER_PORT"],
         "count": os.environ["TORCHELASTIC_RESTART_COUNT"]}
print("\\n" + json.dumps(facts), flush=True)

def late(signo, frame):
    sys.exit(5)  # fails, too, while the attempt ends

if rank == 0:
    signal.signal(signal.SIGTERM, late)
who, at, what = plan[attempt] if attempt < len(plan) else (-1, -1, "")
for step in range(first, 6):
    if (rank, step) == (who, at):
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "raise":
            raise ValueError("boom")
        else:
            time.sleep(600)
    dist.all_reduce(total)
    if rank == 0:
        torch.save({"step": step}, path + ".new")
        os.replace(path + ".new", path)
    dist.barrier()
dist.destroy_process_group()
"""


def facts(ran: Ran) -> list[dict[str, Any]]:
    """What each rank printed in each attempt, in their order."""
    lines = [line for host in ("algo-1", "algo-2") for line in ran.log(host).splitlines()]
    found = [json.loads(line[line.index("{") :]) for line in lines if '"attempt"' in line]
    return sorted(found, key=lambda each: (each["attempt"], each["rank"]))


def check_attempts(ran: Ran, firsts: list[int], world: int = 2) -> None:
    """Every attempt had all ranks, went on where the one before was, and met at a port of its own."""
    found = facts(ran)
    assert [each["attempt"] for each in found] == sorted([*range(len(firsts))] * world), ran.stderr + ran.stdout
    assert [each["rank"] for each in found] == [*range(world)] * len(firsts)
    assert {each["world"] for each in found} == {world}
    assert [each["first"] for each in found[::world]] == firsts
    assert all(each["count"] == str(each["attempt"]) for each in found)
    assert len({each["port"] for each in found}) == len(firsts)
    for host in ("algo-1", "algo-2"):
        outcome = ran.outcome(host)
        assert (outcome["attempt"], outcome["attempts"]) == (len(firsts), len(firsts))


def test_a_killed_rank_and_a_stall_are_survived(local) -> None:  # type: ignore[no-untyped-def]
    """Another rank fails while the first attempt ends, which changes nothing."""
    plan = [[1, 2, "kill"], [1, 4, "sleep"]]
    ran = local.run(
        "--hosts", "2", "--slots", "1", "--backend", "netns", "--launcher", "ranks", "--max-restarts", "3",
        "--stall-timeout", "4", local.program(TRAIN), local.folder, json.dumps(plan),
    )  # fmt: skip
    assert ran.code == 0, ran.stderr + ran.stdout
    check_attempts(ran, [0, 2, 4])
    for host in ("algo-1", "algo-2"):
        log = ran.log(host)
        assert "restart 1 of at most 3, on all hosts: rank 1 (local rank 0) on algo-2, killed by SIGKILL" in log
        assert "restart 2 of at most 3, on all hosts: " in log
    ranks = [path.read_text() for path in sorted((ran.output / "hosts").glob("*/ranks/*")) if "rank" in path.name]
    assert sum(text.count('"attempt"') for text in ranks) == 6, "a rank's file keeps all attempts"


def test_an_exception_under_torchrun(local) -> None:  # type: ignore[no-untyped-def]
    plan = [[1, 2, "raise"], [1, 3, "raise"]]
    ran = local.run(
        "--hosts", "2", "--slots", "1", "--backend", "netns", "--launcher", "torchrun", "--max-restarts", "1",
        "--restart-on", "user", local.program(TRAIN), local.folder, json.dumps(plan),
    )  # fmt: skip
    assert ran.code == 1, ran.stderr + ran.stdout
    check_attempts(ran, [0, 2])
    assert ran.reason.startswith("ValueError: boom")
    assert "in attempt 2, the last: --max-restarts 1 allows no more" in ran.reason
