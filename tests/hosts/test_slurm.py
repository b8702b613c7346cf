"""Jobs on a real Slurm of two nodes, started as docs/slurm.md says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Callable, Iterator

import pytest

from .conftest import eventually, finished, survivors
from .migration_pairs import pairs, said
from .slurm import GPUS, PATIENCE, Slurm

PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"
pytestmark = pytest.mark.xdist_group("slurm")
SRUN = ("srun", "--nodes=2", "--ntasks-per-node=1")
TRAIN = """
import os, sys
import torch.distributed

torch.distributed.init_process_group("gloo")
numbers = [name for name in os.environ if name in ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")]
print("rank", torch.distributed.get_rank(), "of", torch.distributed.get_world_size(), "on", os.uname().nodename,
      "with", sys.argv[1:], "in job", os.environ["SLURM_JOB_ID"], numbers, flush=True)
torch.distributed.barrier()  # who ends earlier breaks a connection that another one is still making
torch.distributed.destroy_process_group()
os._exit(0)  # threads of gloo's may abort a program of torch's at its end
"""
FAILS = """
import os, sys
assert [os.environ["SLURM_" + name] for name in ("PROCID", "LOCALID", "NTASKS", "STEP_TASKS_PER_NODE")] == [
    os.environ["RANK"], os.environ["LOCAL_RANK"], os.environ["WORLD_SIZE"], "2(x2)"]
if os.environ["RANK"] == "3":
    sys.exit(7)
"""
WORLD = """
import os
from mpi4py import MPI

world = MPI.COMM_WORLD
assert not {"SLURM_PROCID", "SLURM_NTASKS"} & set(os.environ)
print("rank", world.rank, "of", world.allreduce(1), "on", os.uname().nodename, flush=True)
"""
SAVES = """
import os, signal, sys
from mpi4py import MPI

def save(signo, frame):
    open(f"saved-{MPI.COMM_WORLD.rank}", "x").close()  # fails if it is called twice
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
MPI.COMM_WORLD.Barrier()
open(f"ready-{MPI.COMM_WORLD.rank}", "x").close()
while True:
    signal.pause()
"""


class Job:
    """Jobs of one test: ``muster launch`` is on PATH, every process carries :attr:`token`."""

    def __init__(self, slurm: Slurm, python: str, environ: dict[str, str], folder: Path) -> None:
        self.slurm, self.folder = slurm, folder
        self.token = f"muster-test-{folder.name}-{os.getpid()}"
        self.environ = {**environ, "MUSTER_TEST_TOKEN": self.token}
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        (bin_folder / "muster").write_text(f'#!/bin/sh\nexec {python} -m musterpoint "$@"\n')
        (bin_folder / "muster").chmod(0o755)
        self.search = [str(bin_folder)]

    def under(self, folder: Path) -> None:
        """The user's Python and commands are those of a stack."""
        self.environ["MUSTER_PYTHON"] = str(folder / "python")
        self.environ["OMPI_MCA_mpi_yield_when_idle"] = "1"  # ranks share two processors with other tests
        self.search.append(str(folder))

    def program(self, text: str, name: str = "train.py") -> None:
        (self.folder / name).write_text(text)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return self.slurm.start(*words, environ=self.environ, cwd=self.folder, search=self.search)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return finished(self.start(*words), PATIENCE)

    def submit(self, *words: str) -> str:
        """Submits a batch job, whose output goes to ``log``; its number."""
        ran = self.run(
            *words[: words.index("sbatch") + 1], "--parsable", "--output=log", *words[words.index("sbatch") + 1 :]
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    def end(self, number: str) -> tuple[str, int, str]:
        """Waits for the end of a batch job: its state, its exit code and its output."""
        found: list[str] = []

        def over() -> bool:
            shown = self.slurm.command("scontrol", "--oneliner", "show", "job", number).stdout
            found[:] = re.findall(r" (?:JobState|ExitCode)=(\w+)", shown)
            return found[0] not in ("PENDING", "RUNNING", "COMPLETING")

        eventually(over)
        return found[0], int(found[1]), (self.folder / "log").read_text()


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    cluster = Slurm()
    yield cluster
    cluster.close()


@pytest.fixture
def job(slurm: Slurm, python: str, environ: dict[str, str], tmp_path: Path) -> Iterator[Job]:
    made = Job(slurm, python, environ, tmp_path)
    yield made
    slurm.command("scancel", "--user=root")
    eventually(lambda: not survivors(made.token))


def lines(text: str, word: str = "rank") -> list[str]:
    return sorted(line for line in text.splitlines() if line.startswith(f"{word} "))


def test_the_batch_script_of_the_page(job: Job) -> None:
    """torchrun on both nodes, with as many ranks as Slurm gave it GPUs."""
    (script,) = re.findall(r"<!-- the batch script[^>]*-->\n```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    job.program(script, "job.sh")
    job.program(TRAIN)
    size = ("--gpus-per-node=2", "--cpus-per-task=2", "--time=5")  # this cluster's
    number = job.submit("sbatch", *size, "job.sh")
    state, _, log = job.end(number)
    assert state == "COMPLETED", log
    whole = f"of 4 on algo-{{}} with ['--epochs', '3'] in job {number} []"
    assert lines(log) == [f"rank {rank} " + whole.format(1 + rank // GPUS) for rank in range(2 * GPUS)]


PER_NODE = """#!/bin/bash
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
export NNODES={nnodes} MASTER_ADDR={leader}
for place in 0 1; do
    NODE_RANK=$place srun --nodes=1 --ntasks=1 --nodelist=${{nodes[$place]}} muster {command} train.py &
done
wait -n; first=$?
wait -n; second=$?
exit $((first > second ? first : second))
"""
"""One srun for each node, as AWS's 2.train-mpt-manual-distributed.sbatch starts them."""
COUNTS = """
import os
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "on", os.uname().nodename, flush=True)
"""


@pytest.mark.parametrize(
    ("command", "nnodes", "leader"),
    [
        ("launch --launcher ranks --slots 2", "2", "${nodes[0]}"),
        ("torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=${nodes[0]}:29400", "", ""),
    ],
)
def test_a_step_for_each_node_is_one_world(job: Job, command: str, nnodes: str, leader: str) -> None:
    job.program(COUNTS)
    job.program(PER_NODE.format(nnodes=nnodes, leader=leader, command=command), "job.sh")
    state, _, log = job.end(job.submit("sbatch", "--nodes=2", "--ntasks-per-node=1", "--time=5", "job.sh"))
    assert state == "COMPLETED", log
    assert [line.rpartition(" on ")[0] for line in lines(log)] == [f"rank {rank} of 4" for rank in range(4)], log
    assert {line.rpartition(" on ")[2] for line in lines(log)} == {"algo-1", "algo-2"}, log


NUMBERED = """
import os, sys
os.write(1, f"rank {os.environ['SLURM_PROCID']} of {os.environ['SLURM_NTASKS']} with {sys.argv[1:]}\\n".encode())
"""


def test_both_halves_of_the_migration_page_do_the_same(job: Job) -> None:
    """Docs/migration.md: a task for each rank there, one for each node here; ranks are Slurm's numbers in both."""
    job.program(NUMBERED)
    found = pairs("test_slurm.py")
    assert list(found) == ["srun"]
    there, here = (job.run(*line.split()) for line in found["srun"])
    assert there.returncode == here.returncode == 0, there.stderr + here.stderr
    assert said(there.stdout) == said(here.stdout)
    assert len(said(here.stdout)) == 4


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_failing_ranks_code_is_sruns(job: Job, tasks: int) -> None:
    """With a task for each node, and with one for each slot, of which one speaks for its node."""
    job.program(FAILS)
    words = ("--slots", "2") if tasks == 1 else ()
    ran = job.run(
        *SRUN[:-1], f"--ntasks-per-node={tasks}", "muster", "launch", "--launcher", "ranks", *words, "train.py"
    )
    assert ran.stderr.count("hosts are here: launcher ranks, 4 ranks (2 each)") == 1
    assert ran.returncode == 7, ran.stderr
    assert "rank 3 (local rank 1) on algo-2" in ran.stderr


@pytest.mark.parametrize("name", ["openmpi4", "openmpi5", "mpich"])
def test_mpirun_inside_of_an_allocation(job: Job, stack: Callable[[str], Path], name: str) -> None:
    """It would take Slurm's hosts and their one slot, and start its daemons by srun."""
    job.under(stack(name))
    job.program(WORLD)
    ran = job.run(*SRUN, "muster", "launch", "--launcher", "mpi", "--slots", "2", "train.py")
    assert ran.returncode == 0, ran.stderr
    assert lines(ran.stdout) == [f"rank {rank} of 4 on algo-{1 + rank // 2}" for rank in range(4)]


def test_scancel_leaves_every_ranks_checkpoint(job: Job, stack: Callable[[str], Path]) -> None:
    """Of a batch job under mpirun: each rank is told once."""
    job.under(stack("openmpi4"))
    job.program(SAVES)
    job.program("#!/bin/sh\nexec srun muster launch --launcher mpi --slots 2 train.py\n", "job.sh")
    number = job.submit("sbatch", "--nodes=2", "--ntasks-per-node=1", "job.sh")
    eventually(lambda: len(list(job.folder.glob("ready-*"))) == 4)
    job.run("scancel", number)
    state, _, log = job.end(number)
    assert state == "CANCELLED"
    eventually(lambda: not survivors(job.token))
    assert sorted(path.name for path in job.folder.glob("saved-*")) == [f"saved-{rank}" for rank in range(4)], log
    assert "warning" not in log


COMPONENTS = """#!/bin/sh
#SBATCH --nodes=1 --nodelist=algo-2
#SBATCH hetjob
#SBATCH --nodes=1 --nodelist=algo-1
srun --het-group=0-1 --ntasks-per-node=1 muster launch --launcher ranks --slots 1 train.py
srun muster launch --launcher ranks --slots 1 train.py
"""


def test_a_heterogeneous_jobs_ranks_are_numbered_by_component(job: Job) -> None:
    """Slurm's list of nodes is sorted. Without --het-group a step is the first component's, and says so."""
    job.program(
        "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], 'on', os.uname().nodename)\n"
    )
    job.program(COMPONENTS, "job.sh")
    state, _, log = job.end(job.submit("sbatch", "job.sh"))
    assert state == "COMPLETED", log
    assert lines(log) == ["rank 0 of 1 on algo-2", "rank 0 of 2 on algo-2", "rank 1 of 2 on algo-1"]
    assert "this step runs on 1 of the job's 2 nodes, without algo-1: " in log
