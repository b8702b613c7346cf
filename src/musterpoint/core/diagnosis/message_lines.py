"""How many of the lines from an exception's first on are its message; the program, or another one, printed the rest."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Sequence

MESSAGE_LINES = 6
"""At most so many lines of one exception's message are kept."""
_ONE_LINE = re.compile(
    r"(?:Attribute|BrokenPipe|Connection(?:Refused|Reset)|EOF|File(?:Exists|NotFound)|Index|IsADirectory|ModuleNotFound"
    r"|Name|NotADirectory|Overflow|Permission|Recursion|Type|UnboundLocal|Unicode(?:De|En)code|Value|ZeroDivision)Error:"
    r"|StopIteration"
)
"""What Python itself raises with one line of text."""
_RAISES = re.compile(r"\b(?:raise|assert)\b")
_ADDED = re.compile(
    r"(?:CUDA|HIP) kernel errors might be|For debugging consider passing |Compile with |Search for |Last error:"
    r"|nccl\w+: "
)
"""What torch adds to the first line of an error of CUDA or NCCL."""
_OF_A_TOOL = re.compile(
    r"[\w./+-]+: .*(?:No such file or directory|Permission denied|not found|No space left on device|syntax error.*)$"
    r"|\S+: line \d+: "
)
"""What a shell or one of its tools says of its own failure."""
_ALWAYS_ONE_LINE = re.compile(r"(?:KeyError|json\.decoder\.JSONDecodeError|subprocess\.\w+): ")


def lines_of_message(message: Sequence[str], code: str, before: Sequence[str], inline: bool = False) -> int:
    """How many of ``message``, the lines from an exception's first one on, are its own.

    The statement ``code`` that raised it tells, or that none did but Python itself. Else lines aren't which come again,
    or came ``before``. Indented lines always are. Of ``inline`` code nothing tells what it raised, and a shell
    script that has it prints on: its message has one line, and what CUDA adds.
    """
    plain = [at for at in range(1, len(message)) if message[at].strip() and not message[at][:1].isspace()]
    if not plain:
        return len(message)
    given = lines_given(code, message[0])
    goes_on = message[0].endswith((":", ",", "{", "(", "["))
    if given is None and inline and not code:
        return next((at for at in plain[goes_on and plain[0] == 1 :] if not _ADDED.match(message[at])), len(message))
    if given is None and goes_on:
        return len(message)
    if given is not None:
        return min([at for at in plain if at >= given] or [len(message)])
    shapes = [shape_of(message[at]) for at in plain]
    earlier = {shape_of(text) for text in before}
    others = (
        at
        for at, shape in zip(plain, shapes)
        if shape in earlier or shapes.count(shape) > 1 or _OF_A_TOOL.match(message[at])
    )
    return next(others, len(message))


def parsed(text: str) -> ast.Module | None:
    """``text`` as Python reads it, which may warn of it; None: it is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def shape_of(text: str) -> str:
    """A line with all numbers as 0."""
    return re.sub(r"\d+", "0", text.strip())


def lines_given(code: str, printed: str) -> int | None:
    """Lines of the exception that begins with ``printed``, by the statement ``code``; None if unknown."""
    if _ALWAYS_ONE_LINE.match(printed) or (code and _ONE_LINE.match(printed) and not _RAISES.search(code)):
        return 1
    try:
        return _lines_of_statement(code, printed)
    except RecursionError:  # an expression of a thousand terms
        return None


def _lines_of_statement(code: str, printed: str) -> int | None:
    at = _RAISES.search(code)
    module = parsed(code[at.start() :]) if at else None
    if module is None or len(module.body) != 1:
        return None
    statement = module.body[0]
    if isinstance(statement, ast.Raise) and isinstance(statement.exc, (ast.Name, ast.Attribute)):
        name = statement.exc.attr if isinstance(statement.exc, ast.Attribute) else statement.exc.id
        return 1 if name[:1].isupper() else None  # a class, not an exception that was made elsewhere
    if isinstance(statement, ast.Assert):
        given = [statement.msg] if statement.msg else []
    elif isinstance(statement, ast.Raise) and isinstance(statement.exc, ast.Call):
        given = statement.exc.args
    else:
        return None
    whole = _text(given[0]) if len(given) == 1 else "\n".join(map(_text, given)).replace("\n", _VALUE) if given else ""
    if _UNKNOWN in whole or re.split(f"[{_VALUE}\n]", whole.strip("\n"))[0].strip() not in printed:
        return None
    return whole.strip("\n").count("\n") + 1


_VALUE, _UNKNOWN = "\0", "\1"
_LONG = re.compile(r"(?i)\be\b|err|exc|out|log|text|msg|message|trace|report|join|\n")


def _text(given: ast.expr) -> str:
    """A text as the source has it, with a sign for each value in it, and another one for what may have any length."""
    if isinstance(given, ast.Constant):
        return given.value if isinstance(given.value, str) else _VALUE
    if isinstance(given, ast.JoinedStr):
        return "".join(map(_text, given.values))
    if isinstance(given, ast.FormattedValue):
        return _VALUE if given.conversion == ord("r") or not _LONG.search(ast.unparse(given.value)) else _UNKNOWN
    if isinstance(given, ast.BinOp) and isinstance(given.op, ast.Mod) and isinstance(given.left, ast.Constant):
        return _PERCENT.sub(_of_values(given.right), str(given.left.value))
    if isinstance(given, ast.BinOp) and isinstance(given.op, ast.Add):
        return _text(given.left) + _text(given.right)
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "format":
        values = _of_values(ast.Tuple([*given.args, *(each.value for each in given.keywords)]))
        return _BRACES.sub(values, _text(given.func.value))
    return _UNKNOWN


_PERCENT, _BRACES = re.compile(r"%[^a-zA-Z%]*[a-zA-Z]"), re.compile(r"\{[^}]*\}")


def _of_values(given: ast.expr) -> str:
    return _UNKNOWN if _LONG.search(ast.unparse(given)) else _VALUE
