"""Horovod on two hosts, training on real data: under mpirun, and with Gloo alone, where nobody starts an mpirun."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from musterpoint.core.launch.horovod import AUTOTUNE_NOTE

from .conftest import check_restarted, trained

PROGRAMS = Path(__file__).parent / "programs"
DIGITS = PROGRAMS / "horovod_digits.py"
TWO = ("--hosts", "2", "--backend", "netns")

pytestmark = pytest.mark.netns


@pytest.fixture
def mpi(local, stack):  # type: ignore[no-untyped-def]
    """``muster local`` whose programs have Horovod with MPI; mpirun is that of the MPI it was built with."""
    local.environ["MUSTER_PYTHON"] = str(stack("horovod") / "python")
    local.environ["PATH"] = f"{stack('openmpi4')}{os.pathsep}{local.environ['PATH']}"
    return local


@pytest.fixture
def gloo(local, stack):  # type: ignore[no-untyped-def]
    """``muster local`` whose programs have Horovod with Gloo only."""
    local.environ["MUSTER_PYTHON"] = str(stack("horovod-gloo") / "python")
    local.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = "600"  # beside other tests, imports take as long as they like
    return local


def test_torch_under_mpirun(mpi, digits: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """The user's HOROVOD_* variables reach the ranks of both hosts; the timeline is written by rank 0 alone."""
    timeline = tmp_path / "timeline.json"
    mpi.environ |= {"HOROVOD_TIMELINE": str(timeline), "HOROVOD_FUSION_THRESHOLD": "4096", "HOROVOD_AUTOTUNE": "1"}
    ran = mpi.run(*TWO, "--slots", "1", "--launcher", "mpi", DIGITS, digits)
    assert ran.code == 0, ran.stderr + ran.stdout
    assert sorted(trained(ran.stdout)) == [0, 1]
    assert ran.stdout.count("weights equal") == 2
    for rank in (0, 1):
        assert f"rank {rank} of 2: local 0 of 1, cross {rank} of 2, mpi True, fusion 4096" in ran.stdout
    assert any(event.get("name") == "NEGOTIATE_ALLREDUCE" for event in json.loads(closed(timeline.read_text())))
    assert AUTOTUNE_NOTE in ran.log("algo-1")


def closed(text: str) -> str:
    """A timeline as JSON: Horovod ends it with a comma."""
    return text.rstrip().rstrip(",").rstrip("]") + "]"


UNEVEN = [
    "rank 0 of 3: local 0 of 1, cross 0 of 2",
    "rank 1 of 3: local 0 of 2, cross 1 of 2",
    "rank 2 of 3: local 1 of 2, cross 0 of 1",
]


def test_torch_with_gloo_alone(gloo, digits: Path) -> None:  # type: ignore[no-untyped-def]
    """All meet again at another rendezvous server after one was killed."""
    gloo.environ["HOROVOD_FUSION_THRESHOLD"] = "4096"
    words = ("--host-slots", "1,2", "--launcher", "ranks", "--max-restarts", "1")
    ran = gloo.run(*TWO, *words, DIGITS, digits, "--die")
    check_restarted(ran, "rank 2 (local rank 1) on algo-2, killed by SIGKILL (exit code 137)")
    assert sorted(trained(ran.stdout)) == [0, 1, 2]
    assert ran.stdout.count("weights equal") == 3
    for place in UNEVEN:
        assert ran.stdout.count(f"{place}, mpi False, fusion 4096") == 2, ran.stdout


def test_keras_under_mpirun(local, stack, digits: Path) -> None:  # type: ignore[no-untyped-def]
    local.environ["MUSTER_PYTHON"] = str(stack("horovod-tf") / "python")
    local.environ["PATH"] = f"{stack('openmpi4')}{os.pathsep}{local.environ['PATH']}"
    ran = local.run(*TWO, "--slots", "1", "--launcher", "mpi", PROGRAMS / "horovod_keras_digits.py",
                    digits, timeout=500)  # fmt: skip
    assert ran.code == 0, ran.stderr + ran.stdout
    assert sorted(trained(ran.stdout)) == [0, 1]
    assert len(set(re.findall(r"rank \d of 2 weights (\w+)", ran.stdout))) == 1


def test_the_rank_that_raised_is_the_reason(mpi, digits: Path) -> None:  # type: ignore[no-untyped-def]
    """Its peers' HorovodInternalError is an echo, whichever of them ends first."""
    ran = mpi.run(*TWO, "--slots", "1", "--launcher", "mpi", DIGITS, digits, "--fail")
    assert [ran.code, *(ran.outcome(host)["code"] for host in ("algo-1", "algo-2"))] == [1, 1, 1], ran.stderr
    assert ran.reason.startswith("LookupError: no such shard\nrank 1 (local rank 0) on algo-2, exit code 1"), ran.reason
    assert ran.outcome("algo-1")["class"] == "user"


FAILS = """
import os, sys
import horovod.torch as hvd, torch
hvd.init()
hvd.allreduce(torch.ones(1))
while hvd.rank() == 0:
    hvd.allreduce(torch.ones(1))
{}
"""


@pytest.mark.parametrize(
    ("end", "code", "lead"),
    [
        ("raise LookupError('no such shard: 17')", 1, "LookupError: no such shard: 17\nrank 1 on algo-1, exit code 1"),
        ("os._exit(7)", 7, "the program's own horovodrun says: its rank 1 ended with exit code 7\nrank 1 on algo-1"),
        ("os.kill(os.getpid(), 9)", 137, "the program's own horovodrun says: its rank 1 was killed by signal 9\n"),
    ],
)
def test_a_programs_own_horovodrun_is_read(gloo, stack, end: str, code: int, lead: str) -> None:  # type: ignore[no-untyped-def]
    """Its summary says which process ended first; that process's own words lead, and its code is the job's."""
    python = stack("horovod-gloo") / "python"
    train = gloo.program(FAILS.format(end), "train.py")
    command = f"{python} -m horovod.runner.launch -np 2 --gloo {python} {train}\n"
    script = gloo.program(command, "run.sh")
    ran = gloo.run("--hosts", "1", "--backend", "process", "--launcher", "script", script)
    assert (ran.code, ran.outcome("algo-1")["code"]) == (code, code), ran.stderr + ran.stdout
    assert ran.reason.startswith(lead)
