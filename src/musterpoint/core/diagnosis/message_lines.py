"""How many of the lines from an exception's first on are its message; the program, or another one, printed the rest."""

from __future__ import annotations

import ast
import re
from typing import Sequence

_ONE_LINE = re.compile(
    r"(?:Attribute|BrokenPipe|Connection(?:Refused|Reset)|EOF|File(?:Exists|NotFound)|Index|IsADirectory|ModuleNotFound"
    r"|Name|NotADirectory|Overflow|Permission|Recursion|Type|UnboundLocal|Unicode(?:De|En)code|Value|ZeroDivision)Error:"
    r"|KeyError: |StopIteration"
)
"""What Python itself raises with one line of text."""
_RAISES = re.compile(r"\b(?:raise|assert)\b")
_TO_COME = re.compile(r":\s*\0\s*$")
"""Behind a colon, a value may be as long as what another program printed."""


def lines_of_message(message: Sequence[str], code: str, before: Sequence[str]) -> int:
    """How many of ``message``, the lines from an exception's first one on, are its own.

    The statement ``code`` that raised it tells, or that none did but Python itself. Else lines aren't which come again,
    or came ``before``. Indented lines always are.
    """
    plain = [at for at in range(1, len(message)) if message[at].strip() and not message[at][:1].isspace()]
    if not plain:
        return len(message)
    given = _lines_given(code, message[0])
    if given is None and message[0].endswith((":", ",", "{", "(", "[")):
        return len(message)
    if given is None and code and _ONE_LINE.match(message[0]) and not _RAISES.search(code):
        given = 1
    if given is not None:
        return min([at for at in plain if at >= given] or [len(message)])
    shapes = [shape_of(message[at]) for at in plain]
    earlier = {shape_of(text) for text in before}
    others = (at for at, shape in zip(plain, shapes) if shape in earlier or shapes.count(shape) > 1)
    return next(others, len(message))


def shape_of(text: str) -> str:
    """A line with all numbers as 0."""
    return re.sub(r"\d+", "0", text.strip())


def _lines_given(code: str, printed: str) -> int | None:
    """How many lines the statement ``code`` gives to the exception whose first line is ``printed``; None if unknown."""
    at = re.search(r"\b(?:raise|assert)\b", code)
    try:
        (statement,) = ast.parse(code[at.start() :]).body if at else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if isinstance(statement, ast.Assert):
        given = statement.msg
    elif isinstance(statement, ast.Raise) and isinstance(statement.exc, ast.Call) and len(statement.exc.args) <= 1:
        given = statement.exc.args[0] if statement.exc.args else None
    elif isinstance(statement, ast.Raise) and isinstance(statement.exc, (ast.Name, ast.Attribute)):
        name = statement.exc.attr if isinstance(statement.exc, ast.Attribute) else statement.exc.id
        return 1 if name[:1].isupper() else None  # a class, not an exception that was made elsewhere
    else:
        return None
    text = "" if given is None else _text(given)
    if text is None or text.split("\0")[0].strip().split("\n")[0] not in printed:
        return None
    whole = text.strip("\n")
    if "\0" not in whole:
        return whole.count("\n") + 1
    return 1 if "\n" not in whole and not _TO_COME.search(whole) else None


def _text(given: ast.expr) -> str | None:
    """A text as the source has it, with NUL for each value in it; None: it isn't known."""
    if isinstance(given, ast.Constant):
        return given.value if isinstance(given.value, str) else "\0" if isinstance(given.value, int) else None
    if isinstance(given, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in given.values)
    if isinstance(given, ast.BinOp) and isinstance(given.left, ast.Constant) and isinstance(given.left.value, str):
        return re.sub(r"%[^a-zA-Z%]*[a-zA-Z]", "\0", given.left.value) if isinstance(given.op, ast.Mod) else None
    return None
