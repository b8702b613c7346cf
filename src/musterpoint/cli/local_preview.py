"""What ``muster plan --hosts N`` needs of ``muster local``: its options, and the plans of its hosts."""

from __future__ import annotations

import argparse
import os
from typing import Mapping, Sequence

from musterpoint.cli.local import output_of, unheeded
from musterpoint.cli.local_options import job_from, parser, read
from musterpoint.cli.options import Parser
from musterpoint.local.preview import preview_local
from musterpoint.tools.plans.preview import Preview

__all__ = ["parser", "preview"]


def preview(flags: Parser, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[Preview, argparse.Namespace]:
    """The plans of the local job that ``argv`` asks for, and the options as read by ``flags``."""
    command, asked = read(flags, argv)
    job = job_from(command, asked, os.getcwd(), environ)
    backend, made = preview_local(
        job, output_of(job, asked), environ, asked.backend, asked.one_address, asked.internet == "on"
    )
    return made._replace(notes=(*made.notes, *unheeded(job, asked, backend))), asked
