"""Our one file as entry point in an image of the shape of AWS's newest, below the real sagemaker-training.

PID 1 is a shell that doesn't exec, a library with the host's name is preloaded, and mpirun is a shell script.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from musterpoint.cli.bundle import bundle

PROGRAM = """
import argparse, json, os, pathlib, shutil, signal, socket, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
epochs = parser.parse_args().epochs
rank = os.environ["OMPI_COMM_WORLD_RANK"]
names = ("OMPI_COMM_WORLD_SIZE", "RANK", "SM_CURRENT_HOST", "LD_PRELOAD", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
seen = {name: os.environ.get(name) for name in names}
seen.update(epochs=epochs, host=socket.gethostname(), python=sys.executable, uv=shutil.which("uv"))

def save(signo, frame):
    time.sleep(1)
    pathlib.Path("/opt/ml/checkpoints", f"checkpoint-{rank}").write_text(str(signo))
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print("SEEN" + json.dumps(seen), flush=True)
if epochs > 1:
    open("/opt/ml/checkpoints/go").readline()
"""


@pytest.fixture(scope="module")
def launcher() -> str:
    return bundle()


def start(job: Any, launcher: str, epochs: int) -> Any:
    """Two hosts, whose containers' own names aren't those of the job, as on the platform."""
    return job(
        "aws", PROGRAM, files={"launcher.py": launcher}, entry="launcher.py", hostname=None,
        hyperparameters={"train-script": "program.py", "epochs": epochs, "muster-launcher": "mpi", "muster-slots": 1},
    ).start()  # fmt: skip


def test_a_job_with_mpi(job: Any, launcher: str) -> None:
    hosts = start(job, launcher, 1)
    assert hosts.ends() == [0, 0]
    for rank, host in enumerate(hosts.hosts.values()):
        lines = [line for line in host.log.splitlines() if line.startswith("SEEN")]
        assert len(lines) == 1
        assert json.loads(lines[0].removeprefix("SEEN")) == {
            "OMPI_COMM_WORLD_SIZE": "2", "RANK": str(rank), "SM_CURRENT_HOST": f"algo-{rank + 1}",
            "LD_PRELOAD": "/libchangehostname.so", "NCCL_SOCKET_IFNAME": None, "GLOO_SOCKET_IFNAME": "eth0",
            "epochs": 1, "host": f"algo-{rank + 1}", "python": "/opt/venv/bin/python3", "uv": "/usr/local/bin/uv",
        }  # fmt: skip
        assert host.log.count("which keeps SIGTERM to itself: it is watched") == 1
        assert (host.ml / "output" / "success").exists()


def test_a_stop_saves_the_checkpoints_of_both(job: Any, launcher: str) -> None:
    hosts = start(job, launcher, 2)
    for number, host in enumerate(hosts.hosts.values()):
        host.saw(f'"RANK": "{number}"')
        host.saw("it is watched, so that a stop reaches the job")
    hosts["algo-2"].stop()
    codes = hosts.ends()
    assert codes == [1, 1], "the toolkit's own code for an entry point that ended with another than 0"
    for number, host in enumerate(hosts.hosts.values()):
        assert (host.ml / "checkpoints" / f"checkpoint-{number}").read_text() == "15"
        assert (host.outcome["class"], host.outcome["host"], host.outcome["code"]) == ("stopped", "algo-2", 143)
