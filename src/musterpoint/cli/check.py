"""``muster check``: look at this host, or at all hosts of the job, before anything starts."""

from __future__ import annotations

import json
import os
import sys
from typing import Mapping, Sequence

from musterpoint.base import exit_codes
from musterpoint.base.console import Console
from musterpoint.base.errors import UsageError
from musterpoint.cli.errors import guarded
from musterpoint.cli.options import Parser, add_options, given
from musterpoint.core.ignored_options import unknown_variables
from musterpoint.core.runtime import Request
from musterpoint.tools.check import show
from musterpoint.tools.check.findings import worst
from musterpoint.tools.check.run import check_hosts

EXAMPLES = """
Alone it looks at this host. Where the platform's variables, or the options that `muster launch` takes, name several
hosts, run it on each of them, as `muster launch`: they meet in a roll call, look at themselves, call one another's
ports and compare what they have; every host prints the same findings and ends with the same code.

Codes: 0 where nothing failed, 78 where something did (with --strict: or is warned about), 64 for a wrong option.

examples:
  muster check                              this host
  muster check --json                       for programs
  muster check --list                       every finding that there is
  MUSTER_CHECK=warn muster launch train.py  the quick part before every launch
"""


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster check`` with ``argv`` (the words after the command)."""
    return guarded(lambda: _run(argv, environ))


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    asked = _parser().parse_args(list(argv))
    if asked.list:
        sys.stdout.write(show.codes_list())
        return exit_codes.OK
    for text in unknown_variables(environ):
        Console(str).say(text)
    checked = check_hosts(Request(environ, given(asked), "check"), tuple(asked.port))
    if asked.json:
        json.dump(show.to_document(checked), sys.stdout, indent=1)
        print(flush=True)
    else:
        show.show(checked, sys.stdout)
    bad = ("warn", "fail") if asked.strict else ("fail",)
    return exit_codes.CHECK if worst(checked.findings) in bad else exit_codes.OK


def parsers() -> tuple[Parser, ...]:
    """The options, for completion."""
    return (_parser(),)


def _parser() -> Parser:
    parser = Parser(
        "muster check",
        "Look at this host, or at all hosts of the job, before anything starts.",
        EXAMPLES,
        usage="muster check [--json] [--strict] [--port P]... [options]",
    )
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    parser.add_argument("--strict", action="store_true", help="warnings fail, too")
    parser.add_argument("--list", action="store_true", help="list every finding that there is, and check nothing")
    parser.add_argument(
        "--port",
        type=_port,
        action="append",
        default=[],
        metavar="P",
        help="call every host at this port, too; may be repeated",
    )
    add_options(parser, leave_out=_OF_PROGRAMS)
    return parser


_OF_PROGRAMS = frozenset(
    {
        "args",
        "installer",
        "log_ranks",
        "log_dir",
        "log_prefix",
        "mpi_options",
        "ray_options",
        "ray_head_options",
        "tf_port",
        "tf_hosts",
        "tf_roles",
        "accelerate_config",
        "local_rank",
        "numa_binding",
        "cuda_compat",
        "launcher",
        "rendezvous",
        "on_failure",
        "outside",
        "on_stall",
        "stall_timeout",
        "stop_grace",
        "stop_signal",
        "stop_exit_code",
        "pid1_watch",
        "check",
        "requirements",
        "max_restarts",
        "restart_on",
        "rejoin_timeout",
        "cpu_binding",
    }
)
"""Options of what a job starts; a check starts nothing."""


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise UsageError(f"--port={text[:80]!r}: expected a port number, 1 to 65535")
    return int(text)
