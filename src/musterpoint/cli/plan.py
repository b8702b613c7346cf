"""``muster plan``: what every host would run, and why. Starts nothing and needs no network."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.base.spellings import Typed
from musterpoint.base.terminal import colours, width
from musterpoint.cli.errors import guarded
from musterpoint.cli.job import read_line
from musterpoint.cli.options import Parser, add_options, has_option, read_request, split
from musterpoint.core.code.misplaced_options import behind_the_program
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.tools.plans.drawing import Style, draw
from musterpoint.tools.plans.page import page_of, to_json
from musterpoint.tools.plans.preview import Preview, preview_request, with_data

ABOUT = "Show what every host of the job would run, each flag and variable with its reason. Starts nothing."
USAGE = "muster plan [--host NAME] [--all] [--json] [--hosts N] [options] [--] [PROGRAM [ARGS...]]"
HOSTS = "--hosts"
"""With this option the plan is that of ``muster local``."""
EXAMPLES = """
Without PROGRAM: the job of this container, as `train` would run it. With PROGRAM: as `muster launch`
would; with --hosts N, as `muster local` would, with all of its options (`muster plan --hosts N --help`).

examples:
  muster plan
  muster plan --host algo-2 --json
  muster plan --hosts 2 --slots 4 train.py --epochs 3
  muster plan -f job.toml
"""


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster plan`` with ``argv`` (the words after the command)."""
    return guarded(lambda: _run(argv, environ))


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    if has_option(HOSTS, argv) or has_option("-f", argv):
        shown = _run_local(argv, environ)
        if shown is not None:
            return shown
    request, asked = read_request(_parser, argv, environ)
    line = request.line
    if line is not None and has_option(HOSTS, argv):
        from musterpoint.cli.local_command_line import flags_taken

        line = line._replace(flags={**flags_taken(), **line.flags})
    return _show(with_data(with_line(preview_request(request, read_line), line), request), asked, environ)


def _run_local(argv: Sequence[str], environ: Mapping[str, str]) -> int | None:
    """Shows a local job's plans; None where --hosts is only an argument of the program."""
    try:
        from musterpoint.cli.local import preview
        from musterpoint.cli.local_command_line import parser
    except ModuleNotFoundError:
        raise UsageError(
            "muster plan --hosts: local jobs are not part of the one-file launcher; they need the installed package"
        ) from None
    flags = parser("muster plan", ABOUT, USAGE, EXAMPLES)
    _add_own(flags)
    command = split(flags, argv)
    if not has_option(HOSTS, command.head) and not has_option("-f", command.head):
        return None
    return _show(*preview(flags, argv, environ), environ)


def _show(preview: Preview, asked: argparse.Namespace, environ: Mapping[str, str]) -> int:
    if asked.host and asked.host not in preview.job.hosts:
        raise UsageError(f"--host={asked.host}: no host of this job; expected one of {', '.join(preview.job.hosts)}")
    plans = [plan for plan in preview.plans if asked.host in ("", plan.host)]
    if asked.json:
        masker = preview.masker(environ)
        shown = to_json(plans, preview.headline, preview.notes, masker, preview.used, preview.lacks)
        json.dump(shown, sys.stdout, indent=1)
        print(flush=True)
    else:
        show(preview, plans, environ, asked.all)
    return 0


def with_line(preview: Preview, line: Typed | None) -> Preview:
    """``preview`` with what is to be said of options that stand behind the program in ``line``."""
    if line is None:
        return preview
    path = os.path.join(preview.job.paths.code, preview.job.entry_point.program)
    return preview._replace(notes=(*preview.notes, *behind_the_program(path, preview.job.arguments, line)))


def show(preview: Preview, plans: Sequence[LaunchPlan], environ: Mapping[str, str], everything: bool = False) -> None:
    """Prints the page of a job, with these ``plans`` of its hosts on it."""
    masker = preview.masker(environ)
    page = page_of(preview.subject, preview.plans, plans, preview.notes, masker, preview.used, everything)
    print(draw(page, Style(width(1, environ), colours(1, environ))), end="", flush=True)


def parsers() -> tuple[Parser, ...]:
    """The options, for completion: those of this command, and of local jobs."""
    from musterpoint.cli.local_command_line import parser

    return _parser("--"), parser("muster plan", ABOUT, USAGE, EXAMPLES)


def _parser(prefix: str) -> Parser:
    parser = Parser("muster plan", ABOUT, EXAMPLES, usage=USAGE)
    _add_own(parser, prefix)
    parser.add_argument(prefix + "json", dest="json", action="store_true", help="as JSON, for programs")
    add_options(parser, prefix=prefix)
    return parser


def _add_own(parser: argparse.ArgumentParser, prefix: str = "--") -> None:
    add = parser.add_argument
    add(prefix + "host", dest="host", default="", metavar="NAME", help="show this host only [all]")
    add(prefix + "all", dest="all", action="store_true", help="every host whole, and the platform's variables")
