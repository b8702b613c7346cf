"""The real sagemaker-training as the outer toolkit: our one file is its entry point, or it hands over to us, as
``SAGEMAKER_TRAINING_MODULE`` says.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Iterator

import pytest

from musterpoint.cli.bundle import bundle

from .by_hand import Processes, meeting
from .conftest import eventually, none_left, together

PEER = os.environ.get("MUSTER_TEST_SAGEMAKER_TRAINING", "")
pytestmark = pytest.mark.skipif(not os.access(PEER, os.X_OK), reason="MUSTER_TEST_SAGEMAKER_TRAINING isn't a Python")

PROGRAM = """
import json, os, signal, sys, time
model, rank, world = os.environ["SM_MODEL_DIR"], os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
if "--wait" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: (open(os.path.join(model, "checkpoint"), "w").close(), sys.exit(0)))
    open(os.path.join(model, "ready"), "w").close()
    while True:
        time.sleep(0.05)
if "--fail" in sys.argv:
    time.sleep(600 * (int(rank) + 1 < int(world)))
    print("ArithmeticError: loss is NaN", file=sys.stderr)
    sys.exit(7)
names = ("MASTER_ADDR", "SM_CURRENT_HOST", "SM_HP_EPOCHS", "SAGEMAKER_JOB_NAME")
row = [sys.argv[1:], rank, world, *(os.environ.get(name) for name in names)]
os.write(1, b"SEEN" + json.dumps(row).encode() + b"\\n")
"""
OURS = {"sagemaker_program": "launcher.py", "train-script": "train.py", "muster-launcher": "ranks"}
"""The hyperparameters of a job whose entry point is our one file."""
NOWHERE = "http://127.0.0.1:9"
HANDS_OVER = {
    "SAGEMAKER_TRAINING_MODULE": "musterpoint.integrations.sagemaker_training:main", "TRAINING_JOB_NAME": "digits",
    "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "S3_ENDPOINT_URL": NOWHERE,
    "AWS_ENDPOINT_URL_S3": NOWHERE,
}  # fmt: skip
"""The variables of an image that names us."""


class Toolkit(Processes):
    """Containers whose ``train`` is sagemaker-training's; logs and codes by host."""

    def __init__(self, environ: dict[str, str], folder: Path, hosts: tuple[str, ...]) -> None:
        told = {
            **{name: value for name, value in environ.items() if not name.startswith("AWS_")},
            "SM_STUDIO_LOCAL_MODE": "true", "AWS_CONFIG_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_DEFAULT_REGION": "us-west-2",
            **meeting(folder / "names", {host: f"127.0.0.{place}" for place, host in enumerate(hosts, 31)}),
        }  # fmt: skip
        super().__init__(PEER, told, folder)
        self.hosts = hosts
        self.command: list[str | Path] = [Path(PEER).parent / "train"]
        self.logs: dict[str, str] = {}

    def base(self, host: str) -> Path:
        return self.folder / host

    def start(self, **hyperparameters: Any) -> None:
        given = {"sagemaker_program": "train.py", **hyperparameters}
        for host in self.hosts:
            config, code = self.base(host) / "input" / "config", self.base(host) / "code"
            for folder in (config, code, self.base(host) / "model", self.base(host) / "output" / "data"):
                folder.mkdir(parents=True)
            (code / "launcher.py").write_text(bundle())
            (code / "train.py").write_text(PROGRAM)
            files = {
                "hyperparameters": {name: json.dumps(value) for name, value in given.items()}, "inputdataconfig": {},
                "resourceconfig": {"current_host": host, "hosts": self.hosts, "network_interface_name": "lo"},
            }  # fmt: skip
            for name, content in files.items():
                (config / f"{name}.json").write_text(json.dumps(content))
            self.popen(*self.command, environ={"SAGEMAKER_BASE_DIR": str(self.base(host))}, cwd="/")

    def ends(self) -> list[int]:
        codes, logs = together(self.started)
        self.logs = dict(zip(self.hosts, logs))
        return codes

    def run(self, **hyperparameters: Any) -> list[int]:
        self.start(**hyperparameters)
        return self.ends()

    def seen(self, host: str) -> list[Any]:
        lines = [line.partition("SEEN") for line in self.logs[host].splitlines()]
        return sorted((json.loads(text) for _, mark, text in lines if mark), key=lambda row: int(row[1]))

    def left(self, host: str, name: str) -> str:
        return (self.base(host) / "output" / name).read_text()


def made(environ: dict[str, str], folder: Path, hosts: int) -> Iterator[Toolkit]:
    yield from none_left(Toolkit(environ, folder, tuple(f"algo-{number + 1}" for number in range(hosts))))


@pytest.fixture(params=[1, 2], ids=["one host", "two hosts"])
def toolkit(request: pytest.FixtureRequest, environ: dict[str, str], tmp_path: Path) -> Iterator[Toolkit]:
    """With our one file, which brings all that it needs."""
    yield from made({**environ, "PYTHONPATH": ""}, tmp_path, request.param)


