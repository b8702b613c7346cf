"""Imports stand on top of a file, but for those that most jobs never need."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "src" / "musterpoint"
ELSEWHERE = ("embedded", "local/patches")
"""What runs in another Python: its imports are that one's frameworks."""
MOST = 94
"""Imports inside of functions. It may only become less; what is behind such a door has its own imports on top."""


def test_imports_stand_on_top() -> None:
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        if name.startswith(ELSEWHERE):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        inner = {node.lineno for each in functions for node in ast.walk(each)
                 if isinstance(node, (ast.Import, ast.ImportFrom))}  # fmt: skip
        found += [f"{name}:{line}" for line in sorted(inner)]
    assert len(found) <= MOST, found
