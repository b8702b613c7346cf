"""Command lines of others and ours for the same program: the pairs of docs/migration.md, both halves run."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Callable

import pytest

from ..ports import free_port
from .migration_pairs import pairs, said

PAIRS = pairs("test_migration.py")
STACKS = {
    "torchrun": "",
    "accelerate": "huggingface",
    "deepspeed": "deepspeed",
    "horovodrun": "horovod-gloo",
    "mpirun": "openmpi4",
    "python": "ray",
}
"""The stack that has each command; the tests' own Python has torchrun."""
PROGRAM = """
import os, sys
names = ("RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"), ("WORLD_SIZE", "HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE")
rank, size = (next(os.environ[name] for name in each if name in os.environ) for each in names)
words = [word for word in sys.argv[1:] if not word.startswith("--local_rank")]
os.write(1, f"rank {rank} of {size} with {words}\\n".encode())
"""
UNDER_RAY = """
import os, sys
import ray

@ray.remote(num_cpus=0)
def rank(number, words):
    return f"rank {number} of 2 with {words}"

ray.init()
print(*ray.get([rank.remote(number, sys.argv[1:]) for number in range(2)]), sep="\\n", flush=True)
ray.shutdown()
"""
"""A program that Ray's cluster runs the parts of."""
MEETS = {"accelerate": "import torch.distributed as dist\ndist.init_process_group('gloo')\ndist.barrier()\n"}
"""What stands before the program: here ranks under this launcher that never meet are told that each ran alone."""

pytestmark = pytest.mark.torch


def test_every_command_has_its_pair() -> None:
    assert set(PAIRS) == set(STACKS)
    assert all(here.startswith("muster ") for _, here in PAIRS.values())


@pytest.mark.parametrize("name", STACKS)
def test_both_halves_do_the_same(
    name: str, tmp_path: Path, environ: dict[str, str], stack: Callable[[str], Path], python: str
) -> None:
    folder = stack(STACKS[name]) if STACKS[name] else Path(python).parent
    commands = tmp_path / "bin"
    commands.mkdir()
    for command, module in (("muster", "musterpoint"), ("torchrun", "torch.distributed.run")):
        (commands / command).write_text(f'#!/bin/sh\nexec {shlex.quote(python)} -m {module} "$@"\n')
        (commands / command).chmod(0o755)
    (tmp_path / "train.py").write_text(UNDER_RAY if name == "python" else MEETS.get(name, "") + PROGRAM)
    interpreter = folder / "python" if (folder / "python").exists() else Path(python)
    environ |= {
        "PATH": os.pathsep.join(map(str, (commands, interpreter.parent, folder, environ["PATH"]))),
        "MUSTER_PYTHON": str(interpreter),
        "MUSTER_MASTER_PORT": "0",
        "DS_ACCELERATOR": "cpu",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    # others take one port for all jobs of a machine, unless they are told
    ports = {"MASTER_PORT": str(free_port()), "PET_MASTER_PORT": str(free_port())}
    with tempfile.TemporaryDirectory(prefix="m", dir="/tmp") as short:  # Ray's sockets have long names
        ports |= {"RAY_TMPDIR": short}
        there = ran(PAIRS[name].there, tmp_path, environ | ports)
        here = ran(PAIRS[name].here, tmp_path, environ | {"TMPDIR": short})
    assert there == here
    assert len(here) == 2


def ran(line: str, folder: Path, environ: dict[str, str]) -> list[str]:
    """What the ranks of a command said, by rank."""
    done = subprocess.run(["bash", "-c", line], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return said(done.stdout + done.stderr)
