"""What the supervisor makes of real MPIs' own doings: aborts, echoes of a failure, farewells, what they leave lying."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest

from musterpoint.core.supervise.policy import LAUNCHER_SECONDS

from .conftest import FLAVOURS, NO_SOUND_END, PROGRAMS

pytestmark = pytest.mark.netns

HOSTS = ("algo-1", "algo-2")
TWO_BY_TWO = ("--hosts", "2", "--slots", "2")


@pytest.mark.parametrize("hosts", ["1", "2"])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_rank_that_aborts_its_world_ends_the_job_with_its_code(
    under: Callable[[str], Any], flavour: str, hosts: str
) -> None:
    """mpirun kills the stubs then, before or after the ranks could end; MPICH leaves the caller itself running."""
    who = 2 * int(hosts) - 1
    job = under(flavour)
    ran = job.run("aborts.py", "--hosts", hosts, "--slots", "2", arguments=("abort", str(who), "sleep"))
    assert ran.code == 5, ran.stderr + ran.stdout
    assert f"rank {who} (local rank 1) on algo-{hosts}, exit code 5" in ran.reason
    outcome = ran.outcome("algo-1")
    assert (outcome["rank"], outcome["cause"], outcome["class"]) == (who, "user", "user")


@pytest.mark.parametrize("flavour", ["mpich-apt", "impi"])
def test_ranks_that_fail_because_another_is_gone_are_not_the_reason(under: Callable[[str], Any], flavour: str) -> None:
    """They wait for it in the middle of a collective operation, and on the leader's own host, too."""
    ran = under(flavour).run("aborts.py", *TWO_BY_TWO, arguments=("kill", "3", "wait"))
    assert ran.code == 137, ran.stderr + ran.stdout
    assert "rank 3 (local rank 1) on algo-2, killed by SIGKILL (exit code 137)" in ran.reason


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_rank_has_its_time_to_save_a_checkpoint_though_the_others_are_gone(
    under: Callable[[str], Any], flavour: str
) -> None:
    """Those die of the stop at once, which mpirun takes for a crash."""
    job = under(flavour)
    process = job.start("aborts.py", *TWO_BY_TWO, arguments=("stop", "0", "sleep"))
    job.ready(process, 4)
    process.send_signal(signal.SIGTERM)
    ran = job.finish(process)
    assert "rank 0 saved its checkpoint" in ran.log("algo-1")
    assert {ran.outcome(host)["code"] for host in HOSTS} == {143}


def when(ran: Any, host: str, event: str) -> float:
    """The last time that this happened on a host, in seconds since the epoch."""
    return float(max(each["at"] for each in ran.events(host) if each["event"] == event))


@pytest.mark.parametrize("flavour", [flavour for flavour in FLAVOURS if flavour not in NO_SOUND_END])
def test_a_job_that_went_well(under: Callable[[str], Any], flavour: str, tmp_path: Path) -> None:
    """Every host is done soon after the last rank; mpirun and its daemons leave nothing lying about."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    job = under(flavour)
    job.environ["TMPDIR"] = str(scratch)
    ran = job.run("aborts.py", *TWO_BY_TWO, arguments=("none", "-1", "wait"))
    assert ran.code == 0, ran.stderr + ran.stdout
    last = max(when(ran, host, "rank-ended") for host in HOSTS)
    assert max(when(ran, host, "job-ended") for host in HOSTS) - last < ran.soon(LAUNCHER_SECONDS - 1)
    assert list(scratch.iterdir()) == []


def test_our_launcher_as_entry_point_starts_one_world_after_the_other(under: Callable[[str], Any]) -> None:
    """Each has its own mpirun, which starts daemons on all hosts."""
    job = under("openmpi4")
    local = job.local
    bundle = [local.python, "-m", "musterpoint", "bundle", "-o", str(local.folder / "launcher.py")]
    subprocess.run(bundle, env=local.environ, check=True, capture_output=True)
    local.program((PROGRAMS / "aborts.py").read_text(), "aborts.py")
    start = f"{local.python} launcher.py --train-script aborts.py --muster-launcher mpi none -1 wait --muster-slots"
    shell = local.program(f"{start} 2 || exit\necho between\n{start} 1 || exit\necho after them\n", "run.sh")
    ran = local.run("--hosts", "2", "--backend", "netns", "--launcher", "script", shell)
    assert ran.code == 0, ran.stderr + ran.stdout
    first, _, second = ran.log("algo-2").partition("between")
    assert sorted(re.findall(r"rank (\d) is ready", first)) == ["2", "3"]
    assert re.findall(r"rank (\d) is ready", second) == ["1"]
    assert "after them" in second


RAISES = """
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    raise ValueError("scenario 7 infeasible")
MPI.COMM_WORLD.Barrier()
"""


@pytest.mark.parametrize("script", ["exec python raises.py", "python raises.py"])
def test_a_rank_that_has_raised_and_waits_in_mpi_finalize_is_the_cause(
    under: Callable[[str], Any], script: str
) -> None:
    """Without ``-m mpi4py`` nothing aborts the world: all ranks would stand for ever."""
    job = under("openmpi4")
    job.local.program(RAISES, "raises.py")
    ran = job.run(job.local.program(f"#!/bin/bash\n{script}\n", "run.sh"), *TWO_BY_TWO, "--stop-grace", "3")
    assert ran.code == 1, ran.stderr + ran.stdout
    assert ran.reason.startswith("ValueError: scenario 7 infeasible\nrank 1 (local rank 1) on algo-1, exit code 1")
