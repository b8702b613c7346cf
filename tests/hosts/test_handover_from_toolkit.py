"""The real sagemaker-training's ``train`` hands over to us, as ``SAGEMAKER_TRAINING_MODULE`` says."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from .conftest import Train

PEER = os.environ.get("MUSTER_TEST_SAGEMAKER_TRAINING", "")
pytestmark = pytest.mark.skipif(not os.access(PEER, os.X_OK), reason="MUSTER_TEST_SAGEMAKER_TRAINING isn't a Python")

PROGRAM = """
import json, os, signal, sys, time
model = os.environ["SM_MODEL_DIR"]
if "--wait" in sys.argv:
    def save(*_):
        open(os.path.join(model, "checkpoint"), "w").close()
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    open(os.path.join(model, "ready"), "w").close()
    while True:
        time.sleep(0.05)
if "--fail" in sys.argv:
    print("ArithmeticError: loss is NaN", file=sys.stderr)
    sys.exit(7)
names = ("SM_CURRENT_HOST", "SM_HP_EPOCHS", "SAGEMAKER_JOB_NAME", "SM_MODULE_NAME")
left = sorted(os.listdir(os.environ["SM_OUTPUT_INTERMEDIATE_DIR"])) if "--s3" in sys.argv else []
print("SEEN", json.dumps([sys.argv[1:], left, *(os.environ[name] for name in names)]), flush=True)
"""


class Toolkit:
    """One host whose ``train`` is sagemaker-training's, in an image that names us."""

    def __init__(self, train: Train) -> None:
        self.train = train
        kept = {name: value for name, value in train.environ.items() if not name.startswith("AWS_")}
        self.environ = {
            **kept, "SAGEMAKER_TRAINING_MODULE": "musterpoint.integrations.sagemaker_training:main",
            "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull, "AWS_DEFAULT_REGION": "us-west-2",
            "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "S3_ENDPOINT_URL": "http://127.0.0.1:9",
            "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9", "TRAINING_JOB_NAME": "digits",
        }  # fmt: skip
        self.command: list[str | Path] = [Path(PEER).parent / "train"]
        (train.base / "code" / "program.py").write_text(PROGRAM)
        config = train.base / "input" / "config"
        resources = {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"}
        (config / "resourceconfig.json").write_text(json.dumps(resources))
        (config / "inputdataconfig.json").write_text("{}")

    def start(self, **hyperparameters: object) -> subprocess.Popen[bytes]:
        given = {"sagemaker_program": "program.py", **hyperparameters}
        written = {name: json.dumps(value) for name, value in given.items()}
        (self.train.base / "input" / "config" / "hyperparameters.json").write_text(json.dumps(written))
        return subprocess.Popen(
            self.command, env=self.environ, cwd="/", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, **hyperparameters: object) -> tuple[int, str]:
        process = self.start(**hyperparameters)
        try:
            output, _ = process.communicate(timeout=500)
        finally:
            process.kill()
        return process.returncode, output.decode()

    def left(self, name: str) -> str:
        return (self.train.base / "output" / name).read_text()


@pytest.fixture
def toolkit(train: Train) -> Toolkit:
    return Toolkit(train)


def test_the_job_is_ours_from_the_handover_on(toolkit: Toolkit) -> None:
    code, output = toolkit.run(epochs=3)
    assert code == 0, output
    seen = json.loads(next(line for line in output.splitlines() if line.startswith("SEEN")).partition(" ")[2])
    assert seen == [["--epochs", "3"], [], "algo-1", "3", "digits", "program"]
    assert toolkit.left("success") == ""
    assert json.loads(toolkit.left("outcome.json"))["class"] == "done"
    assert "Reporting training SUCCESS" not in output, "it is ours to report"


def test_the_extra_installs_what_hands_over(toolkit: Toolkit, root: Path, tmp_path: Path) -> None:
    """As ``pip install musterpoint[sagemaker-training]`` leaves an image; the toolkit's packages are there already."""
    source, image = tmp_path / "source", tmp_path / "image"
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.cfg"):
        source.mkdir(exist_ok=True)
        shutil.copy(root / name, source)
    shutil.copytree(root / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    subprocess.run([PEER, "-m", "venv", "--without-pip", image], check=True, timeout=500)
    theirs = next(Path(PEER).parent.parent.glob("lib/python3*/site-packages"))
    (next(image.glob("lib/python3*/site-packages")) / "theirs.pth").write_text(f"{theirs}\n")
    environ = {name: value for name, value in toolkit.environ.items() if name != "PYTHONPATH"}
    python = image / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, f"{source}[sagemaker-training]"], env=environ, cwd="/", check=True, timeout=500)
    asked = (
        "import importlib.metadata as m; print([r for r in m.requires('musterpoint') if r.startswith('sagemaker-')])"
    )
    said = subprocess.run([python, "-c", asked], env=environ, cwd="/", capture_output=True, text=True, check=True)
    assert "sagemaker-training<6,>=5.1" in said.stdout, "or pip had nothing to look for"
    assert [*image.glob("lib/python3*/site-packages/musterpoint/embedded/standins/sagemaker_training/environment.py")]
    toolkit.environ = environ
    toolkit.command = [python, "-m", "sagemaker_training.cli.train"]
    code, output = toolkit.run(epochs=3)
    assert code == 0, output
    assert "SEEN" in output
    assert json.loads(toolkit.left("outcome.json"))["class"] == "done"


def test_the_reason_and_the_code_are_the_programs(toolkit: Toolkit) -> None:
    code, output = toolkit.run(fail="")
    assert code == 7, output
    words = toolkit.left("failure").splitlines()
    assert words[:2] == ["ArithmeticError: loss is NaN", "rank 0 (local rank 0) on algo-1, exit code 7"]


def test_a_stop_reaches_the_program(toolkit: Toolkit) -> None:
    process = toolkit.start(wait="")
    try:
        toolkit.train.ready(process, "ready")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=500)
    finally:
        process.kill()
    assert process.returncode == 143, output
    assert toolkit.train.left("checkpoint")
    assert not (toolkit.train.base / "output" / "failure").exists(), "a stop is no failure"


def test_their_upload_of_intermediate_output_does_not_stay_beside_ours(toolkit: Toolkit) -> None:
    code, output = toolkit.run(sagemaker_s3_output="s3://bucket/prefix", epochs=1)
    assert code == 0, output
    assert not (toolkit.train.base / "output" / "intermediate" / ".tmp.sagemaker_s3_sync").exists()
