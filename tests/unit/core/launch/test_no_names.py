"""Nothing but a launcher's own file compares its name: everything else asks its object.

The syntax tree of every module is read. A comparison is also: a ``match``, a look-up by names of launchers, and a
property that names one.
"""

from __future__ import annotations

import ast
from typing import Iterator

from musterpoint.base.kinds import LAUNCHERS

from ...sources import IN_ONE_WORKER, PACKAGE, files
from ...sources import tree as tree_of

pytestmark = IN_ONE_WORKER

NAMES = frozenset(LAUNCHERS)
IDENTIFIERS = frozenset(name.replace("-", "_") for name in NAMES)

TABLES = {("base/kinds.py", "LAUNCHERS"): "the table of all launchers"}
"""Tables that may have several launchers' names, with the reason."""

OTHERS = {
    "core/job/": "kinds of distribution that platforms and SDKs write, which are called as launchers are",
    "local/platforms/": "the same, as they are played",
    "embedded/": "what runs inside other processes knows no launcher",
}
"""Where such words mean something else, unless a launcher is what is compared."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in files():
        yield path.relative_to(PACKAGE).as_posix(), tree_of(path)


def words(node: ast.AST | None) -> set[str]:
    """The names of launchers in an expression."""
    if node is None:
        return set()
    return {
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value in NAMES
    }


def about_a_launcher(node: ast.AST | None) -> bool:
    """Whether an expression is about a launcher, by how its variables are called."""
    if node is None:
        return False
    called = (
        each.id if isinstance(each, ast.Name) else each.attr if isinstance(each, ast.Attribute) else ""
        for each in ast.walk(node)
    )
    return any("launcher" in name.lower() for name in called)


def tables(tree: ast.Module) -> dict[str, set[str]]:
    """Module-level names whose values have names of launchers."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and words(node.value):
                found[target.id] = words(node.value)
    return found


def comparisons(tree: ast.Module) -> Iterator[tuple[int, set[str]]]:
    """Lines that compare something that is about a launcher with names, and these names."""
    known = tables(tree)
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
        if not any(about_a_launcher(side) for side in sides):
            continue
        named = {word for side in sides for word in words(side)}
        for side in sides:
            if isinstance(side, ast.Name):
                named |= known.get(side.id, set())
        if named:
            yield node.lineno, named


def keyed_by_launchers(tree: ast.Module) -> Iterator[tuple[int, set[str], str]]:
    """Tables of several launchers: dicts with their names as keys; sets and tuples of nothing else."""
    called = {id(node.value): node.targets[0] for node in ast.walk(tree) if isinstance(node, ast.Assign)}
    called |= {id(node.value): node.target for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and node.value}
    for node in ast.walk(tree):
        items: list[ast.expr | None] = []
        if isinstance(node, ast.Dict):
            items = list(node.keys)
        elif isinstance(node, ast.Set | ast.Tuple | ast.List):
            items = list(node.elts)
        found = {item.value for item in items if isinstance(item, ast.Constant) and item.value in NAMES}
        whole = isinstance(node, ast.Dict) or len(found) == len(items)
        if len(found) > 1 and whole:
            target = called.get(id(node))
            yield node.lineno, found, target.id if isinstance(target, ast.Name) else ""


def properties(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Functions and attributes that are called after one launcher, such as ``is_mpi``."""
    for node in ast.walk(tree):
        name = node.name if isinstance(node, ast.FunctionDef) else node.attr if isinstance(node, ast.Attribute) else ""
        if name.removeprefix("is_") in IDENTIFIERS and name.startswith("is_"):
            yield node.lineno, name


def own_name(path: str) -> str:
    """The launcher whose file it is; empty: none's."""
    folder, _, file = path.rpartition("/")
    return file.removesuffix(".py").replace("_", "-") if folder == "core/launch/launchers" else ""


def test_only_its_own_file_compares_a_launchers_name() -> None:
    found = [
        f"{path}:{line} compares with {', '.join(sorted(named))}"
        for path, tree in modules()
        for line, named in comparisons(tree)
        if named - {own_name(path)}
    ]
    assert found == []


def test_there_is_one_table_of_launchers() -> None:
    found = [
        f"{path}:{line} {name} has {', '.join(sorted(named))}"
        for path, tree in modules()
        for line, named, name in keyed_by_launchers(tree)
        if (path, name) not in TABLES and not path.startswith(tuple(OTHERS))
    ]
    assert found == []


def test_no_property_is_one_launchers() -> None:
    assert [f"{path}:{line} {name}" for path, tree in modules() for line, name in properties(tree)] == []
