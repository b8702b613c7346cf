"""The words of docstrings and messages: whole sentences, the field's terms, no riddles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for path in (ROOT / "src").rglob("*.py"))
PRIVATE = ("ever more", "ditto", "as ever", "magic", "under the hood", "boilerplate", "helper function", "and a bias.")
"""Phrases that say nothing to a reader who meets them first."""
OF_OTHERS = (
    "embedded/programs",
    "local/patches",
    "musterpoint_smdistributed/dataparallel/tensorflow",
    "embedded/startup",
)
"""Places where classes have the names that others' code asks for."""


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text is not None:
                yield getattr(node, "lineno", 1), text


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}


def test_a_docstring_begins_with_a_whole_sentence(trees: dict[str, ast.Module]) -> None:
    """Names may begin it as they are spelled: torchrun, pip, ``x``."""
    wrong = []
    for name, tree in trees.items():
        for line, text in docstrings(tree):
            first = " ".join(text.split("\n\n")[0].split())
            if not re.search(r"(?:[.:)`…]|::)$", first) or len(first.split()) < 2:
                wrong.append(f"{name}:{line}: {first}")
    assert wrong == []


def test_no_private_phrases(trees: dict[str, ast.Module]) -> None:
    wrong = []
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                wrong += [
                    f"{name}:{node.lineno}: {phrase}"
                    for phrase in PRIVATE
                    if re.search(rf"\b{re.escape(phrase)}(?!\w)", node.value)
                ]
    assert wrong == []


def test_every_module_and_public_class_says_what_it_is(trees: dict[str, ast.Module]) -> None:
    wrong = []
    for name, tree in trees.items():
        if ast.get_docstring(tree) is None:
            wrong.append(name)
        if any(place in name for place in OF_OTHERS):
            continue
        wrong += [
            f"{name}:{node.lineno}: {node.name}"
            for node in tree.body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and ast.get_docstring(node) is None
        ]
    assert wrong == []
