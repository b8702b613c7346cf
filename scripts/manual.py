"""The man page muster(1), written from the commands' own parsers."""

from __future__ import annotations

import argparse
import time
from importlib import import_module

import musterpoint
from musterpoint.cli.main import COMMANDS
from musterpoint.cli.options import Parser

HEAD = """.TH MUSTER 1 "{date}" "musterpoint {version}" "User Commands"
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
The program's own code; 128 and the signal's number where a signal ended it; 64 for a wrong command line, 72 where hosts
or launchers failed, 76 where a host was lost, 143 after a stop.
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


def page(epoch: int) -> str:
    """The man page's source, dated ``epoch``."""
    date = time.strftime("%Y-%m-%d", time.gmtime(epoch))
    parts = [HEAD.format(date=date, version=musterpoint.__version__)]
    for name, entry in COMMANDS.items():
        rows = [row for parser in import_module(entry.module).parsers() for row in options_of(parser)]
        parts.append("\n".join((f".SS muster {escaped(name)}", escaped(entry.help), *dict.fromkeys(rows))) + "\n")
    return "".join((*parts, TAIL))
