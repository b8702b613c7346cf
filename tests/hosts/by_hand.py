"""Processes of a job that a test starts itself, as a platform does, without ``muster local``."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping

import pytest

from ..ports import free_port
from .conftest import none_left


class Processes:
    """Starts processes in ``folder``, which carry :attr:`token` in their environment."""

    def __init__(self, python: str, environ: Mapping[str, str], folder: Path) -> None:
        self.python, self.folder = python, folder
        self.token = f"muster-test-{uuid.uuid4().hex}"
        self.environ = {**environ, "MUSTER_TEST_TOKEN": self.token}
        self.started: list[subprocess.Popen[str]] = []

    def popen(
        self, *words: str | Path, environ: Mapping[str, str], cwd: str | Path = "", stderr: int = subprocess.STDOUT
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            words, env={**self.environ, **environ}, cwd=cwd or self.folder, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=stderr,
        )  # fmt: skip
        self.started.append(process)
        return process


def leaving_none(kind: Callable[[str, dict[str, str], Path], Any]) -> Any:
    """A fixture: ``kind`` made for a test, none of whose processes may outlive it."""

    @pytest.fixture
    def made(
        python: str, environ: dict[str, str], tmp_path: Path, has_failed: Callable[[], bool]
    ) -> Iterator[Processes]:
        yield from none_left(kind(python, environ, tmp_path), has_failed)

    return made


def meeting(names: Path, addresses: Mapping[str, str]) -> dict[str, str]:
    """What tells hosts on this machine's loopback where they meet; ``names``: the file of their addresses."""
    names.write_text("".join(f"{address} {host}\n" for host, address in addresses.items()))
    return {
        "MUSTER_HOSTS_FILE": str(names), "MUSTER_ROLLCALL_PORT": str(free_port()), "MUSTER_MASTER_PORT": "0",
        "MUSTER_SECRET": "only-for-this-test", "MUSTER_ROLLCALL_TIMEOUT": "100",
    }  # fmt: skip
