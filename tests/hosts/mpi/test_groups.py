"""Instance groups: mpirun on one of them, led by its own first host; the program once on every other host."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest

from ...ports import free_port

GROUPS = [
    {"instance_group_name": "data", "instance_type": "ml.c5.xlarge", "hosts": ["algo-1"]},
    {"instance_group_name": "train", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-3", "algo-2"]},
]
HOSTS = ["algo-1", "algo-2", "algo-3"]
PROGRAM = """
import os
from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print(os.environ["SM_CURRENT_INSTANCE_GROUP"], "rank", world.rank, "of", world.size, "says", total, flush=True)
"""


def write(base: Path, host: str, code: Path) -> None:
    config = base / "input" / "config"
    config.mkdir(parents=True)
    group = next(group for group in GROUPS if host in group["hosts"])
    hyperparameters = {
        "sagemaker_program": "train.py",
        "sagemaker_submit_directory": str(code),
        "sagemaker_mpi_enabled": True,
        "sagemaker_mpi_num_of_processes_per_host": 2,
        "sagemaker_distribution_instance_groups": ["train"],
    }
    files: dict[str, Any] = {
        "hyperparameters.json": {name: json.dumps(value) for name, value in hyperparameters.items()},
        "inputdataconfig.json": {},
        "resourceconfig.json": {
            "current_host": host, "hosts": HOSTS, "instance_groups": GROUPS, "network_interface_name": "lo",
            "current_group_name": group["instance_group_name"], "current_instance_type": group["instance_type"],
        },
    }  # fmt: skip
    for name, value in files.items():
        (config / name).write_text(json.dumps(value))


@pytest.mark.parametrize("flavour", ["openmpi4", "mpich"])
def test_mpirun_on_the_group_that_the_job_names(
    stack: Callable[[str], Path], python: str, environ: dict[str, str], tmp_path: Path, flavour: str
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(PROGRAM)
    (tmp_path / "hosts").write_text("".join(f"127.0.0.{index} algo-{index}\n" for index in (1, 2, 3)))
    environ["MUSTER_HOSTS_FILE"] = str(tmp_path / "hosts")
    environ["MUSTER_ROLLCALL_PORT"] = str(free_port())
    environ["MUSTER_MASTER_PORT"] = "0"
    environ["MUSTER_PYTHON"] = str(stack(flavour) / "python")
    environ["PATH"] = f"{stack(flavour)}:{environ['PATH']}"
    running = []
    for host in HOSTS:
        write(tmp_path / host, host, code)
        env = {**environ, "SAGEMAKER_BASE_DIR": str(tmp_path / host)}
        running.append(
            subprocess.Popen([python, "-m", "musterpoint.cli.train"], env=env, cwd="/", stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )  # fmt: skip
    try:
        said = [process.communicate(timeout=500)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0, 0], said
    assert "data rank 0 of 1 says 1\n" in said[0]
    assert sorted(line for line in said[1].splitlines() if " of 4 " in line) == [
        "train rank 0 of 4 says 10", "train rank 1 of 4 says 10",
    ]  # fmt: skip
    assert sorted(line for line in said[2].splitlines() if " of 4 " in line) == [
        "train rank 2 of 4 says 10", "train rank 3 of 4 says 10",
    ]  # fmt: skip
