"""JAX on two hosts with two processes each: all find each other, and none outlives the one that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..conftest import survivors
from ..test_launch import HOSTS, Hosts
from .conftest import check_restarted, trained

PROGRAM = Path(__file__).parent / "programs" / "jax_psum.py"
TWO = ("--hosts", "2", "--backend", "netns", "--launcher", "jax", "--slots", "2")
STALE = {
    "SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_NTASKS": "2", "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
}  # fmt: skip
"""What the processes of a job inherit that Slurm started once per host."""

pytestmark = pytest.mark.netns


@pytest.fixture
def jax(local, stack):  # type: ignore[no-untyped-def]
    """``muster local`` whose programs have JAX for CPUs."""
    local.environ["MUSTER_PYTHON"] = str(stack("jax") / "python")
    return local


def test_all_meet_and_the_process_that_fails_is_the_reason(jax) -> None:  # type: ignore[no-untyped-def]
    """The others wait in a collective, where JAX's own shutdown would leave them for minutes."""
    ran = jax.run(*TWO, PROGRAM, "raise")
    assert [ran.code, *(ran.outcome(host)["code"] for host in ("algo-1", "algo-2"))] == [1] * 3, ran.stderr
    for rank in range(4):
        assert f"rank {rank} is {rank} of 4: sum 6" in ran.stdout, ran.stdout
    assert ran.reason.startswith("LookupError: no such shard\nrank 3 (local rank 1) on algo-2, exit code 1"), ran.reason
    assert "peer lost" in ran.reason or "failed" not in ran.reason, "all others are echoes"


def test_all_meet_again_after_one_was_killed(jax) -> None:  # type: ignore[no-untyped-def]
    ran = jax.run(*TWO, "--max-restarts", "1", PROGRAM, "die")
    check_restarted(ran, "rank 1 (local rank 1) on algo-1, killed by SIGKILL (exit code 137)")
    for rank in range(4):
        assert ran.stdout.count(f"rank {rank} is {rank} of 4: sum 6") == 2, ran.stdout


def test_a_stop_reaches_every_process(jax) -> None:  # type: ignore[no-untyped-def]
    """JAX's own handler of SIGTERM would keep those alive that have none."""
    ran = jax.stop(*TWO, PROGRAM, "wait", when="sum 6", lines=4)
    assert ran.code == 143, ran.stderr + ran.stdout
    saved = (ran.output / "hosts").glob("*/opt/ml/model/checkpoint-*")
    assert sorted(path.name for path in saved) == ["checkpoint-1", "checkpoint-3"]
    ends = [event for host in ("algo-1", "algo-2") for event in ran.events(host) if event["event"] == "rank-ended"]
    assert sorted((event["rank"], event["status"]) for event in ends) == [(0, -15), (1, 0), (2, -15), (3, 0)]
    assert "failed while it was stopping" not in ran.log("algo-1") + ran.log("algo-2")


def test_a_job_that_is_known_from_variables_alone(  # type: ignore[no-untyped-def]
    jax, python: str, root: Path, tmp_path: Path
) -> None:
    """Both processes inherit the number of one and the same task of Slurm's."""
    hosts = Hosts(python, {**jax.environ, **STALE, "SM_MODEL_DIR": str(tmp_path)}, tmp_path)
    hosts.run("--launcher", "jax", str(root / "examples/jax/digits.py"), "--epochs", "6")
    assert hosts.codes == dict.fromkeys(HOSTS, 0), hosts.logs
    losses = trained("".join(hosts.logs.values()))
    assert sorted(losses) == [0, 1]
    assert (tmp_path / "weights.npz").exists()
    assert survivors(hosts.token) == []
