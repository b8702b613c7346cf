"""The plans of a local job's hosts, for ``muster plan --hosts N``; made from the same trees as ``muster local``."""

from __future__ import annotations

import tempfile
from typing import Any, Mapping

from musterpoint import settings
from musterpoint.errors import UsageError
from musterpoint.job.read import read_job
from musterpoint.job.variables import Watched
from musterpoint.local.environment import host_environment
from musterpoint.local.job import LocalJob
from musterpoint.local.netns_hosts import address_of
from musterpoint.local.platforms.platform import PlayedHost
from musterpoint.local.platforms.table import played
from musterpoint.local.tree import Layout
from musterpoint.preview import HostView, Preview, preview, used_variables

ANY_SECRET = "a new one for every job"
"""Stands for the secret that a local job gets; it is never shown."""


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
        views = [_view(job, host, Layout(folder), environ) for host in job.hosts]
        made = preview([view for view, _ in views], typed=False)
        used = used_variables(views[0][0].job, views[0][1], made.plans[0])
        return made._replace(plans=moved(made.plans, folder, output), used=moved(used, folder, output))


def _view(job: LocalJob, host: str, layout: Layout, environ: Mapping[str, str]) -> tuple[HostView, Watched]:
    """A host's view, and its variables, of which those that the job is read from were looked up."""
    platform = played(job.platform)
    platform.prepare(job, host, layout)
    addresses = {name: address_of(index) for index, name in enumerate(job.hosts, 1)}
    own = {"MUSTER_LOG_DIR": layout.ranks(host), "MUSTER_SECRET": ANY_SECRET}
    here = PlayedHost(job, host, layout, addresses, layout.tree(host), own)
    seen = platform.seen(here) if platform.seen else platform.processes(here)[0].environment
    variables = {**host_environment(job, host, environ, platform.environment(here), here.own), **seen}
    options, watched = settings.from_environ(variables), Watched(variables)
    if job.platform == "sagemaker":
        return HostView(read_job(watched, options), options, variables), watched
    made = read_job(watched, options, "", job.program, job.arguments, job.module)
    return HostView(made._replace(paths=made.paths._replace(code=job.source_dir)), options, variables), watched


def moved(value: Any, old: str, new: str) -> Any:
    """``value``, of tuples and strings, with the path ``old`` written as ``new`` everywhere."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, tuple):
        parts = [moved(part, old, new) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
