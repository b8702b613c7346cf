"""Tools in a loop of their own, and a pip that does what it is told."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Callable, Mapping

import pytest

from musterpoint.base.loop import Loop
from musterpoint.base.settings import Installer
from musterpoint.core.code.tools import Output, Tools
from musterpoint.core.code.workspace import Code, Workspace
from musterpoint.core.job.model import Job

from ...fixtures import closing_fixture


def prepare(
    job: Job, environ: Mapping[str, str], interpreter: str, tools: Callable[[], Tools] | None = None,
    installer: Installer = "auto",
) -> Workspace:  # fmt: skip
    """The workspace of a job whose code is brought first."""
    return Code(job, environ, interpreter, tools).workspace(job, interpreter, installer)


class Bench:
    """Tools, what they said and showed, and the environment of the user's Python, which is this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = Loop()
        self.said: list[str] = []
        self.shown: list[str] = []
        self.moments: list[tuple[str, dict[str, Any]]] = []
        self.tools = Tools(self.loop, "algo-1", Output(self.said.append, self.shown.append, self.record))
        self.environ = {"PATH": os.environ["PATH"], "TMPDIR": str(folder), "HOME": str(folder)}

    def record(self, name: str, **facts: Any) -> None:
        self.moments.append((name, facts))

    def module(self, name: str, text: str) -> None:
        """A module that the user's Python finds."""
        folder = self.folder / "modules"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text)
        self.environ["PYTHONPATH"] = str(folder)

    def pip(self, text: str) -> None:
        """What ``python -m pip`` does; ``CALLS`` counts its calls, and each writes its words to ``calls``."""
        calls = str(self.folder / "calls")
        self.module(
            "pip",
            "import os, sys\n"
            f"with open({calls!r}, 'a+') as file:\n"
            "    file.write(' '.join(sys.argv[1:]) + '\\n')\n"
            "    file.seek(0)\n"
            "    CALLS = len(file.readlines())\n" + text,
        )

    @property
    def calls(self) -> list[str]:
        try:
            return (self.folder / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []

    def close(self) -> None:
        self.loop.close()


bench = closing_fixture(Bench, "tmp_path")


@pytest.fixture
def interpreter() -> str:
    return sys.executable
