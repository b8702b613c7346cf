"""The plans of a local job's hosts, for ``muster plan --hosts N``; made from the same trees as ``muster local``."""

from __future__ import annotations

import tempfile
from typing import Any, Mapping

from musterpoint import settings
from musterpoint.errors import UsageError
from musterpoint.job.read import read_job
from musterpoint.local.environment import host_environment
from musterpoint.local.job import LocalJob
from musterpoint.local.tree import Layout, write
from musterpoint.preview import HostView, Preview, preview


def preview_local(job: LocalJob, output: str, environ: Mapping[str, str]) -> Preview:
    """The plans of the local job. The trees are temporary; paths are shown as if they were below ``output``.

    Raises:
        UsageError: its hosts are containers, or the program is wrong.
        MusterError: the launcher can't be used here.
    """
    if job.container:
        raise UsageError(
            "muster plan --image: a plan follows from what the image has (its Python, torch, mpirun), and that is seen "
            f"only in it: docker run --rm {job.container.image} muster plan ...; or leave --image out to plan for the "
            "Python of this machine"
        )
    with tempfile.TemporaryDirectory(prefix="muster-plan-") as folder:
        made = preview([_view(job, host, Layout(folder), environ) for host in job.hosts], typed=False)
        return made._replace(plans=moved(made.plans, folder, output))


def _view(job: LocalJob, host: str, layout: Layout, environ: Mapping[str, str]) -> HostView:
    write(job, host, layout)
    own = {
        "MUSTER_PLATFORM": "sagemaker", "MUSTER_LOG_DIR": layout.ranks(host), "SAGEMAKER_BASE_DIR": layout.tree(host),
    }  # fmt: skip
    here = host_environment(job, host, environ, own)
    options = settings.from_environ(here)
    return HostView(read_job(here, options), options, here)


def moved(value: Any, old: str, new: str) -> Any:
    """``value``, of tuples and strings, with the path ``old`` written as ``new`` everywhere."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, tuple):
        parts = [moved(part, old, new) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
