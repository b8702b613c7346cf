"""Images that people bring as ``scripts/build-image --base``: a Python, conda, another user, no apt, or too little."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

import musterpoint

from .containers import LABEL

SYSTEM = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAM = """
import importlib.util, json, os, sys
has = [bool(importlib.util.find_spec(name)) for name in ("musterpoint", "musterpoint_smdistributed")]
print(json.dumps([sys.executable, os.getuid(), *has]))
if os.environ.get("SM_HP_TORCH"):
    import torch
    print(torch.ones(3).sum().item())
"""


@pytest.fixture
def bases(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(root / "scripts"))
    return importlib.import_module("bases")


@pytest.fixture
def built(root: Path, engine: docker.DockerClient) -> Iterator[Callable[..., tuple[str, str]]]:
    """Builds on a base with ``scripts/build-image``: the tag, and what was said; or no tag where it ends with 1."""
    made: list[str] = []
    before = {tag for found in engine.images.list("musterpoint-user") for tag in found.tags}

    def build(*words: str) -> tuple[str, str]:
        tag = f"{LABEL}:{uuid.uuid4().hex[:12]}"
        made.append(tag)
        command = [root / "scripts" / "build-image", "--tag", tag, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) in ((0, f"{tag}\n"), (1, "")), done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        made.extend(re.findall(r"(musterpoint\S*:\S+): built in", done.stderr))
        return done.stdout.strip(), done.stderr

    yield build
    after = {tag for found in engine.images.list("musterpoint-user") for tag in found.tags}
    for tag in (*made, *(after - before)):
        with contextlib.suppress(docker.errors.ImageNotFound):
            engine.images.remove(tag, force=True)


def trained(engine: docker.DockerClient, tag: str, folder: Path, torch: bool = False, **words: Any) -> list[str]:
    """What a program prints that ``train`` starts in a container of this image, which may write to its folders only."""
    (folder / "input" / "config").mkdir(parents=True)
    for name in ("code", "model", "output"):
        (folder / name).mkdir()
        os.chown(folder / name, 1000, 1000)
    (folder / "code" / "train.py").write_text(PROGRAM)
    settings = {"sagemaker_program": '"train.py"', **({"torch": "1"} if torch else {})}
    (folder / "input" / "config" / "hyperparameters.json").write_text(json.dumps(settings))
    resources = {"current_host": "algo-1", "hosts": ["algo-1"]}
    (folder / "input" / "config" / "resourceconfig.json").write_text(json.dumps(resources))
    said = engine.containers.run(
        tag, read_only=True, tmpfs={"/tmp": ""}, remove=True, labels={LABEL: "1"}, network_mode="none",
        volumes={str(folder): {"bind": "/opt/ml"}}, **words,
    )  # fmt: skip
    assert (folder / "output" / "success").exists()
    return str(said.decode()).splitlines()


def test_a_base_with_pytorch_and_a_user_and_no_apt(
    build: Any, built: Any, engine: docker.DockerClient, image: Callable[[str], str], tmp_path: Path
) -> None:
    mine = build(
        f"FROM {image('torch')}\n"
        "RUN pip uninstall --quiet --yes musterpoint boto3 && rm /usr/bin/apt-get\n"
        'USER 1000:1000\nENTRYPOINT ["/bin/false"]\n'
    )
    tag, said = built("--base", mine, "--target", "torch")
    assert tag and re.search(rf"{mine}: its /opt/venv/bin/python3 is kept \(Python 3\S+, with torch\)", said), said
    assert trained(engine, tag, tmp_path / "ml", torch=True) == ['["/opt/venv/bin/python3", 1000, true, true]', "3.0"]
    found = engine.images.get(tag)
    assert found.attrs["Config"]["User"] == "1000:1000" and not found.attrs["Config"]["Entrypoint"]
    assert found.labels["org.opencontainers.image.base.name"] == mine
    # Nothing is there twice, and pip knows what was added.
    added = found.attrs["Size"] - engine.images.get(mine).attrs["Size"]
    assert added < 17_500_000, added
    look = "python -c 'import musterpoint_smdistributed, smdistributed.modelparallel.torch' && "
    look += "pip uninstall --quiet --yes musterpoint && ! command -v train && python -c 'import torch, boto3'"
    gone = " && ".join(f"! python -c 'import {name}' 2> /dev/null" for name in musterpoint.PACKAGES)
    look += f" && {gone} && echo gone"
    words = {"user": "0", "labels": {LABEL: "1"}, "remove": True, "network_mode": "none"}
    assert engine.containers.run(tag, ["/bin/sh", "-c", look], **words) == b"gone\n"


def test_a_python_that_is_not_on_the_path(
    build: Any, built: Any, engine: docker.DockerClient, image: Callable[[str], str], tmp_path: Path
) -> None:
    """As conda's in many images: the one with torch is meant, unless another one is named."""
    # a step that Docker's cache has doesn't say its warning again
    mine = build(f"FROM {image('torch')}\nENV {SYSTEM} FRESH={uuid.uuid4().hex}\n")
    tag, said = built("--base", mine, "--target", "base")
    assert tag and "/opt/venv/bin/python is kept" in said
    assert trained(engine, tag, tmp_path / "ml", torch=True) == ['["/opt/venv/bin/python", 0, true, true]', "3.0"]
    tag, said = built("--base", mine, "--target", "base", "--python", "/usr/bin/python3")
    assert tag and "/usr/bin/python3 is kept" in said
    # Debian's Python has no pip: what S3 takes can't be added, and is said to lack.
    assert "WARNING: /usr/bin/python3 has no pip: boto3>=1.34 can't be added" in said
    assert trained(engine, tag, tmp_path / "other") == ['["/usr/bin/python3", 0, true, true]']


