"""A platform of another package: it gives every process GANG_HOSTS, all names in rank order, and GANG_SELF, its own."""

from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import each_once, host
from musterpoint.core.job.model import EntryPoint, Job
from musterpoint.core.job.platform import Platform
from musterpoint.core.job.pods import pod_paths


def read(environ: Mapping[str, str], _settings: Settings, _base: str) -> Job:
    """The job of this host, without a program."""
    hosts = each_once((host(name, "GANG_HOSTS") for name in environ.get("GANG_HOSTS", "").split(",")), "GANG_HOSTS")
    own = environ.get("GANG_SELF", "")
    if own not in hosts:
        raise UsageError(f"GANG_SELF is {own!r}, expected one of GANG_HOSTS: {', '.join(hosts)}")
    return Job("gang", environ.get("GANG_JOB", ""), hosts, own, hosts, EntryPoint(""), paths=pod_paths(environ))


PLATFORM = Platform(name="gang", title="Gang", read=read, variables=("GANG_",), once_per_host="gang run --per-host 1")
