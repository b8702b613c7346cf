"""The words of docstrings and messages: whole sentences, the field's terms, no riddles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from .sources import IN_ONE_WORKER, SOURCES, files, nodes, tree

pytestmark = IN_ONE_WORKER
PRIVATE = ("ever more", "ditto", "as ever", "magic", "under the hood", "boilerplate", "helper function", "and a bias.")
"""Phrases that say nothing to a reader who meets them first."""
OF_OTHERS = (
    "embedded/programs",
    "local/patches",
    "musterpoint_smdistributed/dataparallel/tensorflow",
    "embedded/startup",
)
"""Places where classes have the names that others' code asks for."""


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    for node in nodes(path):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text is not None:
                yield getattr(node, "lineno", 1), text


def named() -> Iterator[tuple[str, Path]]:
    """Every source file, by how messages name it."""
    for path in files(SOURCES):
        yield path.relative_to(SOURCES.parent).as_posix(), path


def test_a_docstring_begins_with_a_whole_sentence() -> None:
    """Names may begin it as they are spelled: torchrun, pip, ``x``."""
    wrong = []
    for name, path in named():
        for line, text in docstrings(path):
            first = " ".join(text.split("\n\n")[0].split())
            if not re.search(r"(?:[.:)`…]|::)$", first) or len(first.split()) < 2:
                wrong.append(f"{name}:{line}: {first}")
    assert wrong == []


def test_no_private_phrases() -> None:
    wrong = []
    for name, path in named():
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                wrong += [
                    f"{name}:{node.lineno}: {phrase}"
                    for phrase in PRIVATE
                    if re.search(rf"\b{re.escape(phrase)}(?!\w)", node.value)
                ]
    assert wrong == []


def test_every_module_and_public_class_says_what_it_is() -> None:
    wrong = []
    for name, path in named():
        if ast.get_docstring(tree(path)) is None:
            wrong.append(name)
        if any(place in name for place in OF_OTHERS):
            continue
        wrong += [
            f"{name}:{node.lineno}: {node.name}"
            for node in tree(path).body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and ast.get_docstring(node) is None
        ]
    assert wrong == []
