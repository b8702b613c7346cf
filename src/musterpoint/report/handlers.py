"""Whether a program goes on behind an exception: what its source says of the statement that a traceback begins with."""

from __future__ import annotations

import ast
import builtins
from typing import Iterator

_ENDS = frozenset({"exit", "_exit", "quit", "abort", "Abort"})


def goes_on(source: str, line: int, code: str, exception: str) -> bool | None:
    """Whether something around ``line`` catches ``exception`` and lets the program go on; None if that can't be told.

    A traceback begins where the exception was caught, or else at the program's beginning. ``code`` is the line as it
    was printed (empty: unknown), ``exception`` its class.
    """
    lines = source.splitlines()
    if not 0 < line <= len(lines) or (code and lines[line - 1].strip() != code):
        return None
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return any(
        _may_be(handler, exception.rsplit(".", 1)[-1]) and not _ends(handler.body[-1])
        for handler in _handlers(module, line)
    )


def _handlers(scope: ast.AST, line: int) -> Iterator[ast.ExceptHandler]:
    """The handlers that watch over ``line``, in the innermost function or module that it is in."""
    found: list[ast.ExceptHandler] = []
    node: ast.AST | None = scope
    while node is not None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            found.clear()
        handlers = getattr(node, "handlers", [])
        if handlers and _within(node.body, line):  # type: ignore[attr-defined]
            found += handlers
        node = next((child for child in ast.iter_child_nodes(node) if _covers(child, line)), None)
    yield from found


def _covers(node: ast.AST, line: int) -> bool:
    first: int | None = getattr(node, "lineno", None)
    if first is None:  # a case of a match statement
        return any(_covers(child, line) for child in ast.iter_child_nodes(node))
    return first <= line <= (getattr(node, "end_lineno", None) or 0)


def _within(body: list[ast.stmt], line: int) -> bool:
    return body[0].lineno <= line <= (body[-1].end_lineno or 0)


def _may_be(handler: ast.ExceptHandler, exception: str) -> bool:
    """Whether a handler may catch an exception of that name. A class that isn't Python's own may have any parent."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    for one in caught:
        name = one.attr if isinstance(one, ast.Attribute) else one.id if isinstance(one, ast.Name) else ""
        raised, parent = getattr(builtins, exception, None), getattr(builtins, name, None)
        if name in ("KeyboardInterrupt", "SystemExit", "GeneratorExit") and exception != name:
            continue
        if not isinstance(raised, type) or not isinstance(parent, type) or issubclass(raised, parent):
            return True
    return False


def _ends(last: ast.stmt) -> bool:
    """Whether a handler's last statement raises, or ends the program."""
    if isinstance(last, ast.Raise):
        return True
    call = last.value if isinstance(last, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in _ENDS
