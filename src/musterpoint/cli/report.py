"""``muster report``: the timeline of a finished job, to look at."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.base.terminal import colours
from musterpoint.cli.errors import guarded
from musterpoint.cli.options import Parser
from musterpoint.core.code.project import LOCAL_JOBS
from musterpoint.tools.viewer.history import newest_job, read_history
from musterpoint.tools.viewer.page import to_html
from musterpoint.tools.viewer.perfetto import to_perfetto
from musterpoint.tools.viewer.text import to_text

ABOUT = "Show the timeline of a finished job: where the time went, what failed first and who heard of it when."
USAGE = "muster report [--all] [--html FILE] [--perfetto FILE] DIR [DIR...]"
EXAMPLES = """
DIR is what a job left: muster-jobs/NAME of `muster local`, or of `muster launch` on machines of one's own; or what the
entry point left on a platform's host (/opt/ml/output), one for each host. Of several starts the newest is shown.

examples:
  muster report muster-jobs/train-2026-11-22-12-00-00-123            tables, in the terminal
  muster report --html report.html muster-jobs/train-…              one page for a browser, without network
  muster report --perfetto trace.json muster-jobs/train-…           open it at ui.perfetto.dev
  muster report host-1/output host-2/output                         what two hosts of a platform left
"""


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster report`` with ``argv`` (the words after the command)."""
    return guarded(lambda: _run(argv, environ))


def parsers() -> tuple[Parser, ...]:
    """The options, for completion."""
    return (_parser(),)


def _parser() -> Parser:
    parser = Parser("muster report", ABOUT, EXAMPLES, usage=USAGE)
    parser.add_argument("directories", nargs="*", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--all", action="store_true", help="every event, not only the main ones")
    parser.add_argument("--html", default="", metavar="FILE", help="write a page for a browser (- for stdout)")
    parser.add_argument("--perfetto", default="", metavar="FILE", help="write a trace for Perfetto (- for stdout)")
    return parser


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    asked = _parser().parse_args(argv)
    if not asked.directories:
        newest = newest_job(".")
        near = f"the newest here is {newest}" if newest else f"there is no {LOCAL_JOBS} here"
        raise UsageError(f"muster report: no DIR given, the directory that a job left; {near}")
    history = read_history(asked.directories)
    if asked.html:
        _write(asked.html, to_html(history))
    if asked.perfetto:
        _write(asked.perfetto, to_perfetto(history))
    if not asked.html and not asked.perfetto:
        sys.stdout.write(to_text(history, asked.all, colours(1, environ)))
        sys.stdout.flush()
    return 0


def _write(file: str, text: str) -> None:
    if file == "-":
        sys.stdout.write(text)
        return
    try:
        with open(file, "w", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise UsageError(f"{file} can't be written: {error.strerror}") from None
    print(f"wrote {file}", file=sys.stderr)
