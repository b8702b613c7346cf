"""``muster completion``: a script by which a shell completes commands, options and their values.

The script is static: it is made from the commands' own parsers, and no Python starts when it completes.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from importlib import import_module
from typing import Mapping, Sequence

from musterpoint.cli.errors import guarded
from musterpoint.cli.main import COMMANDS
from musterpoint.cli.options import Parser, Value, one_of
from musterpoint.cli.shells import WRITERS, Argument, CommandLine, Flag, Kind

ABOUT = "Print a script by which your shell completes muster's commands, options and their values."
USAGE = "muster completion bash|zsh|fish"
EXAMPLES = """
The script needs no Python when it completes. In your shell's own file it is printed anew at each start.

examples:
  source <(muster completion bash)         this shell; in ~/.bashrc: every one
  source <(muster completion zsh)          likewise, in ~/.zshrc
  muster completion fish | source          likewise, in ~/.config/fish/config.fish
"""

SHELLS = tuple(WRITERS)
_PROGRAMS = ("launch", "torchrun", "local", "plan", "env")
_LONGEST = 72


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster completion`` with ``argv`` (the words after the command)."""
    return guarded(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    shell: str = _parser().parse_args(argv).shell
    sys.stdout.write(WRITERS[shell](command_lines()))
    sys.stdout.flush()
    return 0


def parsers() -> tuple[Parser, ...]:
    """The options, for completion."""
    return (_parser(),)


def _parser() -> Parser:
    parser = Parser("muster completion", ABOUT, EXAMPLES, usage=USAGE)
    parser.add_argument("shell", **one_of("SHELL", SHELLS), help=argparse.SUPPRESS)
    return parser


def command_lines() -> tuple[CommandLine, ...]:
    """Every command, as its own parsers read it."""
    return tuple(_command_line(name) for name in COMMANDS)


def _command_line(name: str) -> CommandLine:
    flags: dict[str, Flag] = {}
    for parser in import_module(COMMANDS[name].module).parsers():
        for action in parser.actions:
            if action.option_strings:
                flags.setdefault(action.option_strings[-1], _flag(action))
    argument: Argument = "program" if name in _PROGRAMS else "none"
    choices: tuple[str, ...] = ()
    if name == "report":
        argument = "directory"
    elif name == "completion":
        argument, choices = "choice", SHELLS
    return CommandLine(name, COMMANDS[name].help, tuple(flags.values()), argument, choices)


def _flag(action: argparse.Action) -> Flag:
    spellings = tuple(flag for flag in action.option_strings if "_" not in flag)
    choices = action.type.choices if isinstance(action.type, Value) else ()
    metavar = str(action.metavar or "")
    kind: Kind = "text"
    if action.nargs in (0, "?"):
        kind = "switch"
    elif choices:
        kind = "choice"
    elif "FILE" in metavar:
        kind = "file"
    elif metavar == "DIR":
        kind = "directory"
    return Flag(spellings, kind, choices, in_short(str(action.help or "")))


def in_short(text: str) -> str:
    """The first clause of a help text, at most 72 characters."""
    first = re.split(r"[;:\[(]", "" if text == argparse.SUPPRESS else text.replace("%%", "%"), maxsplit=1)[0].strip()
    return first if len(first) <= _LONGEST else first[: _LONGEST - 3].rsplit(" ", 1)[0] + "..."
