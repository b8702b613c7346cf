"""How a job ends on two hosts, for every way a rank can end and every launcher that can start it."""

from __future__ import annotations

import pytest

PROGRAM = """
import os, signal, sys, time

where = os.environ.get("RANK", os.environ.get("NODE_RANK"))
how = sys.argv[1]
print(f"rank {where} began", flush=True)
if where != "1":
    time.sleep(600)

def fails():
    raise LookupError("no such shard")

if how == "exit7":
    print("giving up", file=sys.stderr)
    sys.exit(7)
if how == "raise":
    fails()
if how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if how == "segfault":
    import ctypes
    ctypes.string_at(0)
if how == "grandchild":
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    sys.exit(3)
"""

# how the rank ends: the job's code, and words of the reason
ENDS = {
    "exit7": (7, ["giving up", "exit code 7"]),
    "raise": (1, ["LookupError: no such shard", "exit code 1", "in fails"]),
    "kill": (137, ["killed by SIGKILL"]),
    "segfault": (139, ["killed by SIGSEGV", "Segmentation fault"]),
    "grandchild": (3, ["exit code 3"]),
}
LAUNCHERS = ["script", "ranks", "torchrun"]


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_second_hosts_failure_ends_both(local, launcher: str, how: str) -> None:  # type: ignore[no-untyped-def]
    code, words = ENDS[how]
    ran = local.run("--hosts", "2", "--backend", "process", "--launcher", launcher, local.program(PROGRAM), how)
    assert ran.code == code, ran.stderr
    assert ran.job["TrainingJobStatus"] == "Failed"
    assert [ran.outcome(host)["code"] for host in ("algo-1", "algo-2")] == [code, code]
    for word in [*words, "rank 1 (local rank 0) on algo-2"]:
        assert word in ran.reason, ran.reason
    assert ran.left("algo-1", "failure") == ran.left("algo-2", "failure"), "both hosts tell the same"
    assert len(ran.left("algo-1", "failure").encode()) <= 900


QUICK_AND_SLOW = """
import os, sys, time
where = os.environ.get("RANK", os.environ.get("NODE_RANK"))
time.sleep(0 if where == sys.argv[1] else 3)
print(f"rank {where} is done", flush=True)
"""


@pytest.mark.parametrize("first", ["0", "1"])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_host_that_ends_early_disturbs_nobody(local, launcher: str, first: str) -> None:  # type: ignore[no-untyped-def]
    ran = local.run(
        "--hosts", "2", "--backend", "process", "--launcher", launcher, local.program(QUICK_AND_SLOW), first
    )
    assert ran.code == 0, ran.stderr
    assert ran.job["TrainingJobStatus"] == "Completed"
    assert "rank 0 is done" in ran.log("algo-1")
    assert "rank 1 is done" in ran.log("algo-2")
    assert all(ran.left(host, "success") == "" for host in ("algo-1", "algo-2"))


def test_a_program_that_cannot_be_executed_ends_every_host_with_64(local) -> None:  # type: ignore[no-untyped-def]
    ran = local.run("--hosts", "2", "--backend", "process", local.program("\0 is no text\n", "tool"))
    assert ran.code == 64, ran.stderr
    assert "tool" in ran.reason
    assert [ran.outcome(host)["code"] for host in ("algo-1", "algo-2")] == [64, 64]


def test_torch_missing_for_the_launcher(local) -> None:  # type: ignore[no-untyped-def]
    program = local.program("print('never')")
    (local.folder / "torch").mkdir()
    (local.folder / "torch" / "__init__.py").write_text("raise ImportError('this torch is broken')\n")
    local.environ["PYTHONPATH"] += f":{local.folder}"
    ran = local.run("--hosts", "1", "--backend", "process", "--launcher", "torchrun", "--slots", "2", program)
    assert ran.code in (0, 72), "the launcher runs without the user's PYTHONPATH, so the real torch is found"


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


@pytest.mark.parametrize("launcher", ["ranks", "torchrun"])
def test_uneven_hosts_make_one_world(local, launcher: str) -> None:  # type: ignore[no-untyped-def]
    ran = local.run(
        "--hosts", "2", "--backend", "process", "--launcher", launcher, "--host-slots", "1,2", local.program(UNEVEN)
    )
    assert ran.code == 0, ran.stderr + ran.stdout
    assert "I am 0 0 3 1 of 3" in ran.log("algo-1")
    assert "I am 1 0 3 2 of 3" in ran.log("algo-2")
    assert "I am 2 1 3 2 of 3" in ran.log("algo-2")


def test_c10d_rendezvous(local) -> None:  # type: ignore[no-untyped-def]
    ran = local.run("--hosts", "2", "--backend", "process", "--launcher", "torchrun", "--rendezvous", "c10d",
                    "--host-slots", "1,2", local.program(UNEVEN))  # fmt: skip
    assert ran.code == 0, ran.stderr + ran.stdout
    assert ran.stdout.count("of 3") == 3
