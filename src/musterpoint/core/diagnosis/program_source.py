"""Reads a program's source: the text it gives to ``sys.exit``, and how it goes on where it catches an exception."""

from __future__ import annotations

import ast
import builtins
import re
from typing import Callable, Iterable, Iterator, Literal, Sequence

from musterpoint.core.diagnosis.message_lines import MESSAGE_LINES, parsed

_SHORTEST = 6
"""Least characters of a text that is searched for in the output."""
_CALL = re.compile(r"\b(?:exit|SystemExit)\(\s*[rRfF]{0,2}(?P<quote>\"\"\"|'''|\"|')(?P<text>[^\"'{%\\\n]+)")

_CLICK = re.compile(_CALL.pattern.replace("exit|SystemExit", "ClickException"))
"""click prints ``Error: `` before the text."""
_VALUE = re.compile(r"\b(?:exit|SystemExit)\(\s*(?![\d)]|-\d|None|[rRfF]{0,2}[\"'])")


def find_exit_text(lines: Sequence[str], sources: Iterable[str]) -> str:
    """The last of ``lines`` that the program may have given to ``sys.exit``, with indented lines after it; empty if
    there is none. ``sources`` are the texts of the program's files.
    """
    heads = tuple({head for source in sources for head in _heads(source)})
    for index in range(len(lines) - 1, -1, -1) if heads else ():
        if lines[index].startswith(heads):
            said = [lines[index]]
            for text in lines[index + 1 : index + MESSAGE_LINES]:
                if not text[:1].isspace() or not text.strip():
                    break
                said.append(text)
            return "\n".join(text.strip() for text in said)
    return ""


def exits_with_a_value(sources: Iterable[str]) -> bool:
    """Whether the program may give a text to ``sys.exit`` that isn't in its sources; so it is where there are none."""
    texts = [source for source in sources if source]
    return not texts or any(_VALUE.search(source) for source in texts)


def _heads(source: str) -> Iterator[str]:
    for before, pattern in (("", _CALL), ("Error: ", _CLICK)):
        for call in pattern.finditer(source):
            if len(call["text"].strip()) >= _SHORTEST:
                yield before + call["text"].rstrip()


_ENDS = frozenset({"exit", "_exit", "quit", "abort", "Abort"})


After = Literal["uncaught", "ends", "on"]
"""What happens behind the line that raised: nothing there catches it, what catches it ends the program, or goes on."""


class Sources:
    """The files that tracebacks name, each read and parsed once. ``read`` gives a file's text, None where it can't."""

    def __init__(self, read: Callable[[str], str | None] = lambda file: None) -> None:
        self._read = read
        self._known: dict[str, tuple[list[str], ast.Module] | None] = {}

    def after(self, file: str, line: int, code: str, exception: str) -> After | None:
        """What the code around a line does about ``exception``; None if unknown.

        A traceback begins where the exception was caught, or else at the program's beginning. ``code`` is the line as
        it was printed (empty: unknown), ``exception`` its class.
        """
        known = self._parsed(file)
        if known is None or not 0 < line <= len(known[0]) or (code and known[0][line - 1].strip() != code):
            return None
        handlers, managed = _around(known[1], line)
        catching = [each for each in handlers if _may_be(each, exception.rsplit(".", 1)[-1])]
        if not catching:
            return None if managed else "uncaught"  # a context manager may catch it, too
        if any(not _ends(handler.body[-1]) for handler in catching):
            return "on"
        return "uncaught" if isinstance(catching[-1].body[-1], ast.Raise) else "ends"

    def statement(self, file: str, line: int) -> str:
        """The ``raise`` or ``assert`` that reaches over ``line``; empty: there is none."""
        known = self._parsed(file)
        node: ast.AST | None = known[1] if known is not None else None
        while node is not None and not isinstance(node, (ast.Raise, ast.Assert)):
            node = next((child for child in ast.iter_child_nodes(node) if _covers(child, line)), None)
        return "" if node is None else ast.unparse(node)

    def _parsed(self, file: str) -> tuple[list[str], ast.Module] | None:
        if file not in self._known:
            text = self._read(file)
            module = None if text is None else parsed(text)
            self._known[file] = None if text is None or module is None else (text.splitlines(), module)
        return self._known[file]


def _around(scope: ast.AST, line: int) -> tuple[list[ast.ExceptHandler], bool]:
    """The exception handlers around ``line`` in its innermost function or module, and whether a ``with`` is."""
    found: list[ast.ExceptHandler] = []
    managed = False
    node: ast.AST | None = scope
    while node is not None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            found, managed = [], False
        handlers = getattr(node, "handlers", [])
        if handlers and _within(node.body, line):  # type: ignore[attr-defined]
            found += handlers
        managed |= isinstance(node, (ast.With, ast.AsyncWith)) and _within(node.body, line)
        node = next((child for child in ast.iter_child_nodes(node) if _covers(child, line)), None)
    return found, managed


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
    """Whether a handler's last statement raises, ends the program, or returns a code that says that it failed."""
    if isinstance(last, ast.Raise):
        return True
    if isinstance(last, ast.Return):
        return isinstance(last.value, (ast.Constant, ast.UnaryOp)) and _is_code(last.value)
    call = last.value if isinstance(last, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in _ENDS


def _is_code(value: ast.Constant | ast.UnaryOp) -> bool:
    """Whether it is a number other than 0."""
    number = value.operand if isinstance(value, ast.UnaryOp) else value
    return isinstance(number, ast.Constant) and type(number.value) is int and number.value != 0
