"""The tools whose last words are compared: how each starts four ranks of a program, and where it says what failed.

Every one runs as its own pages advise, with its error files and, where it has one, its decorator ``record``. Two hosts
are two processes on this machine; Open MPI and Ray have one, which starts all ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.trial import environment

HOSTS, SLOTS = 2, 2
LAST_WORDS = 12_000
"""Characters at the end of an output in which one looks for the reason."""
OF_A_FILE = 20_000
"""Characters that are read of a file about the failure."""
STARTS = 400.0
"""Seconds until all ranks work."""
LONGEST = 40.0
"""Seconds from the failure until the first host's tool has ended: what it hasn't said by then nobody reads."""
OTHERS = 5.0
"""Seconds that the other hosts get then."""
COLLECTIVES = 15
"""Seconds after which torch's collectives end by themselves where a rank hangs: a tool may find it by that, too."""

PLACE = """
import os, runpy

def run(rank, program):
    if rank is not None:
        host = f"algo-{int(rank) // SLOTS + 1}"
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(int(rank) % SLOTS), SM_CURRENT_HOST=host)
    runpy.run_path(program, run_name="__main__")
""".replace("SLOTS", str(SLOTS))
"""Runs the program as a rank; ``rank``: None where the tool has said which in the variables that the program reads."""
RECORDED = """
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    run(None, "program.py")

main()
"""
UNDER_MPI = """
run(os.environ["OMPI_COMM_WORLD_RANK"], "program.py")
"""
DRIVER = """
import signal

import ray, ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

FOLDER = os.getcwd()
PASSED = ("FAULT_", "MASTER_", "WORLD_SIZE")

def loop(variables):
    os.environ.update(variables)
    signal.signal = lambda *_: None  # the program is a thread here, which can't set handlers
    run(ray.train.get_context().get_world_rank(), FOLDER + "/program.py")

ray.init(num_cpus=WORKERS, include_dashboard=False, _temp_dir=os.environ["RAY_FOLDER"])
DataParallelTrainer(
    loop, train_loop_config={name: os.environ[name] for name in os.environ if name.startswith(PASSED)},
    scaling_config=ScalingConfig(num_workers=WORKERS), run_config=RunConfig(storage_path=FOLDER + "/storage"),
).fit()
""".replace("WORKERS", str(HOSTS * SLOTS))
FRAMEWORK = """
from sagemaker_training import entry_point, environment, runner

def main():
    env = environment.Environment()
    entry_point.run(
        uri=env.module_dir, user_entry_point=env.user_entry_point, args=env.to_cmd_args(), env_vars=env.to_env_vars(),
        capture_error=True, runner_type=runner.RunnerType.TorchDistributed,
    )
"""
"""What a framework's container adds to sagemaker-training: it says that torchrun is the runner."""


class Said(NamedTuple):
    """What a tool says at one place: the end of a host's output with its exit code, or a file that it wrote."""

    place: str
    text: str
    code: int | None


class Told(NamedTuple):
    """What a tool has said when a program had failed under it.

    ``rank``: the one that failed; -1: none has. ``cut``: whether it had to be killed on a host as it took too long.
    """

    said: list[Said]
    rank: int
    cut: bool


class Stopped(Exception):
    """The benchmark was asked to stop."""


class Stacks(NamedTuple):
    """Bin directories of environments.

    openmpi: Open MPI 5, whose ``mpirun`` always names the rank; that of 4.1.4 loses this message every other time.
    openmpi4: with it musterpoint starts two hosts that are processes of one machine.
    """

    ours: Path
    sagemaker: Path
    openmpi: Path
    openmpi4: Path
    ray: Path
    resiliency: Path


class Node(NamedTuple):
    process: subprocess.Popen[bytes]
    output: Path


