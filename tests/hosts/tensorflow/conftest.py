"""Jobs whose programs run with the Python that has TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

PROGRAMS = Path(__file__).parent / "programs"
NETWORK = ("--backend", "netns")


class Tensor:
    """Runs programs of the ``programs`` folder, or by their path, on hosts of this machine."""

    def __init__(self, local: Any) -> None:
        self.local = local

    def words(self, hosts: int, launcher: str, program: str | Path, *more: str) -> list[str | Path]:
        options = more[: more.index("--")] if "--" in more else more
        arguments = more[len(options) + 1 :]
        return ["--hosts", str(hosts), *NETWORK, "--launcher", launcher, *options, PROGRAMS / program, *arguments]

    def run(self, hosts: int, launcher: str, program: str | Path, *more: str) -> Any:
        """``more`` are options, and behind ``--`` the program's arguments."""
        return self.local.run(*self.words(hosts, launcher, program, *more), timeout=500)


@pytest.fixture
def tensor(local: Any, stack: Callable[[str], Path]) -> Tensor:
    local.environ["MUSTER_PYTHON"] = str(stack("tensorflow") / "python")
    return Tensor(local)
