"""The documentation's shell blocks run as they stand there: those marked with ``<!-- runs … -->``.

A test that looks at more than how a block ends runs it itself: ``<!-- runs in test_NAME.py -->``.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
MARKED = re.compile(r"<!-- runs(?P<how>[^>]*?) -->\n```sh\n(?P<text>.*?)```", re.DOTALL)
COMMANDS = {"muster": "musterpoint.cli.main", "train": "musterpoint.cli.train"}


class Block(NamedTuple):
    """``text`` is what a reader of ``page`` copies; ``code`` is what the last command of it ends with."""

    page: str
    text: str
    code: int
    torch: bool


def blocks() -> list[Block]:
    found = []
    for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))):
        for match in MARKED.finditer(page.read_text(encoding="utf-8")):
            if match["how"].startswith(" in "):
                assert (Path(__file__).parent / match["how"].removeprefix(" in ")).exists(), match["how"]
                continue
            code = re.search(r"code (\d+)", match["how"])
            found.append(Block(page.name, match["text"], int(code[1]) if code else 0, "torch" in match["how"]))
    return found


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A directory with ``muster`` and ``train`` of this checkout, for PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, module in COMMANDS.items():
        file = folder / name
        file.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from {module} import main; exit(main())' \"$@\"\n")
        file.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    "block", blocks(), ids=lambda block: f"{block.page}: {block.text.strip().splitlines()[-1][:40]}"
)
def test_block_runs(block: Block, tmp_path: Path, commands: Path, environ: dict[str, str]) -> None:
    if block.torch and importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    here = tmp_path / "here"
    here.mkdir()
    (here / "examples").symlink_to(ROOT / "examples")
    env = {**environ, "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", block.text], cwd=here, env=env, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == block.code, f"{done.stdout}\n{done.stderr}"


def test_there_are_blocks_to_run() -> None:
    assert len([block for block in blocks() if block.page == "README.md"]) >= 4
