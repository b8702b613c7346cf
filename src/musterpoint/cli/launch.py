"""``muster launch``: the platform has started this process on every host; run PROGRAM under the right launcher."""

from __future__ import annotations

import argparse
import os
from typing import Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import variable_of
from musterpoint.cli import job
from musterpoint.cli.errors import guarded
from musterpoint.cli.options import OWN_PREFIX, SCRIPT_FLAG, Parser, add_options, read_request, readable_request

EXAMPLES = f"""
The second form is for entry points that get hyperparameters as flags: only {SCRIPT_FLAG} and
{OWN_PREFIX}... are read here, every other flag goes to the script, untouched and in order.

examples:
  muster launch train.py --epochs 3
  muster launch --launcher ranks --slots 4 -m package.train --lr 0.1
  muster launch -f job.toml
  muster launch --epochs 3 {SCRIPT_FLAG} train.py {OWN_PREFIX}slots 4
"""


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster launch`` with ``argv`` (the words after the command); the job's exit code."""
    return guarded(lambda: _run(argv, environ), lambda failure: job.report(failure, environ))


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    try:
        request = read_line(argv, environ)
    except UsageError as error:
        return job.run_wrong(readable_request(_parser, argv, environ), error)
    return job.run(request)


def read_line(argv: Sequence[str], environ: Mapping[str, str]) -> job.Request:
    """The request that ``argv`` is.

    Raises:
        UsageError: it is wrong.
    """
    request, _asked = read_request(_parser, argv, environ)
    if request.program is None and (file := request.given.get("job_file") or environ.get(variable_of("job_file"))):
        from musterpoint.base.job_text import first_program, read_job_text  # 2 ms, for a job's file

        text = read_job_text(file)
        program, arguments, module = first_program(text.values)
        if not program:
            raise UsageError(f"{text.where} names no program: give it `program`, or each of its roles")
        return request._replace(program=program, arguments=arguments, module=module, typed=True)
    if request.program is None:
        raise UsageError(
            "muster launch: no PROGRAM given; expected `muster launch [options] PROGRAM [ARGS...]`, or as an entry "
            "point the hyperparameter train-script (--train-script PROGRAM)"
        )
    return request


def parsers() -> tuple[Parser, ...]:
    """The options, for completion."""
    return (_parser("--"),)


def _parser(prefix: str) -> Parser:
    parser = Parser(
        "muster launch",
        "Run PROGRAM on this host as one of the job's hosts, which the platform has already started.",
        EXAMPLES,
        usage=f"muster launch [options] [--] PROGRAM [ARGS...]\n       muster launch {SCRIPT_FLAG} PROGRAM [FLAGS...]",
    )
    if prefix == "--":
        parser.add_argument("-f", dest="job_file", metavar="FILE", default=argparse.SUPPRESS, help="as --job-file")
    add_options(parser, prefix=prefix)
    return parser
