"""``muster plan``: what every host would run, and why. Starts nothing and needs no network."""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Mapping, Sequence

from musterpoint import settings
from musterpoint.cli.errors import guarded
from musterpoint.cli.options import Command, Parser, add_options, given, read
from musterpoint.cli.planning import ABOUT, USAGE, Planned, add_host_option, plan_views, views_of
from musterpoint.errors import UsageError
from musterpoint.job.read import platform_here, read_job
from musterpoint.job.sagemaker import base_of, paths_of
from musterpoint.launch.explain import to_json, to_text

EXAMPLES = """
Without PROGRAM: the job of this container, as `train` would run it. With PROGRAM: as `muster launch`
would; with --hosts N, as `muster local` would, with all of its options (`muster plan --hosts N --help`).

examples:
  muster plan
  muster plan --host algo-2 --json
  muster plan --hosts 2 --slots 4 train.py --epochs 3
"""


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Runs ``muster plan`` with ``argv`` (the words after the command)."""
    return guarded(lambda: _run(argv, environ))


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    if any(word.partition("=")[0] == "--hosts" for word in argv):
        plan_local = _plan_local()
        local = plan_local.read(argv)
        if local is not None:
            return _show(plan_local.planned(local, environ), local.options, environ)
    command, asked = read(_parser, argv)
    return _show(planned(command, given(asked), environ), asked, environ)


def _plan_local() -> ModuleType:
    try:
        return import_module("musterpoint.cli.plan_local")
    except ModuleNotFoundError:
        raise UsageError(
            "muster plan --hosts: local jobs are not part of the one-file launcher; they need the installed package"
        ) from None


def planned(command: Command, told: Mapping[str, Any], environ: Mapping[str, str]) -> Planned:
    """The plans of the job that this container, or the program of ``command``, is."""
    options = settings.from_environ(environ, told)
    base = base_of(environ)
    if not command.program and options.platform == "auto" and platform_here(base, environ) == "plain":
        raise UsageError(
            f"there is no job here to plan: {paths_of(base).input_config} has none, and no PROGRAM was given; for a "
            "job of this machine run `muster plan --hosts 2 PROGRAM`"
        )
    job = read_job(environ, options, "", command.program or None, command.arguments, command.module)
    return plan_views(views_of(job, options, environ), typed=bool(command.program))._replace(job=job)


def _show(planned: Planned, asked: argparse.Namespace, environ: Mapping[str, str]) -> int:
    if asked.host and asked.host not in planned.job.hosts:
        raise UsageError(f"--host={asked.host}: no host of this job; expected one of {', '.join(planned.job.hosts)}")
    plans = [plan for plan in planned.plans if asked.host in ("", plan.host)]
    masker = planned.masker(environ)
    if asked.json:
        json.dump(to_json(plans, planned.headline, planned.notes, masker), sys.stdout, indent=1)
        print(flush=True)
    else:
        print(to_text(plans, planned.headline, planned.notes, masker), end="", flush=True)
    return 0


def _parser(prefix: str) -> Parser:
    parser = Parser(
        "muster plan",
        ABOUT,
        EXAMPLES,
        usage=USAGE,
    )
    add_host_option(parser, prefix)
    parser.add_argument(prefix + "json", action="store_true", help="as JSON, for programs")
    add_options(parser, prefix=prefix)
    return parser
