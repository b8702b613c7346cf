"""The plans of a local job's hosts, for ``muster plan --hosts N``; made from the same trees as ``muster local``."""

from __future__ import annotations

import tempfile
from typing import Any, Mapping

from musterpoint.base import settings
from musterpoint.base.errors import UsageError
from musterpoint.core.code.unwrap import ReadLine
from musterpoint.core.fabric.network_interface import GLOO, NCCL, TENSORPIPE, chosen
from musterpoint.core.job import platforms
from musterpoint.core.job.read import read_job
from musterpoint.core.job.variables import Watched
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.local.backend import BackendName, choose_backend
from musterpoint.local.host_environment import host_environment, threads_of
from musterpoint.local.job_request import LocalJob
from musterpoint.local.platforms import played
from musterpoint.local.platforms.local_platform import PlayedHost
from musterpoint.local.tree import Layout
from musterpoint.tools.plans.preview import HostView, Preview, as_launched, preview, used_variables

ANY_SECRET = "a new one for every job"
"""Stands for the secret that a local job gets; it is never shown."""


def preview_local(
    job: LocalJob,
    output: str,
    environ: Mapping[str, str],
    backend: BackendName | None = None,
    one_address: bool = False,
    internet: bool = False,
    read: ReadLine | None = None,
) -> tuple[BackendName, Preview]:
    """The backend that would make the hosts, and their plans with paths and addresses as they will see them.

    The trees that they are read from are temporary. ``read``: reads command lines of ours.

    Raises:
        UsageError: its hosts are containers, the backend can't be had here, or the program is wrong.
        MusterError: no launcher fits the job.
    """
    if job.container:
        raise UsageError(
            "muster plan --image: a plan follows from what the image has (its Python, torch, mpirun), and that is seen "
            f"only in it: docker run --rm {job.container.image} muster plan ...; or leave --image out to plan for the "
            "Python of this machine"
        )
    hosts = choose_backend(backend, Layout(output), job, one_address, internet)
    with tempfile.TemporaryDirectory(prefix="muster-plan-") as folder:
        layout = Layout(folder)
        views = [_view(job, host, layout, environ, hosts.addresses) for host in job.hosts]
        typed = platforms.load(job.platform).own_program is None  # such a platform runs `muster launch PROGRAM`
        launched = [as_launched(view, typed, {}, read) for view, _ in views]
        views = [(view, watched) for (view, _), (_, watched) in zip(launched, views, strict=True)]
        made = preview([view for view, _ in launched], launched[0][1], addresses=hosts.addresses, names=job.hosts)
        used = used_variables(views[0][0].job, views[0][1], made.plans[0])

        def seen(value: Any, host: str) -> Any:
            return moved(moved(value, layout.tree(host), hosts.tree(host)), folder, output)

        leader = hosts.addresses[job.hosts[0]] if len(job.hosts) > 1 else ""
        plans = tuple(
            _on(hosts.interface, leader, seen(plan, plan.host), view.environ)
            for plan, (view, _) in zip(made.plans, views)
        )
        ports = "" if hosts.interface else "; they share its ports, so free ones are chosen at the start"
        count = f"{len(job.hosts)} local host{'s' if len(job.hosts) > 1 else ''}"
        own = f"at the start every host gets its own copy of {job.source_dir}"
        notes = (*made.notes, own, f"{count}, {hosts.name}: {hosts.about}{ports}")
        return hosts.name, made._replace(plans=plans, used=seen(used, job.hosts[0]), notes=notes)


def _on(interface: str, leader: str, plan: LaunchPlan, environ: Mapping[str, str]) -> LaunchPlan:
    """``plan`` for a host that reaches the others by ``interface``; empty: it has this machine's interfaces.

    What this machine's own routes gave is replaced: it may have another interface toward ``leader``, or none.
    """
    if not interface:
        return plan
    kept = [each for each in plan.environment if each.name not in (NCCL, GLOO, TENSORPIPE)]
    its = chosen(interface, (interface,), leader, environ) if leader else ()
    return plan._replace(environment=(*kept, *its))


def _view(
    job: LocalJob, host: str, layout: Layout, environ: Mapping[str, str], addresses: Mapping[str, str]
) -> tuple[HostView, Watched]:
    """A host's view, and its variables, of which those that the job is read from were looked up."""
    platform = played(job.platform)
    platform.prepare(job, host, layout)
    own = {
        **threads_of(job, environ),
        "MUSTER_LOG_DIR": layout.ranks(host),
        "MUSTER_SECRET": ANY_SECRET,
        settings.CODE_COPY_OF: job.source_dir,
    }
    here = PlayedHost(job, host, layout, addresses, layout.tree(host), own)
    seen = platform.seen(here) if platform.seen else platform.processes(here)[0].environment
    variables = {**host_environment(job, host, environ, platform.environment(here), here.own), **seen}
    options, watched = settings.from_environ(variables), Watched(variables)
    if platforms.load(job.platform).own_program is not None:
        return HostView(read_job(watched, options), options, variables), watched
    made = read_job(watched, options, "", job.program, job.arguments, job.module)
    code = platform.processes(here)[0].cwd
    return HostView(made._replace(paths=made.paths._replace(code=code)), options, variables), watched


def moved(value: Any, old: str, new: str) -> Any:
    """``value``, of tuples and strings, with the path ``old`` written as ``new`` everywhere."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, tuple):
        parts = [moved(part, old, new) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
