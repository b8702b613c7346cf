"""Hosts that are counted but not named: by options, by torchrun's variables, or by a platform's reader.

``PET_NNODES``, ``PET_NODE_RANK`` and ``PET_MASTER_ADDR`` are what torchrun reads (``torch/distributed/run.py``);
``NNODES`` (or ``NUM_NODES``), ``NODE_RANK`` and ``MASTER_ADDR`` are what wrapper scripts and clouds call the same.
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.readers import MOST_HOSTS, split_endpoint
from musterpoint.base.settings import Settings
from musterpoint.base.untrusted import is_host_name
from musterpoint.core.job.fields import is_loopback, node_name, shown
from musterpoint.core.job.model import Distribution, EntryPoint, Job, Note, Sources, UnnamedHosts
from musterpoint.core.job.other_platforms import shown_variables

COUNTS = (("PET_", "NNODES"), ("", "NNODES"), ("", "NUM_NODES"))
"""The variables that count hosts: how they begin, as do those beside them, and end."""
_LONGEST_NUMBER = 80
"""Digits; ``int()`` refuses thousands of them."""


def placeholders(unnamed: UnnamedHosts) -> tuple[tuple[str, ...], str]:
    """What stands for the hosts' names until the roll call is over, in rank order, and for this host's own.

    Where places go by arrival this host stands last: before the roll call only the leader is special.
    """
    hosts = tuple(f"node-{rank}" for rank in range(unnamed.nnodes))
    return hosts, f"node-{unnamed.nnodes - 1 if unnamed.node_rank is None else unnamed.node_rank}"


def unnamed_job(platform: str, unnamed: UnnamedHosts, slots: int | None = None) -> Job:
    """A job of unnamed hosts that has no program yet; ``slots``: ranks per host, where that is said."""
    hosts, me = placeholders(unnamed)
    distribution = Distribution(processes_per_host=slots)
    return Job(platform, "", hosts, me, hosts, EntryPoint(""), distribution, unnamed=unnamed)


def settled(job: Job, settings: Settings) -> Job:
    """``job`` with the options about hosts: --nnodes, --node-rank and --rollcall-leader.

    They describe hosts that the platform doesn't name.

    Raises:
        UsageError: an option contradicts the platform, there are several hosts and none says where the first is, or
            the only host has another node rank than 0.
    """
    if job.unnamed is not None:
        return completed(job, _merged(job.unnamed, settings))
    return _from_options(job, settings)


def _from_options(job: Job, settings: Settings) -> Job:
    count = settings.nnodes or 1
    if settings.nnodes is None and settings.rollcall_leader and settings.platform == "auto":
        raise UsageError(
            f"--rollcall-leader={settings.rollcall_leader} is given, but not how many hosts there are: pass --nnodes N "
            "too (MUSTER_NNODES), also where it is 1"
        )
    if count == 1 and not settings.node_rank:
        return job
    if settings.nnodes is None:
        raise UsageError("--node-rank is given, but not how many hosts there are: pass --nnodes N too (MUSTER_NNODES)")
    if not settings.rollcall_leader and count > 1:
        raise UsageError(
            f"--nnodes={count}: nothing says where the hosts meet: pass --rollcall-leader HOST (--master-addr HOST of "
            "muster torchrun), the first host's name or address, the same on all of them (MUSTER_ROLLCALL_LEADER)"
        )
    leader, port = split_endpoint(settings.rollcall_leader or "localhost")
    return completed(job, UnnamedHosts(count, settings.node_rank, leader, port))


def _merged(unnamed: UnnamedHosts, settings: Settings) -> UnnamedHosts:
    """The platform's facts, which options must not contradict; the leader's place may be given in another way."""
    sources = unnamed.sources
    _same("--nnodes", settings.nnodes, sources.nnodes, unnamed.nnodes)
    if unnamed.node_rank is not None:
        _same("--node-rank", settings.node_rank, sources.node_rank, unnamed.node_rank)
    elif settings.node_rank is not None:
        unnamed = unnamed._replace(node_rank=settings.node_rank, sources=sources._replace(node_rank="--node-rank"))
    if settings.rollcall_leader:
        leader, port = split_endpoint(settings.rollcall_leader)
        unnamed = unnamed._replace(
            leader=leader, port=port or unnamed.port, sources=unnamed.sources._replace(leader="--rollcall-leader")
        )
    return unnamed


def _same(flag: str, value: int | None, source: str, known: int) -> None:
    if value is not None and value != known:
        variable = "MUSTER_" + flag.strip("-").replace("-", "_").upper()
        raise UsageError(
            f"{flag}={value} ({variable}), but {source} says {known}: leave it out, or give both the same value"
        )


def completed(job: Job, unnamed: UnnamedHosts) -> Job:
    """``job`` of the hosts ``unnamed``, with what stands for their names.

    Raises:
        UsageError: their number, this host's place or the leader's address can't be.
    """
    if not 1 <= unnamed.nnodes <= MOST_HOSTS:
        raise UsageError(f"{unnamed.sources.nnodes} is {unnamed.nnodes}, expected 1 to {MOST_HOSTS} hosts")
    if unnamed.nnodes == 1:
        if wrong := unnamed.misplaced:
            raise wrong
        name = unnamed.name or node_name()
        return job._replace(hosts=(name,), group_hosts=(name,), current_host=name, unnamed=None)
    if not is_host_name(unnamed.leader) or unnamed.leader in ("0.0.0.0", "::"):
        raise UsageError(
            f"{unnamed.sources.leader} is {shown(unnamed.leader)}, expected the first host's name or address, as the "
            "other hosts reach it"
        )
    name = unnamed.name or node_name()
    hosts, me = placeholders(unnamed)
    notes = job.notes
    if is_loopback(unnamed.leader):
        notes += (
            Note(
                "warning",
                f"{unnamed.sources.leader} is {unnamed.leader}, which is every machine's own address: only hosts of "
                "this machine can meet there",
            ),
        )
    return job._replace(
        hosts=hosts,
        group_hosts=hosts,
        current_host=me,
        notes=notes,
        unnamed=unnamed._replace(name=name if is_host_name(name) else "host"),
    )


def from_variables(platform: str, environ: Mapping[str, str]) -> Job | None:
    """The job of ``platform`` that torchrun's variables, or a wrapper's, describe; None where they describe no others.

    Raises:
        UsageError: a variable is wrong, or one is missing without which the hosts can't meet.
    """
    for prefix, name in COUNTS:
        count = environ.get(prefix + name, "").strip()
        beside = environ.get("NODE_RANK", "").strip() and environ.get("MASTER_ADDR", "").strip()
        least, colon, most = count.partition(":")
        if colon and least.isdecimal() and most.isdecimal() and least != most:
            raise UsageError(
                f"{prefix}{name}={shown(count)}: expected one number, since hosts can't come and go while the job runs"
            )
        if least.isdecimal() and (prefix or beside):
            _number(prefix + name, least, 1)
            return _described(platform, environ, prefix, name, int(least)) if int(least) > 1 else None
    return None


def _described(platform: str, environ: Mapping[str, str], prefix: str, name: str, nnodes: int) -> Job:
    def read(variable: str) -> str:
        return environ.get(prefix + variable, "").strip()

    rank, backend = read("NODE_RANK"), read("RDZV_BACKEND")
    endpoint = "RDZV_ENDPOINT" if prefix and read("RDZV_ENDPOINT") and backend != "static" else "MASTER_ADDR"
    if not read(endpoint):
        raise UsageError(
            f"{prefix}{name}={nnodes}, and nothing says where the hosts meet: set {prefix}MASTER_ADDR (or pass "
            "--rollcall-leader) to the first host's name or address on all of them, or MUSTER_PLATFORM=plain where "
            "this host is a job of its own"
        )
    leader, port = endpoint_in(prefix + endpoint, read(endpoint))
    sources = Sources(prefix + name, prefix + "NODE_RANK", prefix + endpoint)
    node_rank = _number(prefix + "NODE_RANK", rank, 0) if rank else None
    slots = read("NPROC_PER_NODE") if prefix else ""
    unnamed = UnnamedHosts(nnodes, node_rank, leader, port if endpoint == "RDZV_ENDPOINT" else 0, sources=sources)
    count = _number(prefix + "NPROC_PER_NODE", slots, 0) if slots not in ("", "auto", "gpu", "cpu") else 0
    used = (*sources[:3], *([prefix + "NPROC_PER_NODE"] if slots else ()))
    said = shown_variables((each, environ[each]) for each in used if environ.get(each))
    note = Note("plan", f"the hosts are read from {said}")
    return unnamed_job(platform, unnamed, count or None)._replace(notes=(note,))


def endpoint_in(name: str, text: str) -> tuple[str, int]:
    """The host and port (0: none given) of ``text``, the value of the variable ``name``.

    Raises:
        UsageError: it is no endpoint.
    """
    try:
        return split_endpoint(text)
    except ValueError as error:
        raise UsageError(f"{name}={shown(text)}: {error}") from None


def _number(name: str, text: str, least: int) -> int:
    if not text.isdecimal() or len(text) > _LONGEST_NUMBER or not least <= int(text) <= MOST_HOSTS:
        raise UsageError(f"{name}={shown(text)}: expected a whole number, {least} to {MOST_HOSTS}")
    return int(text)