def test_a_debian_of_another_user_without_a_python(
    build: Any, built: Any, engine: docker.DockerClient, image: Callable[[str], str], tmp_path: Path
) -> None:
    bare = engine.images.get(image("base")).labels["org.opencontainers.image.base.name"]
    tag, said = built("--base", build(f"FROM {bare}\nUSER 1000\n"), "--target", "base")
    assert tag, said
    assert engine.images.get(tag).attrs["Config"]["User"] == "1000"
    assert trained(engine, tag, tmp_path / "ml") == ['["/opt/venv/bin/python3", 1000, true, true]']


def test_what_a_base_lacks_is_said(
    build: Any, built: Any, engine: docker.DockerClient, image: Callable[[str], str]
) -> None:
    bare = engine.images.get(image("base")).labels["org.opencontainers.image.base.name"]
    without = build(f"FROM {bare}\nRUN rm /usr/bin/apt-get\n")
    tag, said = built("--base", without)
    assert not tag and f"{without} has no Python 3.10 or newer. Add one to it (it has no apt-get" in said, said
    tag, said = built("--base", without, "--python", "/opt/conda/bin/python")
    assert not tag and "has no Python /opt/conda/bin/python that starts" in said
    tag, said = built("--base", build(f"FROM {bare}\nRUN rm /bin/sh\n"))
    assert not tag and "can't be looked into, which takes its /bin/sh" in said and "docs/images.md" in said, said
    tag, said = built("--base", image("torch"), "--target", "mpi")
    assert not tag and "the target mpi can't be built on" in said and "--target base" in said


def answer(*pythons: tuple[str, str, str], apt: bool = True, first: str = "") -> str:
    """What a base says of itself."""
    lines = ["apt-get"] if apt else []
    lines.append(f"first {first or (pythons[0][0] if pythons else '')}")
    for path, number, modules in pythons:
        version = [int(part) for part in number.split(".")]
        lines.append(json.dumps({"path": path, "version": version, "modules": modules.split()}))
    return "\n".join([*lines, "end"])


DEBIANS = ("/usr/bin/python3", "3.11.2", "")
OLD = ("/usr/bin/python3", "3.8.10", "numpy")
CONDA = ("/opt/conda/bin/python", "3.12.4", "pip torch numpy")
TABLE = {
    "nothing on a Debian": (answer(), None),
    "Debian's own": (answer(DEBIANS), None),
    "Debian's own, with packages": (answer(("/usr/bin/python3", "3.12.3", "numpy")), "/usr/bin/python3"),
    "Debian's own, elsewhere": (answer(("/usr/bin/python3", "3.12.3", ""), apt=False), "/usr/bin/python3"),
    "one of the image's": (answer(("/usr/local/bin/python3", "3.12.1", "pip")), "/usr/local/bin/python3"),
    "conda behind Debian's": (answer(DEBIANS, CONDA), "/opt/conda/bin/python"),
    "conda behind an old one": (answer(OLD, CONDA), "/opt/conda/bin/python"),
    "two of a kind": (answer(("/usr/local/bin/python3", "3.12.1", "pip torch"), CONDA), "/usr/local/bin/python3"),
}