@pytest.fixture
def handing_over(environ: dict[str, str], tmp_path: Path) -> Iterator[Toolkit]:
    for toolkit in made(environ, tmp_path, 1):
        toolkit.environ.update(HANDS_OVER)
        yield toolkit


def test_our_launcher_under_theirs(toolkit: Toolkit) -> None:
    codes = toolkit.run(**OURS, epochs=3, **{"muster-slots": 2 // len(toolkit.hosts)})
    assert codes == [0] * len(toolkit.hosts), toolkit.logs
    rows = [row for host in toolkit.hosts for row in toolkit.seen(host)]
    master = "127.0.0.1" if len(toolkit.hosts) == 1 else "127.0.0.31"
    assert [row[:4] for row in rows] == [[["--epochs", "3"], str(rank), "2", master] for rank in (0, 1)]
    assert [row[4:6] for row in rows] == [[toolkit.hosts[0], "3"], [toolkit.hosts[-1], "3"]]
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
    assert toolkit.run(**OURS) == [0] * len(toolkit.hosts), toolkit.logs
    for host in toolkit.hosts:
        assert [row[2] for row in toolkit.seen(host)] == [str(2 * len(toolkit.hosts))] * 2
        assert "SM_NUM_GPUS is 2, but 0 GPUs can be seen" in toolkit.logs[host]


def test_our_reason_is_the_one_that_the_platform_reads(toolkit: Toolkit) -> None:
    """Theirs would be: ErrorMessage and an empty string."""
    slots = 2 // len(toolkit.hosts)
    codes = toolkit.run(**OURS, fail="", **{"muster-slots": slots})
    assert codes == [1] * len(toolkit.hosts), toolkit.logs  # theirs for any entry point that fails
    for host in toolkit.hosts:
        who = f"rank 1 (local rank {slots - 1}) on {toolkit.hosts[-1]}, exit code 7"
        assert toolkit.left(host, "failure").splitlines()[:2] == ["ArithmeticError: loss is NaN", who]


def test_the_job_is_ours_from_the_handover_on(handing_over: Toolkit) -> None:
    """And their upload of intermediate output doesn't stay beside ours."""
    assert handing_over.run(epochs=3, sagemaker_s3_output="s3://bucket/prefix") == [0], handing_over.logs
    (row,) = handing_over.seen("algo-1")
    assert [row[0], *row[4:]] == [["--epochs", "3"], "algo-1", "3", "digits"]
    assert handing_over.left("algo-1", "success") == ""
    assert json.loads(handing_over.left("algo-1", "outcome.json"))["class"] == "done"
    assert "Reporting training SUCCESS" not in handing_over.logs["algo-1"], "it is ours to report"
    assert not (handing_over.base("algo-1") / "output" / "intermediate" / ".tmp.sagemaker_s3_sync").exists()


def test_the_extra_installs_what_hands_over(handing_over: Toolkit, root: Path, tmp_path: Path) -> None:
    """As ``pip install musterpoint[sagemaker-training]`` leaves an image; the toolkit's packages are there already."""
    source, image = tmp_path / "source", tmp_path / "image"
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.cfg"):
        source.mkdir(exist_ok=True)
        shutil.copy(root / name, source)
    shutil.copytree(root / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    subprocess.run([PEER, "-m", "venv", "--without-pip", image], check=True, timeout=500)
    theirs = next(Path(PEER).parent.parent.glob("lib/python3*/site-packages"))
    (next(image.glob("lib/python3*/site-packages")) / "theirs.pth").write_text(f"{theirs}\n")
    del handing_over.environ["PYTHONPATH"]
    python = image / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation"]
    words = [*pip, f"{source}[sagemaker-training]"]
    subprocess.run(words, env=handing_over.environ, cwd="/", check=True, timeout=500)
    assert [*image.glob("lib/python3*/site-packages/musterpoint/embedded/standins/sagemaker_training/environment.py")]
    handing_over.command = [python, "-m", "sagemaker_training.cli.train"]
    assert handing_over.run(epochs=3) == [0], handing_over.logs
    assert len(handing_over.seen("algo-1")) == 1
    assert json.loads(handing_over.left("algo-1", "outcome.json"))["class"] == "done"


def test_the_reason_and_the_code_are_the_programs(handing_over: Toolkit) -> None:
    assert handing_over.run(fail="") == [7], handing_over.logs
    words = handing_over.left("algo-1", "failure").splitlines()
    assert words[:2] == ["ArithmeticError: loss is NaN", "rank 0 (local rank 0) on algo-1, exit code 7"]


def test_a_stop_reaches_the_program(handing_over: Toolkit) -> None:
    handing_over.start(wait="")
    eventually((handing_over.base("algo-1") / "model" / "ready").exists)
    handing_over.started[0].send_signal(signal.SIGTERM)
    assert handing_over.ends() == [143], handing_over.logs
    assert (handing_over.base("algo-1") / "model" / "checkpoint").exists()
    assert not (handing_over.base("algo-1") / "output" / "failure").exists(), "a stop is no failure"
