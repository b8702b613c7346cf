"""Nothing but a launcher's own file compares its name: everything else asks its object.

The syntax tree of every module is read. A comparison is also a ``match``, and a look-up by names of launchers.
"""

from __future__ import annotations

import ast
from typing import Iterator

from musterpoint.core.launch.launchers import LAUNCHERS

from ...sources import IN_ONE_WORKER, PACKAGE, files
from ...sources import tree as tree_of

pytestmark = IN_ONE_WORKER

NAMES = frozenset(LAUNCHERS)


def words(node: ast.AST) -> set[str]:
    """The names of launchers in an expression."""
    return {str(each.value) for each in ast.walk(node) if isinstance(each, ast.Constant) and each.value in NAMES}


def about_a_launcher(node: ast.AST) -> bool:
    """Whether an expression is about a launcher, by how its variables are called."""
    called = (getattr(each, "id", "") or getattr(each, "attr", "") for each in ast.walk(node))
    return any("launcher" in name.lower() for name in called)


def comparisons(tree: ast.Module) -> Iterator[tuple[int, set[str]]]:
    """Lines that compare something that is about a launcher with names, and these names."""
    for node in ast.walk(tree):
        sides: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            sides = [node.subject, *(case.pattern for case in node.cases)]
        elif isinstance(node, ast.Subscript):
            sides = [node.value, node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            sides = [node.func.value, *node.args]
        if any(map(about_a_launcher, sides)) and (named := set().union(*map(words, sides))):
            yield node.lineno, named


def own_name(path: str) -> str:
    """The launcher whose file it is; empty: none's."""
    folder, _, file = path.rpartition("/")
    return file.removesuffix(".py").replace("_", "-") if folder == "core/launch/launchers" else ""


def test_only_its_own_file_compares_a_launchers_name() -> None:
    for file in files():
        path = file.relative_to(PACKAGE).as_posix()
        found = [(line, named) for line, named in comparisons(tree_of(file)) if named - {own_name(path)}]
        assert found == [], path