@pytest.mark.parametrize("name", TABLE)
def test_which_python_is_kept(name: str, bases: Any) -> None:
    text, path = TABLE[name]
    kept = bases.Base.from_answer("mine", text).kept()
    assert (kept.path if kept else None) == path


def test_which_python_will_not_do(bases: Any) -> None:
    def kept(text: str, wanted: str = "") -> Any:
        return bases.Base.from_answer("mine", text).kept(wanted)

    for apt in (False, True):
        with pytest.raises(
            bases.Missing, match=r"mine has no Python 3.10 or newer; it has /usr/bin/python3, 3.8.10. Add"
        ):
            kept(answer(OLD, apt=apt))
    with pytest.raises(bases.Missing, match=r"/usr/bin/python3 of mine is Python 3.8.10: expected 3.10 or newer"):
        kept(answer(CONDA, OLD), "/usr/bin/python3")
    assert kept(answer(CONDA, DEBIANS), "/usr/bin/python3").path == "/usr/bin/python3"


def test_what_is_added_to_a_python(bases: Any) -> None:
    def python(modules: str) -> Any:
        return bases.Python("/p", (3, 12, 1), frozenset(modules.split()))

    def added(target: str, modules: str, cuda: bool = False) -> list[str]:
        found: list[str] = bases.requirements(target, python(modules), "mine", cuda)
        return found

    everything = "pip torch numpy sklearn boto3"
    assert added("base", everything) == added("torch", everything) == []
    assert added("torch", "torch pip") == ["numpy", "scikit-learn", "boto3>=1.34"]
    assert added("torch", "pip numpy sklearn boto3")[0] == f"--extra-index-url={bases.TORCH_INDEX}"
    assert added("torch", "pip numpy sklearn boto3", cuda=True) == ["torch==2.13.0"]
    assert added("base", "") == ["boto3>=1.34"]
    assert added("mpi", everything + " mpi4py") == []
    with pytest.raises(bases.Missing, match=r"/p of mine has no pip to install --?\S* ?torch|/p of mine has no pip"):
        added("torch", "numpy")


def test_the_recipe_for_an_image_that_has_everything(
    build: Any, engine: docker.DockerClient, image: Callable[[str], str], root: Path, tmp_path: Path
) -> None:
    """Three lines of docs/images.md, nothing of which takes root, apt, pip or a network."""
    text = (root / "docs" / "images.md").read_text()
    recipe = next(
        found for found in re.findall(r"^```dockerfile\n(.*?)^```", text, re.M | re.S) if "my-pytorch" in found
    )
    assert len(recipe.splitlines()) == 3
    mine = build(
        f"FROM {image('torch')}\nRUN pip uninstall --quiet --yes musterpoint && rm /usr/bin/apt-get\n"
        f"RUN mkdir -p /opt/conda/envs && ln -s /opt/venv /opt/conda/envs/train\nENV {SYSTEM}\nUSER 1000:1000\n"
    )
    folder = tmp_path / "context"
    (folder / "container").mkdir(parents=True)
    command = [sys.executable, "-m", "musterpoint", "bundle", "-o", str(folder / "container" / "launcher.py")]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(root / "src")}, check=True)
    (folder / "Dockerfile").write_text(recipe.replace("FROM my-pytorch", f"FROM {mine}"))
    tag = f"{LABEL}:{uuid.uuid4().hex[:12]}"
    engine.images.build(path=str(folder), tag=tag, rm=True, forcerm=True, labels={LABEL: "1"})
    shutil.rmtree(folder)
    try:
        said = trained(engine, tag, tmp_path / "ml", torch=True, command="train")
        assert said[1] == "3.0" and json.loads(said[0])[1:] == [1000, False, False], said
    finally:
        engine.images.remove(tag, force=True)
