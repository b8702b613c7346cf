"""Which modules the user's program imports: by its own text, and by those of its files that it imports in turn."""

from __future__ import annotations

import ast
import posixpath
from typing import Iterator, Sequence

from musterpoint.core.diagnosis.facts import ProgramFiles

MOST = 100
"""Files that are read."""


def imports_any(files: ProgramFiles, program: str, modules: Sequence[str]) -> bool:
    """Whether ``program`` imports one of ``modules``; files that nothing imports don't count.

    ``program``: a file, or a module's name with slashes; empty where it isn't Python's: then every file counts.
    """
    if not program:
        return any(_has(text, modules) for text in files.programs())
    folder = posixpath.dirname(program)
    waiting, seen = [program, f"{program}.py", f"{program}/__main__.py"], set[str]()
    while waiting and len(seen) < MOST:
        path = waiting.pop()
        text = None if path in seen else files.read(path)
        seen.add(path)
        for name, level in _imported(text) if text else ():
            if not level and name.partition(".")[0] in modules:
                return True
            waiting += _places(name, level, path, folder)
    return False


def _has(text: str, modules: Sequence[str]) -> bool:
    return any(not level and name.partition(".")[0] in modules for name, level in _imported(text))


def _imported(text: str) -> Iterator[tuple[str, int]]:
    """The names of imported modules, and how many dots are before them; not those that may be missing."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = f"{node.module}." if node.module else ""
            yield from ((base + alias.name, node.level) for alias in node.names)
        elif isinstance(node, ast.Try) and any(_is_of_imports(handler) for handler in node.handlers):
            waiting += [*node.orelse, *node.finalbody]
        else:
            waiting += ast.iter_child_nodes(node)


def _is_of_imports(handler: ast.ExceptHandler) -> bool:
    caught = ast.unparse(handler.type) if handler.type is not None else "Exception"
    return any(name in caught for name in ("ImportError", "ModuleNotFoundError", "Exception"))


def _places(name: str, level: int, importer: str, folder: str) -> Iterator[str]:
    """Where the module may be: beside the program, in the code's directory, or from where it is imported."""
    bases = {folder, ""}
    if level:
        base = posixpath.dirname(importer)
        for _ in range(level - 1):
            base = posixpath.dirname(base)
        bases = {base}
    words = name.split(".")
    for base in sorted(bases):
        for end in range(1, len(words) + 1):  # the packages on the way are imported too; the last may be no module
            path = posixpath.join(base, *words[:end])
            yield from (f"{path}.py", f"{path}/__init__.py")
