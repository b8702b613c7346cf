"""Options of ``muster local`` alone that are given and have no effect for this job, with the reason.

Those of the job are in :mod:`musterpoint.core.ignored_options`. A contradiction is refused where it is read.
"""

from __future__ import annotations

from typing import Callable, Mapping, NamedTuple

from musterpoint.core.launch.launchers import find_launcher
from musterpoint.local.job_request import LocalJob
from musterpoint.local.platforms import played


class Given(NamedTuple):
    """A job, the ``backend`` that makes its hosts, and what was given for ``--host-names``, ``--one-address``,
    ``--requirements`` and ``--internet``.
    """

    job: LocalJob
    backend: str
    naming: str = "algo"
    one_address: bool = False
    requirements: str = ""
    internet: bool = False


def _host_names(given: Given) -> str:
    if given.naming == "algo" or played(given.job.platform).namings:
        return ""
    return f"hosts of --platform {given.job.platform} are called as there, such as {given.job.hosts[0]}"


def _one_address(given: Given) -> str:
    if not given.one_address or given.backend == "process":
        return ""
    return f"every host of --backend {given.backend} has an address of its own; --backend process can do with one"


def _internet(given: Given) -> str:
    if not given.internet or given.backend == "netns":
        return ""
    return f"hosts of --backend {given.backend} can reach what this machine can, without it"


def _host_slots(given: Given) -> str:
    launcher = given.job.options.get("MUSTER_LAUNCHER", "")
    if not given.job.host_slots or launcher in ("", "auto") or not find_launcher(launcher).once:
        return ""
    return f"--launcher {launcher} starts the program once per host; --launcher torchrun or ranks one rank per slot"


def _slots(given: Given) -> str:
    if not given.job.host_slots or "MUSTER_SLOTS" not in given.job.options:
        return ""
    return "--host-slots says how many each host has; leave one of the two out"


def _requirements(given: Given) -> str:
    if not given.requirements or given.job.options.get("MUSTER_INSTALLER") != "none":
        return ""
    return "--installer none installs nothing; leave it out, or pass --installer pip"


def _sharded(given: Given) -> str:
    return "one host gets every file of a channel" if given.job.sharded and len(given.job.hosts) == 1 else ""


def _debug(given: Given) -> str:
    job = given.job
    slots = int(job.options.get("MUSTER_SLOTS", 0))
    ranks = sum(job.host_slots) or len(job.hosts) * slots
    if job.debug is None or not ranks or job.debug < ranks:
        return ""
    return f"the job has {ranks} rank{'s' if ranks > 1 else ''}, counted from 0; none of them gets this terminal"


CONDITIONS: Mapping[str, Callable[[Given], str]] = {
    "--host-names": _host_names,
    "--one-address": _one_address,
    "--internet": _internet,
    "--host-slots": _host_slots,
    "--slots": _slots,
    "--requirements": _requirements,
    "--sharded": _sharded,
    "--debug": _debug,
}
"""Options that have no effect under some conditions: what says why, empty where the option counts."""


def without_effect(given: Given) -> list[str]:
    """A warning for each option that has no effect."""
    reasons = ((flag, why(given)) for flag, why in CONDITIONS.items())
    return [f"warning: {flag} has no effect: {reason}" for flag, reason in reasons if reason]
