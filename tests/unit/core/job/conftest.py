"""Input trees as a platform would make them, and jobs by variables alone, for the readers' tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import pytest

from musterpoint.base.settings import from_environ
from musterpoint.core.job.model import Job
from musterpoint.core.job.read import read_job

TWO_HOSTS = {"current_host": "algo-1", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth0"}


def read(environ: dict[str, str], **options: object) -> Job:
    """The job of a program that is launched with these variables and options, where there is no tree."""
    return read_job(environ, from_environ(environ, options), "/nowhere", "train.py")


@pytest.fixture
def write_tree(tmp_path: Path) -> Callable[..., str]:
    """Writes ``<stem>.json`` files below ``input/config`` (bytes as they are, the rest as JSON); returns the base.

    Without arguments: two hosts, no hyperparameters, no channels. None leaves a file out.
    """

    def write(**files: Any) -> str:
        folder = tmp_path / "input" / "config"
        folder.mkdir(parents=True, exist_ok=True)
        for stem, content in {
            "resourceconfig": TWO_HOSTS, "hyperparameters": {}, "inputdataconfig": {}, **files,
        }.items():  # fmt: skip
            if content is not None:
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                (folder / f"{stem}.json").write_bytes(data)
        return str(tmp_path)

    return write
