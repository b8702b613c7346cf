"""``muster plan --hosts N``: what ``muster local`` would run, read from the trees it would make."""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any, Mapping, NamedTuple, Sequence

from musterpoint import settings
from musterpoint.cli.local import job_from, parser
from musterpoint.cli.options import Command, split
from musterpoint.cli.planning import ABOUT, USAGE, Planned, View, add_host_option, plan_views
from musterpoint.errors import UsageError
from musterpoint.job.read import read_job
from musterpoint.local.environment import host_environment
from musterpoint.local.job import LocalJob
from musterpoint.local.tree import Layout, write


class Asked(NamedTuple):
    """The command line, read: ``options`` are those of ``muster local``, and ``host``."""

    command: Command
    options: argparse.Namespace


def read(argv: Sequence[str]) -> Asked | None:
    """None where --hosts is only an argument of the program."""
    made = parser("muster plan", ABOUT, USAGE)
    add_host_option(made)
    command = split(made, argv)
    if not any(word.partition("=")[0] == "--hosts" for word in command.head):
        return None
    return Asked(command, made.parse_args(command.head))


def planned(asked: Asked, environ: Mapping[str, str]) -> Planned:
    """The plans of the local job; the trees lie in a folder that is gone at once, and are shown where they would be."""
    job = job_from(asked.command, asked.options, os.getcwd(), environ)
    if job.container:
        raise UsageError(
            "muster plan --image: a plan follows from what the image has (its Python, torch, mpirun), and that is seen "
            f"only in it: docker run --rm {job.container.image} muster plan ...; or leave --image out to plan for the "
            "Python of this machine"
        )
    output = os.path.abspath(asked.options.output or os.path.join("muster-jobs", job.name))
    with tempfile.TemporaryDirectory(prefix="muster-plan-") as folder:
        plan = plan_views([_view(job, host, Layout(folder), environ) for host in job.hosts], typed=False)
        return plan._replace(plans=moved(plan.plans, folder, output))


def _view(job: LocalJob, host: str, layout: Layout, environ: Mapping[str, str]) -> View:
    write(job, host, layout)
    own = {
        "MUSTER_PLATFORM": "sagemaker", "MUSTER_LOG_DIR": layout.ranks(host), "SAGEMAKER_BASE_DIR": layout.tree(host),
    }  # fmt: skip
    here = host_environment(job, host, environ, own)
    options = settings.from_environ(here)
    return View(read_job(here, options), options, here)


def moved(value: Any, old: str, new: str) -> Any:
    """``value``, of tuples and strings, with the path ``old`` written as ``new`` everywhere."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, tuple):
        parts = [moved(part, old, new) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
