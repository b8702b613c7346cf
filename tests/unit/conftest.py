"""What unit tests share: a loop for what waits in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.base.loop import Loop
from musterpoint.core.processes import process_tree

from ..left_behind import children
from .fixtures import closing_fixture


@pytest.fixture(autouse=True)
def _of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor in this process takes all its children for the job's: those from before the test aren't."""
    if before := {*children()}:
        own, kill = process_tree.own_children, process_tree.kill_below
        monkeypatch.setattr(
            process_tree, "own_children", lambda *proc: [each for each in own(*proc) if each.pid not in before]
        )
        monkeypatch.setattr(process_tree, "kill_below", lambda root, spared=(): kill(root, {*spared, *before}))


loop = closing_fixture(Loop)


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
