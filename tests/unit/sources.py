"""The sources as syntax trees: each file is parsed once for all tests that read them, which run in one worker."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src"
PACKAGE = SOURCES / "musterpoint"

IN_ONE_WORKER = pytest.mark.xdist_group("sources")
"""The mark of modules whose tests read all sources."""


@cache
def files(folder: Path = PACKAGE) -> tuple[Path, ...]:
    """All Python files below ``folder``."""
    return tuple(sorted(folder.rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's tree, as ``ast.walk`` gives them."""
    return tuple(ast.walk(tree(path)))
