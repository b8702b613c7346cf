"""``muster completion``: a script by which a shell completes commands, options and their values.

shtab writes the script from the commands' own parsers; no Python starts when it completes.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from importlib import import_module
from typing import Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.cli.errors import guarded
from musterpoint.cli.main import COMMANDS
from musterpoint.cli.options import Parser, Value, one_of

ABOUT = "Print a script by which your shell completes muster's commands, options and their values."
USAGE = "muster completion bash|zsh|tcsh"
EXAMPLES = """
The script needs no Python when it completes. In your shell's own file it is printed anew at each start. It takes shtab
(pip install 'musterpoint[cli]').

examples:
  eval "$(muster completion bash)"         this shell; in ~/.bashrc: every one
  eval "$(muster completion zsh)"          likewise, in ~/.zshrc
  muster completion tcsh > ~/.muster.tcsh  for `source ~/.muster.tcsh` in ~/.tcshrc
"""

SHELLS = ("bash", "zsh", "tcsh")
_PROGRAMS = ("launch", "torchrun", "local", "plan", "env")
_LONGEST = 72


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster completion`` with ``argv`` (the words after the command)."""
    return guarded(lambda: _run(argv), anywhere=True)


def _run(argv: Sequence[str]) -> int:
    shell: str = _parser().parse_args(argv).shell
    try:
        import shtab
    except ImportError:
        raise UsageError("muster completion takes shtab: pip install 'musterpoint[cli]'") from None
    sys.stdout.write(shtab.complete(whole_parser(), shell))
    sys.stdout.flush()
    return 0


def parsers() -> tuple[Parser, ...]:
    """The options, for completion."""
    return (_parser(),)


def _parser() -> Parser:
    parser = Parser("muster completion", ABOUT, EXAMPLES, usage=USAGE)
    parser.add_argument("shell", **one_of("SHELL", SHELLS), help=argparse.SUPPRESS)
    return parser


def whole_parser() -> argparse.ArgumentParser:
    """Every command as a part of one parser, with what shtab takes from it: choices, and where files are completed."""
    whole = argparse.ArgumentParser("muster")
    whole.add_argument("--version", action="store_true", help="the version of musterpoint")
    commands = whole.add_subparsers(dest="command")
    for name, entry in COMMANDS.items():
        one = commands.add_parser(name, help=entry.help)
        known = {"-h", "--help"}
        for parser in import_module(entry.module).parsers():
            for action in parser.actions:
                if not known & {*action.option_strings} and (
                    not action.option_strings or action.help != argparse.SUPPRESS
                ):
                    _add(one, action)
                    known.update(action.option_strings)
        if name in _PROGRAMS:
            _completes(one.add_argument("program", nargs="*"), "FILE")
        elif name == "report":
            _completes(one.add_argument("dir", nargs="*"), "DIR")
    return whole


def _add(one: argparse.ArgumentParser, action: argparse.Action) -> None:
    spellings = [flag for flag in action.option_strings if "_" not in flag] or [action.dest]
    about = in_short(str(action.help or ""))
    if action.nargs == 0:
        one.add_argument(*spellings, action="store_true", help=about)
        return
    choices = action.type.choices or None if isinstance(action.type, Value) else None
    metavar = str(action.metavar or action.dest)
    _completes(one.add_argument(*spellings, choices=choices, metavar=metavar, help=about), metavar)


def _completes(action: argparse.Action, metavar: str) -> None:
    """Has shtab offer files or directories, where the value is one."""
    import shtab

    if "FILE" in metavar or metavar == "DIR":
        action.complete = shtab.FILE if "FILE" in metavar else shtab.DIRECTORY  # type: ignore[attr-defined]


def in_short(text: str) -> str:
    """The first clause of a help text, at most 72 characters."""
    first = re.split(r"[;:\[(]", "" if text == argparse.SUPPRESS else text.replace("%%", ""), maxsplit=1)[0].strip()
    return first if len(first) <= _LONGEST else first[: _LONGEST - 3].rsplit(" ", 1)[0] + "..."