class Peer(NamedTuple):
    """``name``: as the table has it. ``package``: whose version is told, or "mpirun". ``python``: which has it.

    ``start`` its hosts in a folder that has ``program.py``, whose rank fails, or ``hangs``; it is one of the last host.
    ``files``: those that it may have written. ``exits``: whether a rank is a process that ends with its program.
    """

    name: str
    package: str
    python: Callable[[Stacks], Path]
    start: Callable[[Path, Stacks, dict[str, str], bool], list[Node]]
    files: Callable[[Path], list[Path]]
    exits: bool = True

    def version(self, stacks: Stacks) -> str:
        code = f"import importlib.metadata as m; print(m.version({self.package!r}))"
        of_python: list[str | Path] = [self.python(stacks), "-c", code]
        of_mpi: list[str | Path] = [stacks.openmpi / "mpirun", "--version"]
        command = of_mpi if self.package == "mpirun" else of_python
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return said.splitlines()[0].split()[-1] if said else "?"

    def run(
        self, program: str, folder: Path, stacks: Stacks, hangs: bool, patience: float, stop: threading.Event
    ) -> Told:
        """What it said when ``program`` had failed under it, or hung.

        ``patience``: by what the limits are multiplied. Raises Stopped when ``stop`` is set.
        """
        (folder / "program.py").write_text(program)
        events = folder / "events"
        events.mkdir()
        victim = f"algo-{HOSTS} {SLOTS - 1}"
        fixed = {"FAULT_FOLDER": str(events), "FAULT_VICTIM": victim, "FAULT_RANKS": str(HOSTS * SLOTS)}
        more = {"FAULT_SAVE": "1", "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "MUSTER_LOG_PREFIX": "none"}
        if hangs:
            more["FAULT_TIMEOUT"] = str(COLLECTIVES)
        nodes = self.start(folder, stacks, environment(**fixed, **more), hangs)
        until, struck = time.monotonic() + STARTS * patience, False
        codes: dict[int, int | None] = {}
        try:
            while len(codes) < len(nodes) and time.monotonic() < until:
                if not struck and (events / "struck").exists():
                    until, struck = time.monotonic() + LONGEST * patience, True
                for number, node in enumerate(nodes):
                    if number not in codes and node.process.poll() is not None:
                        codes[number] = node.process.returncode
                        until = min(until, time.monotonic() + OTHERS * patience)
                if stop.wait(0.05):
                    raise Stopped
        finally:
            kill(f"FAULT_FOLDER={events}\0".encode())
            for node in nodes:
                node.process.wait()
        found = [
            Said(f"host {number + 1}", node.output.read_text(errors="replace")[-LAST_WORDS:], codes.get(number))
            for number, node in enumerate(nodes)
        ]
        for path in self.files(folder):
            found.append(Said(path.name, path.read_text(errors="replace")[:OF_A_FILE], codes.get(0)))
        failed = events / "victim"
        return Told(found, int(failed.read_text()) if failed.exists() else -1, len(codes) < len(nodes))

    @property
    def collective(self) -> str:
        """By what its ranks meet."""
        return "mpi" if "mpi" in self.name else "torch"


def kill(mark: bytes) -> None:
    """Kills every process that has ``mark`` in its environment: launchers put ranks into sessions of their own."""
    found = True
    while found:
        found = False
        for entry in os.listdir("/proc"):
            if entry.isdecimal() and int(entry) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in Path("/proc", entry, "environ").read_bytes():
                        os.kill(int(entry), signal.SIGKILL)
                        found = True


def start(folder: Path, name: str, words: list[str | Path], environ: Mapping[str, str]) -> Node:
    output = folder / f"{name}.output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            words, cwd=folder, env=environ, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    return Node(process, output)


def musterpoint(launcher: str) -> Peer:
    def begin(folder: Path, stacks: Stacks, environ: dict[str, str], hangs: bool) -> list[Node]:
        bin = stacks.openmpi4 if launcher == "mpi" else stacks.ours
        environ = {**environ, "MUSTER_PYTHON": str(bin / "python"), "PATH": f"{bin}{os.pathsep}{environ['PATH']}"}
        where: list[str | Path] = [
            "--output",
            folder / "job",
            "--backend",
            "process",
            "--hosts",
            str(HOSTS),
            "--slots",
            str(SLOTS),
        ]
        words: list[str | Path] = [stacks.ours / "python", "-m", "musterpoint", "local", *where, "--launcher", launcher]
        return [start(folder, "muster", [*words, *(["--stall-timeout", "2"] if hangs else []), "program.py"], environ)]

    return Peer(
        f"musterpoint ({launcher})", "musterpoint", lambda stacks: stacks.ours / "python", begin,
        lambda folder: sorted((folder / "job").glob("hosts/*/opt/ml/output/failure")),
    )  # fmt: skip


def agents(name: str, package: str, python: Callable[[Stacks], Path], command: Callable[[Path], list[str]]) -> Peer:
    """torchrun, and what is made of it: an agent on each host."""

    def begin(folder: Path, stacks: Stacks, environ: dict[str, str], hangs: bool) -> list[Node]:
        (folder / "rank.py").write_text(PLACE + RECORDED)
        rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=1"]
        # On one machine each agent would take itself for the one with the store, and ft_launcher's wait for the others.
        nodes = []
        for number in range(HOSTS):
            own = {"SM_CURRENT_HOST": f"algo-{number + 1}", "TORCHELASTIC_ERROR_FILE": f"{folder}/error-{number}.json"}
            store = f"--rdzv-conf=is_host={int(number == 0)}"
            shape = [f"--nnodes={HOSTS}", f"--nproc-per-node={SLOTS}", *rendezvous, store]
            words: list[str | Path] = [python(stacks), *command(folder), *shape, "rank.py"]
            nodes.append(start(folder, f"host-{number}", words, {**environ, **own}))
        return nodes

    return Peer(name, package, python, begin, lambda folder: sorted(folder.glob("error-*.json")))


def free_port() -> int:
    """Below those that the kernel gives to clients: one that tries a port until it is there may connect to itself."""
    while True:
        port = random.randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def sagemaker(folder: Path, stacks: Stacks, environ: dict[str, str], hangs: bool) -> list[Node]:
    """sagemaker-training starts torchrun on each host."""
    (folder / "rank.py").write_text(PLACE + RECORDED)
    (folder / "framework.py").write_text(FRAMEWORK)
    # It always takes port 7777, which something else on this machine may have.
    other = f'for word; do shift; [ "$word" = 7777 ] && word={free_port()}; set -- "$@" "$word"; done'
    script = f'#!/bin/sh\n{other}\nexec {stacks.ours}/python -m torch.distributed.run "$@"\n'
    (folder / "torchrun").write_text(script)
    (folder / "torchrun").chmod(0o755)
    hosts = [f"127.0.0.{number + 1}" for number in range(HOSTS)]
    nodes = []
    for number, host in enumerate(hosts):
        base = folder / f"ml-{number}"
        for path in ("input/config", "input/data", "model", "output/data", "code"):
            (base / path).mkdir(parents=True)
        for name in ("program.py", "rank.py"):
            (base / "code" / name).write_text((folder / name).read_text())
        words = {
            "sagemaker_program": "rank.py",
            "sagemaker_submit_directory": str(base / "code"),
            "sagemaker_torch_distributed_enabled": True,
            "sagemaker_mpi_num_of_processes_per_host": SLOTS,
        }
        files = {
            "hyperparameters": {name: json.dumps(value) for name, value in words.items()},
            "inputdataconfig": {},
            "resourceconfig": {"current_host": host, "hosts": hosts, "network_interface_name": "lo"},
        }
        for name, value in files.items():
            (base / "input/config" / f"{name}.json").write_text(json.dumps(value))
        own = {
            "SAGEMAKER_BASE_DIR": str(base),
            "FAULT_VICTIM": f"{hosts[-1]} {SLOTS - 1}",
            "SAGEMAKER_TRAINING_MODULE": "framework:main",
            "PATH": f"{folder}{os.pathsep}{environ['PATH']}",
            "PYTHONPATH": str(folder),
        }
        nodes.append(start(folder, f"host-{number}", [stacks.sagemaker / "train"], {**environ, **own}))
    return nodes


def mpirun(folder: Path, stacks: Stacks, environ: dict[str, str], hangs: bool) -> list[Node]:
    (folder / "rank.py").write_text(PLACE + UNDER_MPI)
    words: list[str | Path] = [
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "-np",
        str(HOSTS * SLOTS),
        stacks.openmpi / "python",
    ]
    path = f"{stacks.openmpi}{os.pathsep}{environ['PATH']}"
    return [start(folder, "mpirun", [*words, "-m", "mpi4py", "rank.py"], {**environ, "PATH": path})]


def ray(folder: Path, stacks: Stacks, environ: dict[str, str], hangs: bool) -> list[Node]:
    (folder / "driver.py").write_text(PLACE + DRIVER)
    own = {
        "RAY_FOLDER": str(folder / "r"),
        "RAY_TRAIN_V2_ENABLED": "1",
        "RAY_DEDUP_LOGS": "0",
        "RAY_AUTH_MODE": "disabled",
        "HOME": str(folder),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(HOSTS * SLOTS),
    }
    return [start(folder, "ray", [stacks.ray / "python", "driver.py"], {**environ, **own})]


def ray_logs(folder: Path) -> list[Path]:
    """What the driver and the ranks of Ray Train write beside the output."""
    return sorted((folder / "r" / "session_latest" / "logs" / "train").glob("*.log"))


PEERS = (
    musterpoint("torchrun"),
    musterpoint("mpi"),
    agents(
        "torchrun", "torch", lambda stacks: stacks.ours / "python",
        lambda folder: ["-m", "torch.distributed.run", "--log-dir", f"{folder}/logs"],
    ),
    agents(
        "ft_launcher", "nvidia-resiliency-ext", lambda stacks: stacks.resiliency / "python",
        lambda folder: ["-m", "nvidia_resiliency_ext.fault_tolerance.launcher"],
    ),
    Peer(
        "sagemaker-training", "sagemaker-training", lambda stacks: stacks.sagemaker / "python", sagemaker,
        lambda folder: sorted(folder.glob("ml-*/output/failure")),
    ),
    Peer("mpirun", "mpirun", lambda stacks: stacks.openmpi / "python", mpirun, lambda folder: []),
    Peer("Ray Train", "ray", lambda stacks: stacks.ray / "python", ray, ray_logs, exits=False),
)  # fmt: skip
"""musterpoint twice, as it starts ranks by torchrun and by mpirun, and those that do so alone."""
