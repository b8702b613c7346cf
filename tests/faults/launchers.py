"""The columns of the matrix: how a job's ranks are started, on which hosts, and what that needs."""

from __future__ import annotations

from typing import Literal, Mapping, NamedTuple

Stack = Literal["", "openmpi4", "openmpi5", "mpich", "deepspeed", "horovod-gloo", "tensorflow"]
Image = Literal["", "base", "torch", "mpi"]


class Launcher(NamedTuple):
    """One column.

    ``name``: what ``--launchers`` calls it. ``about``: the same as a phrase. ``options``: of ``muster local``.
    ``hosts``, ``slots``: how many, and ranks on each.
    ``stack``: of scripts/stacks.py; empty: torch's, which runs the tests.
    ``image``: of docker/Dockerfile, in whose containers the job runs; empty: in network namespaces.
    ``idle``: seconds from nothing until all ranks work, on an idle machine.
    ``files``: beside the program, by their names; the first is what the job starts.
    ``own``: whether the ranks' launcher is the user's program.
    ``collective``: a program's text that defines ``join()`` and ``collective()``; empty: its ranks have none.
    ``slots_option``: whether ranks per host are an option of the job.
    ``program``: a regular expression of the command line of what starts its ranks on the leader; empty: we do.
    ``leaves``: a regular expression of files that the launcher itself leaves, and ``why``.
    ``outlives``: why processes of it may outlive a supervisor that is killed by SIGKILL; empty: none does.
    """

    name: str
    about: str
    options: tuple[str, ...]
    hosts: int = 2
    slots: int = 1
    stack: Stack = ""
    image: Image = ""
    idle: float = 1.0
    files: Mapping[str, str] = {}
    own: bool = False
    collective: str = ""
    slots_option: bool = True
    program: str = ""
    leaves: str = ""
    why: str = ""
    outlives: str = ""


TORCH = """
def join():
    from datetime import timedelta
    import torch.distributed as dist
    loaded()
    dist.init_process_group("gloo", timeout=timedelta(seconds=int(os.environ.get("FAULT_TIMEOUT", "1800"))))
    collective()

def collective():
    import torch
    import torch.distributed as dist
    dist.all_reduce(torch.ones(1))
"""
MPI = """
def join():
    from mpi4py import MPI
    collective()

def collective():
    from mpi4py import MPI
    MPI.COMM_WORLD.Barrier()

join()
"""
OWN_TORCHRUN = """
import os, subprocess, sys

cmd = [
    sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--nnodes=" + os.environ["NNODES"],
    "--node_rank=" + os.environ["NODE_RANK"], "--master_addr=" + os.environ["MASTER_ADDR"],
    "--master_port=" + os.environ["MASTER_PORT"], "program.py",
]
process = subprocess.Popen(cmd, env=os.environ)
process.wait()
if process.returncode != 0:
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
"""
SHELL = """
set -e
echo "from a shell"
"{python}" -m torch.distributed.run --nproc_per_node=2 --nnodes="$NNODES" --node_rank="$NODE_RANK" \\
    --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" program.py
"""

DEEPSPEED = TORCH.replace(
    "import torch.distributed as dist\n    loaded()\n    dist.init_process_group(",
    "import deepspeed\n    loaded()\n    deepspeed.init_distributed(",
    1,
)
HOROVOD = """
def join():
    import horovod.torch as hvd
    hvd.init()
    collective()

def collective():
    import torch
    import horovod.torch as hvd
    hvd.allreduce(torch.ones(1))
"""
TENSORFLOW = """
def join():
    global strategy
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    collective()

def collective():
    import tensorflow as tf
    strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
"""

SCRIPT = Launcher("script", "the program once per host", ("--launcher", "script"), hosts=3, slots_option=False)
RANKS = Launcher("ranks", "ranks of musterpoint's own", ("--launcher", "ranks"), slots=2, collective=TORCH)
TORCHRUN = RANKS._replace(
    name="torchrun",
    about="torchrun, static",
    options=("--launcher", "torchrun"),
    idle=3.0,
    program="-m torch.distributed.run",
)
OPEN_MPI = Launcher(
    "mpi", "mpirun of Open MPI 4", ("--launcher", "mpi"), slots=2, stack="openmpi4", collective=MPI, program="mpirun -",
    leaves=r"/dev/shm/(vader|sm)_segment\.", why="Open MPI's shared memory, which ranks that were killed leave",
)  # fmt: skip
OWN = TORCHRUN._replace(
    leaves=r"scratch/torchelastic_\w+$", why="torchrun's own directory of logs, which it never removes",
    name="own", about="a launcher.py that starts torchrun", program="", options=("--launcher", "script"), own=True,
    outlives="only the program itself is the supervisor's child, not what it starts",
    files={"launcher.py": OWN_TORCHRUN}, slots_option=False, idle=4.0,
)  # fmt: skip
TASKS = Launcher(
    "tensorflow", "TensorFlow's workers", ("--launcher", "tensorflow"), stack="tensorflow", collective=TENSORFLOW,
    slots_option=False,
)  # fmt: skip

NONE = """
def join():
    pass

def collective():
    pass
"""
"""Where ranks have nothing in common."""

LAUNCHERS = (
    SCRIPT,
    RANKS,
    TORCHRUN,
    TORCHRUN._replace(
        name="c10d", about="torchrun, c10d", options=("--launcher", "torchrun", "--rendezvous", "c10d"), slots=1
    ),
    OPEN_MPI,
    OPEN_MPI._replace(name="mpi5", about="mpirun of Open MPI 5", stack="openmpi5", program="prterun -"),
    OPEN_MPI._replace(
        name="mpich", about="mpirun of MPICH", stack="mpich", leaves=r"/dev/shm/mpich_shm_",
        why="MPICH's shared memory, which ranks that were killed leave",
        outlives="MPICH's daemon may kill the stub of a rank before that has ended the rank",
    ),
    RANKS._replace(
        name="deepspeed", about="DeepSpeed's launcher", options=("--launcher", "deepspeed"), stack="deepspeed",
        collective=DEEPSPEED, idle=6.0, program="deepspeed.launcher",
    ),
    RANKS._replace(name="horovod", about="Horovod over Gloo", stack="horovod-gloo", collective=HOROVOD),
    TASKS,
    TASKS._replace(
        name="ps", about="parameter servers", options=("--launcher", "parameter-server"), collective="", idle=8.0
    ),
    OWN,
    OWN._replace(name="shell", about="a run.sh with torchrun", files={"run.sh": SHELL}),
)  # fmt: skip
IN_DOCKER = (
    RANKS._replace(name="docker-ranks", about="ranks of musterpoint's own", image="torch"),
    TORCHRUN._replace(name="docker-torchrun", about="torchrun, static", image="torch"),
    OPEN_MPI._replace(name="docker-mpi", about="mpirun of Open MPI", stack="", image="mpi"),
)
"""The same where every host is a container."""
BY_NAME = {launcher.name: launcher for launcher in (*LAUNCHERS, *IN_DOCKER)}
