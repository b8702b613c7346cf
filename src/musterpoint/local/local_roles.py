"""The roles of a local job: how many hosts they take, and which one each host has, before anything starts."""

from __future__ import annotations

from musterpoint.base import settings
from musterpoint.base.errors import UsageError
from musterpoint.base.job_text import JobText
from musterpoint.core.job import roles
from musterpoint.core.job.model import EntryPoint, InstanceGroup, Job
from musterpoint.core.launch.role_plan import of_this_host
from musterpoint.local.job_request import LocalJob

Groups = tuple[tuple[str, int], ...]


def hosts_of(asked: int | None, groups: Groups, text: JobText | None, short: str) -> int:
    """The number of the job's hosts: as ``asked``, or those of its ``groups`` or roles.

    Raises:
        UsageError: they contradict each other.
    """
    every = [*(roles.of_file(text) if text is not None else ()), *map(roles.of_option, short.splitlines())]
    grouped = sum(count for _, count in groups)
    if asked is not None and grouped not in (0, asked):
        raise UsageError(f"--hosts {asked}: --groups has {grouped} hosts; leave one of the two out")
    own = [each for each in every if not each.role.beside]
    counted = sum(each.hosts or 0 for each in own if not each.group)
    rest = any(each.hosts is None and not each.group for each in own) or (bool(short) and text is None)
    return asked or grouped or counted + rest or 1


def roles_by_host(job: LocalJob, text: JobText | None) -> dict[str, str]:
    """The role of each host; none where the job has no roles.

    Raises:
        UsageError: the roles are wrong, or don't fit the hosts.
    """
    options = settings.from_environ(job.options)
    if text is None and not options.more_roles and not options.group:
        return {}
    options = options._replace(job_file="")
    groups = tuple(InstanceGroup(name, "local", hosts) for name, hosts in job.hosts_of_groups.items())
    start = EntryPoint(job.program, module=job.module)
    plain = Job(job.platform, job.name, job.hosts, job.hosts[0], job.hosts, start, groups=groups)
    made = of_this_host(plain, options, {}, {}, text=text).job
    return {host: role.name for role in made.roles if not role.beside for host in role.hosts}
