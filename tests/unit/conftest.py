"""What unit tests share: a loop for what waits in one."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.base.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@pytest.fixture
def their_sitecustomize(tmp_path: Path) -> str:
    """A folder with a ``sitecustomize`` of the user's, which calls all others itself."""
    others = tmp_path / "others"
    others.mkdir()
    (others / "sitecustomize.py").write_text(
        "import os, sys\n"
        "from importlib.machinery import PathFinder\n"
        "print('theirs')\n"
        "here = os.path.dirname(__file__)\n"
        "spec = PathFinder.find_spec('sitecustomize', [path for path in sys.path if path != here])\n"
        "spec and spec.loader.load_module('sitecustomize')\n"
    )
    return str(others)
