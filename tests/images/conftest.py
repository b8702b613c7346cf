"""Images by name, and jobs of containers that are shown when a test fails and always removed."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import docker
import pytest

from ..conftest import set_up
from .containers import LABEL, Job, MakeJob


@pytest.fixture(scope="session")
def image() -> Callable[[str], str]:
    """The tag of an image of this checkout, by its target in docker/Dockerfile."""
    return lambda name: set_up("MUSTER_TEST_IMAGE_", name, "builds the images")


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """The Docker engine of this machine."""
    client = docker.from_env(timeout=500, max_pool_size=32)
    yield client
    client.close()


@pytest.fixture
def job(engine: docker.DockerClient, image: Callable[[str], str], tmp_path: Path) -> Iterator[MakeJob]:
    """Makes a job of containers: ``job("base", program, hosts=2).start()``; see :meth:`Job.make`."""
    made: list[Job] = []

    def make(target: str, *words: object, **settings: object) -> Job:
        folder = tmp_path / f"job-{len(made)}"
        folder.mkdir()
        made.append(Job(engine, folder))
        return made[-1].make(image(target), *words, **settings)  # type: ignore[arg-type]

    with contextlib.ExitStack() as last:
        yield make
        for each in made:
            last.callback(each.remove)
        for each in made:
            each.show()


@pytest.fixture
def build(engine: docker.DockerClient, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Builds an image of a Dockerfile's text and files by their names in its context, if any; its tag."""
    made: list[str] = []

    def make(text: str, files: Mapping[str, Path] = {}) -> str:
        folder = tmp_path / f"context-{len(made)}"
        folder.mkdir()
        (folder / "Dockerfile").write_text(text)
        for name, file in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, folder / name)
        tag = f"{LABEL}:{uuid.uuid4().hex[:12]}"
        engine.images.build(path=str(folder), tag=tag, rm=True, forcerm=True, labels={LABEL: "1"})
        made.append(tag)
        return tag

    yield make
    for tag in reversed(made):
        engine.images.remove(tag, force=True)
