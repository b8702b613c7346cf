"""Where both the platform and the user describe the hosts: both sides are compared, and which one counts is decided.

A user describes them by options (``--nnodes``, ``--node-rank``, ``--rollcall-leader``) or by variables (``NNODES``,
``NODE_RANK``, ``MASTER_ADDR``, or torchrun's ``PET_*``), as scripts do that start one step of Slurm's per node. A
description that is complete counts, whatever the platform says; another one with another number of hosts is refused:
hosts that each train alone would end well, and nobody would notice.
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.readers import MOST_HOSTS, split_endpoint
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.core.job.model import Job, Note, Sources, UnnamedHosts
from musterpoint.core.job.other_platforms import shown_variables
from musterpoint.core.job.platform import Platform
from musterpoint.core.job.unnamed import COUNTS, completed, endpoint_in


class Said(NamedTuple):
    """What the user says of the hosts: their number, this one's place, and where they meet.

    ``text``: the user's own words. ``by_option``: they are options, where the place may be left out.
    """

    text: str
    nnodes: int | None
    node_rank: int | None
    leader: str
    port: int
    sources: Sources
    by_option: bool = False

    @property
    def complete(self) -> bool:
        by_arrival = self.by_option or self.sources.leader.endswith("RDZV_ENDPOINT")
        return bool(self.nnodes and self.leader and (by_arrival or self.node_rank is not None))

    @property
    def least(self) -> int:
        """How many hosts there are at least."""
        return self.nnodes or (self.node_rank or 0) + 1


def agreed(job: Job, platform: Platform, settings: Settings, environ: Mapping[str, str], own: frozenset[str]) -> Job:
    """``job``, which names its hosts, or the job of the hosts that the user describes.

    ``own``: the variables that ``platform`` has read, so they are its own words.

    Raises:
        UsageError: the user says another number of hosts than the platform, and not all that is needed to find them.
    """
    said = _options(settings) if settings.describes_hosts else _variables(environ, own)
    hosts = len(job.group_hosts)
    if said is None or said.nnodes == hosts or (said.nnodes is None and said.least <= hosts > 1):
        return _at_its_place(job, said)
    if said.least == 1:
        return _alone(job, platform, said)
    if not said.complete or job.started is not None:
        raise _contradiction(job, platform, said)
    if platform.joined is not None:
        job = platform.joined(job, environ)
    note = Note("info", f"the hosts are those that {said.text} describes; {_by_platform(job, platform)}")
    unnamed = UnnamedHosts(said.least, said.node_rank, said.leader, said.port, job.current_host, said.sources)
    return completed(job._replace(notes=(*job.notes, note)), unnamed)


def _options(settings: Settings) -> Said:
    leader, port = split_endpoint(settings.rollcall_leader) if settings.rollcall_leader else ("", 0)
    given = {
        "--nnodes": settings.nnodes,
        "--node-rank": settings.node_rank,
        "--rollcall-leader": settings.rollcall_leader or None,
    }
    text = " ".join(f"{flag} {value}" for flag, value in given.items() if value is not None)
    return Said(text, settings.nnodes, settings.node_rank, leader, port, Sources(), by_option=True)


def _variables(environ: Mapping[str, str], own: frozenset[str]) -> Said | None:
    """What variables say that aren't the platform's own; None where they count no hosts."""
    for prefix, name in COUNTS:
        sources = Sources(prefix + name, prefix + "NODE_RANK", prefix + "MASTER_ADDR")
        if prefix and environ.get(prefix + "RDZV_ENDPOINT"):
            sources = sources._replace(leader=prefix + "RDZV_ENDPOINT")
        count, rank, leader = (environ.get(source, "").strip() for source in sources)
        count = count.partition(":")[0]
        if sources.nnodes in own or not (prefix or rank or leader) or not _is_number(count):
            continue
        address, port = endpoint_in(sources.leader, leader) if leader else ("", 0)
        place = int(rank) if _is_number(rank) else None
        text = shown_variables((each, environ[each]) for each in sources if environ.get(each))
        meets_there = sources.leader.endswith("RDZV_ENDPOINT")
        return Said(text, int(count), place, address, port if meets_there else 0, sources)
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10 and int(text) <= MOST_HOSTS


def _at_its_place(job: Job, said: Said | None) -> Job:
    """``job`` where both sides count as many hosts: the platform names them.

    Raises:
        UsageError: --node-rank is another place than the platform's.
    """
    place = job.group_hosts.index(job.current_host) if job.in_group else -1
    if said is None or said.node_rank in (None, place):
        return job
    its = f"its place among the hosts is {place}" if place >= 0 else "it takes no part in the distribution"
    who = f"this host is {job.current_host} ({job.platform}), and {its}"
    if said.by_option:
        raise UsageError(f"--node-rank={said.node_rank} (MUSTER_NODE_RANK), but {who}: leave --node-rank out")
    # scripts of Slurm's that set it once, in the batch script, have the first node's on all
    note = Note("plan", f"{said.sources.node_rank}={said.node_rank}, but {who}: the platform's place counts")
    return job._replace(notes=(*job.notes, note))


def _alone(job: Job, platform: Platform, said: Said) -> Job:
    if not said.by_option or not said.nnodes:
        return job
    raise UsageError(
        f"--nnodes=1 (MUSTER_NNODES), but {_by_platform(job, platform)}: leave it out for one job of all hosts, or "
        "pass --platform plain for a job of this host alone"
    )


def _contradiction(job: Job, platform: Platform, said: Said) -> UsageError:
    """Never advises to leave the user's words out: where the platform says one host, each would then train alone."""
    missing = []
    if not said.nnodes:
        missing.append("--nnodes N")
    if not said.leader:
        where = (
            "--rollcall-leader HOST (--master-addr HOST of muster torchrun)," if said.by_option else "MASTER_ADDR to"
        )
        missing.append(f"{where} the first host's name or address, the same on all hosts")
    if said.node_rank is None and not said.by_option:
        missing.append(f"{said.sources.node_rank} to each host's place, from 0")
    cure = f"let the platform start one job on all hosts ({platform.once_per_host})"
    if job.started is None and missing:
        cure = f"{'pass' if said.by_option else 'set'} {' and '.join(missing)}; or {cure}"
    alone = "pass --platform plain where each host is to train alone"
    if len(job.group_hosts) > 1:
        alone = f"leave {'them' if ' ' in said.text else 'it'} out for one job of these hosts"
    return UsageError(f"{said.text}, but {_by_platform(job, platform)}: {cure}; or {alone}")


def _by_platform(job: Job, platform: Platform) -> str:
    hosts = job.group_hosts
    names = ", ".join(hosts[:4]) + (", ..." if len(hosts) > 4 else "")
    count = "there is one host" if len(hosts) == 1 else f"there are {len(hosts)} hosts"
    return f"by {platform.title}'s description {count} ({names})"
