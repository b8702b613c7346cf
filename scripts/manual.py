"""The man page muster(1), from the commands' own parsers. scripts/docs writes it to src/muster.1; the wheel has it."""

from __future__ import annotations

import argparse
from importlib import import_module

import musterpoint
from musterpoint.cli.main import COMMANDS
from musterpoint.cli.options import Parser

HEAD = """.TH MUSTER 1 "" "musterpoint {version}" "User Commands"
.SH NAME
muster \\- start distributed training jobs, on every host at once
.SH SYNOPSIS
.B muster
.I COMMAND
[\\fIoptions\\fR] [\\fIPROGRAM\\fR [\\fIARGS\\fR...]]
.SH DESCRIPTION
musterpoint waits until every host of a job is there, starts the right launcher on each, and watches the ranks. When the
job fails, every host ends at once, and the platform is told which error on which rank came first.
.PP
.B muster local \\-\\-demo
shows it on this machine.
.SH COMMANDS
"""
TAIL = """.SH ENVIRONMENT
Every option of
.B muster launch
is also a variable, such as
.B MUSTER_STOP_GRACE
for
.BR \\-\\-stop\\-grace .
.SH EXIT STATUS
The program's own code; 128 and the signal's number where a signal ended it; 64 for a wrong command line or setting, 69
where not every host was there in time, 70 for an error of musterpoint's own, 71 where code, packages or data couldn't
be fetched, 72 where the launcher can't start, 74 after a stall, 76 where a host was lost, 143 after a stop.
"""


def escaped(text: str) -> str:
    """``text`` for troff: no hyphens that it could break at, no requests at the beginning of a line."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").split("\n")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def options_of(parser: Parser) -> list[str]:
    """An entry for each option of ``parser``."""
    rows = []
    for action in parser.actions:
        if not action.option_strings or action.help == argparse.SUPPRESS:
            continue
        flags = [flag for flag in action.option_strings if "_" not in flag]
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        value = f" \\fI{escaped(metavar)}\\fR" if metavar and action.nargs != 0 else ""
        text = " ".join((action.help or "").replace("%%", "%").split())
        rows.append(f".TP\n\\fB{', '.join(map(escaped, flags))}\\fR{value}\n{escaped(text)}")
    return rows


def page() -> str:
    """The man page's source; without a date, so that the same options make the same page."""
    parts = [HEAD.format(version=musterpoint.__version__)]
    for name, entry in COMMANDS.items():
        rows = [row for parser in import_module(entry.module).parsers() for row in options_of(parser)]
        parts.append("\n".join((f".SS muster {escaped(name)}", escaped(entry.help), *dict.fromkeys(rows))) + "\n")
    return "".join((*parts, TAIL))
