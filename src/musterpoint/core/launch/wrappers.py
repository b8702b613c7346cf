"""Finds the command behind ``env``, ``nice``, a shell's ``-c`` and the like."""

from __future__ import annotations

import os
import re
import shlex
from typing import Sequence

from musterpoint.base.executables import SHELLS

_PYTHON = re.compile(r"python[0-9.]*")
_ASSIGNMENT = re.compile(r"\w+=")
_BEFORE = frozenset({"cd", "export", "set", "source", ".", "ulimit", "module", "echo", "mkdir", "unset"})
"""Commands of a shell that only prepare the one behind them."""


_WRAPPERS: dict[str, tuple[int, str]] = {
    "env": (0, "-u --unset -C --chdir"),
    "nice": (0, "-n --adjustment"),
    "timeout": (1, "-k --kill-after -s --signal"),
    "stdbuf": (0, "-i --input -o --output -e --error"),
    "nohup": (0, ""),
    "setsid": (0, ""),
    "exec": (0, "-a"),
    "time": (0, "-f --format -o --output"),
    "ionice": (0, "-c --class -n --classdata"),
    "chrt": (1, ""),
    "taskset": (1, ""),
    "numactl": (0, "-i -m -N -C -p --interleave --membind --cpunodebind --physcpubind"),
    "tini": (0, "-p"),
    "dumb-init": (0, ""),
    "uv": (1, "--python -p --with --project --directory --extra"),
    "conda": (1, "-n --name -p --prefix --cwd"),
}
"""Programs that run the command behind their own words: how many stand before it, and the options with a value."""
_MODULE = re.compile(r"-[bBdEiIOPqsSuv]*m(.*)")
_VALUED_BY_PYTHON = ("-W", "-X", "--check-hash-based-pycs")


def run_by(words: Sequence[str]) -> Sequence[str]:
    """The command, or Python's module, that ``words`` run in the end; the words behind it follow. None: unknown."""
    for _ in words:  # each turn takes words away
        name = os.path.basename(words[0]) if words else ""
        if name in SHELLS:
            words = _of_shell(words[1:])
        elif name in _WRAPPERS:
            words = _behind(words[1:], *_WRAPPERS[name])
        elif _PYTHON.fullmatch(name):
            return _of_python(words[1:])
        else:
            return (name, *words[1:])
    return ()


def _of_python(words: Sequence[str]) -> Sequence[str]:
    """The module, or script's name, of a Python with these ``words``; the words behind it follow."""
    while words and words[0].startswith("-"):
        module = _MODULE.fullmatch(words[0])
        if module is not None:
            return (module[1], *words[1:]) if module[1] else words[1:]
        words = words[1 + (words[0] in _VALUED_BY_PYTHON) :]
    return (os.path.basename(words[0]), *words[1:]) if words else ()


def _behind(words: Sequence[str], operands: int = 0, valued: str = "") -> Sequence[str]:
    """The command behind a wrapper's own ``words``."""
    while words:
        if words[0] in valued.split():
            words = words[1:]
        elif not (words[0].startswith("-") or _ASSIGNMENT.match(words[0])):
            if not operands:
                break
            operands -= 1
        words = words[1:]
    return words


def _of_shell(words: Sequence[str]) -> Sequence[str]:
    """The command that a shell's ``-c`` runs in the end, where its text is no more than a line of commands."""
    at = next((at for at, word in enumerate(words) if not word.startswith("-")), len(words))
    if not at or at == len(words) or not any("c" in word.strip("-") for word in words[:at]):
        return ()
    lexer = shlex.shlex(words[at], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        commands: list[list[str]] = [[]]
        for word in lexer:
            if word in ("&&", ";"):
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError:  # no closing quotation
        return ()
    *before, last = [command for command in commands if command] or [[]]
    if any(command[0] not in _BEFORE and not _ASSIGNMENT.match(command[0]) for command in before):
        return ()
    return _behind(last)
