"""How a world ends: one rank's failure is everyone's, with its own code and words; nothing outlives its host's part."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable

import pytest

pytestmark = pytest.mark.netns

FLAVOURS = ["openmpi4", "openmpi5", "mpich"]
HOSTS = ("algo-1", "algo-2")
OTHERS = re.compile(r"\d+ other ranks? ")
TWO_BY_TWO = ("--hosts", "2", "--slots", "2")


def agree(ran: Any, code: int) -> str:
    """The failure reason, which every host must have, with this code; without its count of later failures."""
    assert ran.code == code, ran.stderr + ran.stdout
    outcomes = [ran.outcome(host) for host in HOSTS]
    assert [outcome["code"] for outcome in outcomes] == [code, code]
    reasons = [[line for line in outcome["reason"].splitlines() if not OTHERS.match(line)] for outcome in outcomes]
    assert reasons[0] == reasons[1]
    return "\n".join(reasons[0])


@pytest.mark.parametrize("flavour", ["openmpi5", "mpich"])
def test_a_failure_leaves_ranks_that_look_for_messages_their_grace(under: Callable[[str], Any], flavour: str) -> None:
    """Open MPI 5 ends ranks that do so when a connection closes."""
    job = under(flavour)
    ran = job.run("end.py", *TWO_BY_TWO, arguments=("exit-polled-saves", "2", "600"))
    agree(ran, 7)
    log = ran.log("algo-1") + ran.log("algo-2")
    assert log.count("saved its checkpoint") == 3, log


@pytest.mark.parametrize(
    ("flavour", "slots", "first"),
    [
        *((flavour, 2, 3) for flavour in FLAVOURS),
        # MPICH's mpirun doesn't always notice where a host has no rank left
        *((flavour, 2, 1) for flavour in ("openmpi4", "openmpi5", "impi")),
        ("openmpi5", 1, 1),
    ],
)
def test_a_rank_that_leaves_without_finalize_ends_the_job(
    under: Callable[[str], Any], flavour: str, slots: int, first: int
) -> None:
    """The others wait for it in a barrier."""
    job = under(flavour)
    ran = job.run("leaves.py", "--hosts", "2", "--slots", str(slots), arguments=("exit", str(first)))
    assert "ended with exit code 0, but without MPI_Finalize" in agree(ran, 1)
    assert ran.outcome("algo-1")["rank"] >= first


@pytest.mark.parametrize(("flavour", "first"), [(flavour, first) for flavour in FLAVOURS for first in (1, 2)])
def test_ranks_may_end_long_before_the_others(under: Callable[[str], Any], flavour: str, first: int) -> None:
    job = under(flavour)
    ran = job.run("leaves.py", *TWO_BY_TWO, arguments=("finalize", str(first)))
    assert ran.code == 0, ran.stderr + ran.stdout
    assert (ran.log("algo-1") + ran.log("algo-2")).count("took its time") == first


DAEMONS = {"openmpi4": ("mpirun", "orted"), "openmpi5": ("prterun", "prted"), "mpich": ("mpirun", "hydra_pmi_proxy")}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_daemon_that_is_killed_takes_its_ranks_along(
    under: Callable[[str], Any], flavour: str, tmp_path: Path
) -> None:
    """They are orphans otherwise, and run on. Open MPI's leaves nothing lying about."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    job = under(flavour)
    job.environ["TMPDIR"] = str(scratch)
    daemon = DAEMONS[flavour][1]
    process = job.start("end.py", *TWO_BY_TWO, arguments=("wait", "-1", "600"))
    job.ready(process, 4)
    job.kill("algo-2", daemon)
    ran = job.finish(process)
    assert f"{daemon} ended while its ranks were running (killed by SIGKILL) on algo-2" in agree(ran, 72)
    assert [path.name for path in scratch.iterdir() if not path.name.startswith("met-")] == [], "but the program's own"
