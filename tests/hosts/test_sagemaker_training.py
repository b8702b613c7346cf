"""The real sagemaker-training as the outer toolkit, with our one file as its entry point."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from pathlib import Path
from typing import Any, Iterator

import pytest

from musterpoint.cli.bundle import bundle

from ..ports import free_port
from .conftest import survivors

PEER = os.environ.get("MUSTER_TEST_SAGEMAKER_TRAINING", "")
pytestmark = pytest.mark.skipif(not os.access(PEER, os.X_OK), reason="MUSTER_TEST_SAGEMAKER_TRAINING isn't a Python")

PROGRAM = """
import json, os, sys, time
names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "SM_CURRENT_HOST", "SM_HP_EPOCHS", "SM_MODEL_DIR")
os.write(1, b"SEEN" + json.dumps([sys.argv[1:], *(os.environ.get(name) for name in names)]).encode() + b"\\n")
if "--fail" in sys.argv:
    if os.environ["RANK"] != "1":
        time.sleep(600)
    raise ArithmeticError("loss is NaN")
"""


class Toolkit:
    """Containers whose ``train`` is sagemaker-training's; logs and codes by host."""

    def __init__(self, environ: dict[str, str], folder: Path, hosts: tuple[str, ...]) -> None:
        self.folder, self.hosts = folder, hosts
        self.token = f"muster-test-{uuid.uuid4().hex}"
        names = folder / "names"
        names.write_text("".join(f"127.0.0.{index} {host}\n" for index, host in enumerate(hosts, 31)))
        kept = {name: value for name, value in environ.items() if not name.startswith(("AWS_", "PYTHONPATH"))}
        self.environ = {
            **kept, "MUSTER_TEST_TOKEN": self.token, "SM_STUDIO_LOCAL_MODE": "true", "AWS_CONFIG_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": "us-west-2", "MUSTER_HOSTS_FILE": str(names),
            "MUSTER_ROLLCALL_PORT": str(free_port()), "MUSTER_MASTER_PORT": "0", "MUSTER_SECRET": "only-for-this-test",
        }  # fmt: skip
        self.logs: dict[str, str] = {}

    def run(self, **hyperparameters: Any) -> dict[str, int]:
        given = {"sagemaker_program": "launcher.py", "train-script": "train.py", "epochs": 3,
                 "muster-launcher": "ranks", **hyperparameters}  # fmt: skip
        text = bundle()
        running = {}
        for host in self.hosts:
            base = self.folder / host
            config = base / "input" / "config"
            for folder in (config, base / "code", base / "model", base / "output" / "data"):
                folder.mkdir(parents=True)
            (base / "code" / "launcher.py").write_text(text)
            (base / "code" / "train.py").write_text(PROGRAM)
            resources = {"current_host": host, "hosts": list(self.hosts), "network_interface_name": "lo"}
            written = {name: json.dumps(value) for name, value in given.items()}
            (config / "hyperparameters.json").write_text(json.dumps(written))
            (config / "resourceconfig.json").write_text(json.dumps(resources))
            (config / "inputdataconfig.json").write_text("{}")
            with (base / "log").open("wb") as log:
                running[host] = subprocess.Popen(
                    [Path(PEER).parent / "train"], env={**self.environ, "SAGEMAKER_BASE_DIR": str(base)}, cwd="/",
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
        try:
            return {host: process.wait(500) for host, process in running.items()}
        finally:
            for process in running.values():
                process.kill()
            self.logs = {host: (self.folder / host / "log").read_text() for host in self.hosts}

    def seen(self, host: str) -> list[Any]:
        lines = [line.partition("SEEN") for line in self.logs[host].splitlines()]
        return sorted((json.loads(text) for _, mark, text in lines if mark), key=lambda row: int(row[1]))

    def left(self, host: str, name: str) -> str:
        return (self.folder / host / "output" / name).read_text()


@pytest.fixture(params=[1, 2], ids=["one host", "two hosts"])
def toolkit(request: pytest.FixtureRequest, environ: dict[str, str], tmp_path: Path) -> Iterator[Toolkit]:
    made = Toolkit(environ, tmp_path, tuple(f"algo-{number}" for number in range(1, request.param + 1)))
    yield made
    assert survivors(made.token) == [], "processes of the job were left behind"


def test_our_launcher_under_theirs(toolkit: Toolkit) -> None:
    slots = 2 // len(toolkit.hosts)
    codes = toolkit.run(**{"muster-slots": slots})
    assert codes == dict.fromkeys(toolkit.hosts, 0), toolkit.logs
    rows = [row for host in toolkit.hosts for row in toolkit.seen(host)]
    master = "127.0.0.1" if len(toolkit.hosts) == 1 else "127.0.0.31"
    assert [row[:4] for row in rows] == [[["--epochs", "3"], str(rank), "2", master] for rank in (0, 1)]
    assert [row[4] for row in rows] == [toolkit.hosts[0], toolkit.hosts[-1]]
    assert {row[5] for row in rows} == {"3"}
    for host in toolkit.hosts:
        assert toolkit.left(host, "success") == ""
        assert json.loads(toolkit.left(host, "outcome.json"))["class"] == "done"


def test_the_gpus_that_their_toolkit_counts_are_our_slots(toolkit: Toolkit, tmp_path: Path) -> None:
    """It asks nvidia-smi, which here says what it would on a host with two."""
    listed = tmp_path / "bin" / "nvidia-smi"
    listed.parent.mkdir()
    listed.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: GPU-0)'\necho 'GPU 1: A (UUID: GPU-1)'\n")
    listed.chmod(0o755)
    toolkit.environ["PATH"] = f"{listed.parent}{os.pathsep}{toolkit.environ['PATH']}"
    codes = toolkit.run()
    assert codes == dict.fromkeys(toolkit.hosts, 0), toolkit.logs
    world = str(2 * len(toolkit.hosts))
    assert {row[2] for host in toolkit.hosts for row in toolkit.seen(host)} == {world}
    for host in toolkit.hosts:
        assert len(toolkit.seen(host)) == 2
        assert "SM_NUM_GPUS is 2, but 0 GPUs can be seen" in toolkit.logs[host]


def test_our_reason_is_the_one_that_the_platform_reads(toolkit: Toolkit) -> None:
    slots = 2 // len(toolkit.hosts)
    codes = toolkit.run(**{"muster-slots": slots, "fail": ""})
    assert codes == dict.fromkeys(toolkit.hosts, 1), toolkit.logs
    for host in toolkit.hosts:
        lines = toolkit.left(host, "failure").splitlines()
        assert lines[0] == "ArithmeticError: loss is NaN", "theirs would be: ErrorMessage and an empty string"
        assert lines[1] == f"rank 1 (local rank {slots - 1}) on {toolkit.hosts[-1]}, exit code 1"
