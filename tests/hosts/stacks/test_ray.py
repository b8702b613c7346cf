"""Ray on two hosts: its cluster is complete before the program starts, and gone when it has ended, however that was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from musterpoint.core.launch.launchers.ray import OPEN_NOTE, SECONDS_TO_END

from .conftest import check_restarted, planned

PROGRAM = Path(__file__).parent / "programs" / "ray_nodes.py"
JOB = ("--hosts", "2", "--launcher", "ray", "--slots", "2")

FAULTS = """\
import os, signal, subprocess, sys, time
if any(word.endswith("dashboard/agent.py") for word in sys.orig_argv):
    time.sleep(3600)
class Popen(subprocess.Popen):
    def __init__(self, args, *words, **more):
        super().__init__(args, *words, **more)
        if str(args[0]).endswith(os.environ.get("TEST_KILLS", "/no such")) and os.environ["MUSTER_ATTEMPT"] == "0":
            os.kill(self.pid, signal.SIGKILL)
subprocess.Popen = Popen
"""
"""The agents of all raylets never come to anything; one of Ray's servers is killed as soon as it is started."""

pytestmark = pytest.mark.netns


@pytest.fixture
def ray(local, stack):  # type: ignore[no-untyped-def]
    """``muster local`` whose programs have Ray, with a TMPDIR of this test's that is short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder:
        local.environ |= {"MUSTER_PYTHON": str(stack("ray") / "python"), "TMPDIR": folder}
        yield local
        left = [name for name in os.listdir(folder) if name.startswith("muster-")]
        assert left == [], "temporary directories were left behind"


def with_faults(python: Path, folder: Path) -> Path:
    """A Python with the packages of ``python`` whose processes have :data:`FAULTS`."""
    asked = "import sys, sysconfig; print(sys._base_executable, sysconfig.get_path('purelib'))"
    base, packages = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {os.path.dirname(base)}\n")
    own = folder / Path(packages).relative_to(python.parents[1])
    own.mkdir(parents=True)
    (own / "sitecustomize.py").write_text(FAULTS)
    (own / "ray.pth").write_text(f"import site; site.addsitedir({packages!r})\n")
    return folder / "bin/python"


def test_a_raylet_that_dies_while_it_starts_is_noticed(ray, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Then both hosts start again, and a raylet waits for no agent: it would abort after 15 s."""
    python = with_faults(Path(ray.environ["MUSTER_PYTHON"]), tmp_path / "faults")
    ray.environ |= {"MUSTER_PYTHON": str(python), "TEST_KILLS": "/raylet"}
    ran = ray.run("--platform", "slurm", *JOB, "--max-restarts", "1", "--backend", "process", PROGRAM, "wait")
    check_restarted(ran, "Ray's head ended before the job was done (killed by SIGKILL) on node1", "node1", "node2")
    assert "before the node was up: raylet [exit code=-9]" in ran.log("node1")
    assert "2 nodes, their attempts: ['1', '1']" in ran.log("node1")


def test_a_worker_of_ray_train_that_raises_is_the_reason(  # type: ignore[no-untyped-def]
    ray, root: Path, tmp_path: Path
) -> None:
    """Before that, a task has run on each node; nodes ask for a token that is made from the job's secret."""
    words = ("--shards", "1", "--storage", tmp_path / "storage")
    every = ("--env", "RAY_DEDUP_LOGS=0")  # else Ray shows one of lines that are alike
    ran = ray.run(*JOB, *every, "--backend", "netns", root / "examples/ray/digits.py", *words)
    assert ran.code == 1, ran.stderr + ran.stdout
    for host in ("algo-1", "algo-2"):
        assert f"a task on {host} in code with no variables of another launcher" in ran.stdout, ran.stdout
    assert "2 nodes with 4 CPUs" in ran.stdout
    assert "LookupError: there are 1 shards, and none for worker 1 of 2" in ran.reason, ran.reason
    assert "rank 0 (local rank 0) on algo-1, exit code 1" in ran.reason
    log = ran.log("algo-1") + ran.log("algo-2")
    assert "Ray's cluster has all of its 2 nodes" in log
    assert f"--temp-dir={ray.environ['TMPDIR']}/" in planned(ray, "--hosts", "2", "--launcher", "ray", str(PROGRAM))
    assert "ray stop" not in log, "advice that would end other jobs' clusters, too"
    assert OPEN_NOTE not in log


NEEDS = """
import ray
ray.init()
print("asking", flush=True)
ray.get(ray.remote(num_gpus=1)(lambda: 1).remote())
"""


def test_a_request_that_no_node_can_meet_is_the_reason(ray) -> None:  # type: ignore[no-untyped-def]
    """Ray tells of it again and again, which is no output of the program's."""
    words = ("--stall-timeout", "15", "--backend", "process")
    ran = ray.run(*JOB, *words, "--ray-head-options", "--num-cpus=1", ray.program(NEEDS))
    assert ran.code == 74, ran.stderr + ran.stdout
    assert re.search(r"no node of Ray's cluster can meet the request of \{[^{}]*'GPU': 1\.0[^{}]*\}: ask", ran.reason)


def test_two_jobs_on_one_machine(ray) -> None:  # type: ignore[no-untyped-def]
    """One (Slurm's) is started again on both hosts, with another cluster, as the raylet of one was killed; the other is
    stopped: its program first.

    That one saves its checkpoint while both nodes are there. Then Ray is stopped, and nothing is left of it.
    """
    first, second = ray.output, ray.folder / "second"
    process = ray.start(*JOB, "--backend", "process", PROGRAM, "wait")
    assert process.stdout is not None
    while "waiting" not in (line := process.stdout.readline()):
        assert line, process.communicate()
    ray.output = second
    ran = ray.run("--platform", "slurm", *JOB, "--max-restarts", "1", "--backend", "process", PROGRAM, "kill")
    why = "Ray's worker ended before the job was done (killed by SIGKILL) on node2"
    check_restarted(ran, why, "node1", "node2")
    assert "Ray's processes that ended here: raylet [exit code=-9]" in ran.log("node2")
    assert "2 nodes, their attempts: ['1', '1']" in ran.log("node1")
    ray.output = first
    process.send_signal(signal.SIGTERM)
    ran = ray.finish(process)
    assert ran.code == 143, ran.stderr + ran.stdout
    assert (ran.output / "hosts/algo-1/opt/ml/model/checkpoint").read_text() == "2"
    for host, name in (("algo-1", "Ray's head"), ("algo-2", "Ray's worker")):
        events = ran.events(host)
        (ended,) = [event for event in events if event["event"] == "service-ended" and event["name"] == name]
        before = [event["at"] for event in events if event["event"] not in ("service-ended", "processes-killed")]
        told = max(at for at in before if at < ended["at"])
        slow = ended["status"] == -signal.SIGKILL and ended["at"] - told >= SECONDS_TO_END
        assert ended["status"] == 1 or slow, "they end by themselves, as ray start does, if this machine lets them"
