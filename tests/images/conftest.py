"""Images by name, and jobs of containers that are shown when a test fails and always removed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from ..conftest import set_up
from .containers import Job, MakeJob


@pytest.fixture(scope="session")
def image() -> Callable[[str], str]:
    """The tag of an image of this checkout, by its target in docker/Dockerfile."""
    return lambda name: set_up("MUSTER_TEST_IMAGE_", name, "builds the images")


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """The Docker engine of this machine."""
    client = docker.from_env(timeout=120, max_pool_size=32)
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
