"""Containers that a person starts, which nobody has made directories for: what the program saves is read back."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from .containers import LABEL
from .test_build import recipes, wheel

SAVES = """
import os, pathlib, signal, sys, time
model, checkpoints = (pathlib.Path(os.environ[name]) for name in ("SM_MODEL_DIR", "SM_CHECKPOINT_DIR"))
for name in ("SM_OUTPUT_DIR", "SM_OUTPUT_DATA_DIR", "SM_OUTPUT_INTERMEDIATE_DIR", "SM_INPUT_DIR", "SM_INPUT_DATA_DIR"):
    assert os.path.isdir(os.environ[name]), name

def save(*_):
    (checkpoints / "last").write_text("saved at the stop")
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
(model / "model.txt").write_text("trained as rank " + os.environ.get("RANK", "0"))
print("trained", flush=True)
while "--until-stopped" in sys.argv:
    time.sleep(0.1)
"""


def saved(engine: docker.DockerClient, name: str, path: str) -> str:
    """The text of a file of a container that has ended."""
    chunks, _ = engine.containers.get(name).get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        member = archive.extractfile(archive.getmembers()[0])
        assert member is not None
        return member.read().decode()


@pytest.fixture
def removed(engine: docker.DockerClient) -> Iterator[Callable[[str], None]]:
    """Takes names of containers and networks that go at the end."""
    names: list[str] = []
    yield names.append
    for name in names:
        for found in engine.containers.list(all=True, filters={"name": f"^/?{name}$"}):
            found.remove(force=True)
    for name in names:
        for network in engine.networks.list(names=[f"^{name}$"]):
            network.remove()


@pytest.fixture
def saving(build: Any, image: Callable[[str], str], tmp_path: Path) -> str:
    """An image with the program, and without directories of a job."""
    (tmp_path / "train.py").write_text(SAVES)
    text = f"FROM {image('base')}\nRUN rm -rf /opt/ml\nWORKDIR /work\nCOPY train.py /work/train.py\n"
    return str(build(text, {"train.py": tmp_path / "train.py"}))


def test_the_two_containers_of_the_documentation_save_their_models(
    engine: docker.DockerClient, saving: str, root: Path, removed: Callable[[str], None]
) -> None:
    page = (root / "docs/platforms.md").read_text()
    found = re.search(r"## Containers by hand.*?```sh\n(.*?)```", page, re.DOTALL)
    assert found is not None
    for name in ("algo-1", "algo-2", "job"):
        removed(name)
    done = subprocess.run(
        ["bash", "-e", "-c", found[1].replace("YOUR-IMAGE", saving)], capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[-2:] == ["0", "0"], done.stdout + done.stderr
    assert [saved(engine, f"algo-{n}", "/opt/ml/model/model.txt") for n in (1, 2)] == [
        "trained as rank 0",
        "trained as rank 1",
    ]


@pytest.mark.parametrize("stopped", [False, True])
def test_train_with_nothing_but_its_configuration(
    engine: docker.DockerClient, saving: str, removed: Callable[[str], None], tmp_path: Path, stopped: bool
) -> None:
    """Two containers; ``stopped``: by SIGTERM, at which the program saves a checkpoint."""
    token = uuid.uuid4().hex[:8]
    network = engine.networks.create(f"job-{token}", labels={LABEL: "1"})
    hosts = [f"algo-{n}" for n in (1, 2)]
    containers = []
    for host in hosts:
        config = tmp_path / host
        config.mkdir()
        words = {"sagemaker_program": json.dumps("train.py"), "sagemaker_submit_directory": json.dumps("/work")}
        (config / "hyperparameters.json").write_text(json.dumps(words))
        resources = {"current_host": host, "hosts": hosts, "network_interface_name": "eth0"}
        (config / "resourceconfig.json").write_text(json.dumps(resources))
        name = f"{host}-{token}"
        removed(name)
        container = engine.containers.create(
            saving, "train", name=name, hostname=host, labels={LABEL: "1"},
            environment={"MUSTER_PROGRAM_ARGS": json.dumps(["--until-stopped"] if stopped else [])},
            volumes={str(config): {"bind": "/opt/ml/input/config", "mode": "ro"}},
        )  # fmt: skip
        network.connect(container, aliases=[host])
        containers.append(container)
    removed(f"job-{token}")
    for container in containers:
        container.start()
    if stopped:
        for container in containers:
            words = ["docker", "logs", "--follow", container.name]
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as log:
                assert log.stdout is not None and any(b"trained" in line for line in log.stdout)
                log.kill()
        containers[0].kill("SIGTERM")
    codes = [container.wait(timeout=500)["StatusCode"] for container in containers]
    logs = [container.logs().decode() for container in containers]
    assert codes == ([143, 143] if stopped else [0, 0]), logs
    for container in containers:
        assert saved(engine, container.name, "/opt/ml/model/model.txt").startswith("trained")
        if stopped:
            assert saved(engine, container.name, "/opt/ml/checkpoints/last") == "saved at the stop"


def test_the_image_in_five_lines_saves_its_model(
    build: Any, engine: docker.DockerClient, image: Callable[[str], str], root: Path, tmp_path: Path,
    removed: Callable[[str], None],
) -> None:  # fmt: skip
    (tmp_path / "train.py").write_text(SAVES)
    bare = build(f"FROM {image('base')}\nRUN pip uninstall --quiet --yes musterpoint && rm -rf /opt/ml\n", {})
    built = wheel(tmp_path, root)
    five = re.sub(r"^FROM .*", f"FROM {bare}", recipes(root)[0])
    tag = build(five, {f"dist/{built.name}": built, "train.py": tmp_path / "train.py"})
    (tmp_path / "config").mkdir()
    resources = {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "eth0"}
    (tmp_path / "config" / "resourceconfig.json").write_text(json.dumps(resources))
    name = f"five-{uuid.uuid4().hex[:8]}"
    removed(name)
    container = engine.containers.run(
        tag, "train", name=name, detach=True, labels={LABEL: "1"},
        volumes={str(tmp_path / "config"): {"bind": "/opt/ml/input/config", "mode": "ro"}},
    )  # fmt: skip
    assert container.wait(timeout=500)["StatusCode"] == 0, container.logs().decode()
    assert saved(engine, name, "/opt/ml/model/model.txt") == "trained as rank 0"


def test_not_root_and_a_root_that_can_t_be_written_save_their_model(
    saving: str, root: Path, tmp_path: Path, removed: Callable[[str], None]
) -> None:  # fmt: skip
    """The command of the documentation; ``/opt/ml`` is a person's directory with nothing but the configuration."""
    page = (root / "docs/images.md").read_text()
    found = re.search(r"## Not root, and a root that can't be written.*?```sh\n(.*?)```", page, re.DOTALL)
    assert found is not None
    config = tmp_path / "ml" / "input" / "config"
    config.mkdir(parents=True)
    words = {"sagemaker_program": json.dumps("train.py"), "sagemaker_submit_directory": json.dumps("/work")}
    (config / "hyperparameters.json").write_text(json.dumps(words))
    resources = {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "eth0"}
    (config / "resourceconfig.json").write_text(json.dumps(resources))
    subprocess.run(["chown", "-R", "1000:1000", tmp_path / "ml"], check=True)
    command = found[1].replace("musterpoint:torch", saving).replace("docker run", "docker run --rm")
    done = subprocess.run(
        ["bash", "-e", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path,
        stdin=subprocess.DEVNULL, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "ml/model/model.txt").read_text() == "trained as rank 0"
