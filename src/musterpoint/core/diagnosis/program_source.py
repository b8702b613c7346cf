"""Reads a program's source: the text it gives to ``sys.exit``, and whether it catches an exception."""

from __future__ import annotations

import ast
import builtins
import re
from typing import Iterable, Iterator

from musterpoint.core.diagnosis.traceback import MESSAGE_LINES, Line

_SHORTEST = 6
"""Least characters of a text that is searched for in the output."""
_CALL = re.compile(r"\b(?:exit|SystemExit)\(\s*[rRfF]{0,2}(?P<quote>\"\"\"|'''|\"|')(?P<text>[^\"'{%\\\n]+)")


def find_exit_text(lines: list[Line], sources: Iterable[str]) -> str:
    """The last of ``lines`` that the program may have given to ``sys.exit``, with indented lines after it; empty if
    there is none. ``sources`` are the texts of the program's files.
    """
    heads = tuple({head for source in sources for head in _heads(source)})
    for index in range(len(lines) - 1, -1, -1) if heads else ():
        if lines[index].text.startswith(heads):
            said = [lines[index].text]
            for line in lines[index + 1 : index + MESSAGE_LINES]:
                if not line.text[:1].isspace() or not line.text.strip():
                    break
                said.append(line.text)
            return "\n".join(text.strip() for text in said)
    return ""


def _heads(source: str) -> Iterator[str]:
    for call in _CALL.finditer(source):
        if len(call["text"].strip()) >= _SHORTEST:
            yield call["text"].rstrip()


_ENDS = frozenset({"exit", "_exit", "quit", "abort", "Abort"})


def goes_on(source: str, line: int, code: str, exception: str) -> bool | None:
    """Whether code around ``line`` catches ``exception`` and the program continues; None if unknown.

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
    """The exception handlers around ``line`` in its innermost function or module."""
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
    """Whether a handler may catch an exception of that name. Other classes than Python's own may have any parent."""
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
