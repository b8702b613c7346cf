"""What differs between the platforms that ``muster local`` plays: the interface of their modules."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Sequence

from musterpoint.local.job_request import HostNaming, LocalJob
from musterpoint.local.tree import Layout


class PlayedHost(NamedTuple):
    """One host of a job, as its platform sees it when it starts the host's processes.

    ``job``: the whole job. ``name``: the host's name in it.
    ``layout``: the paths of the job's files on this machine.
    ``addresses``: all hosts' addresses by name; empty where they are known only later (containers).
    ``tree``: the path at which the host itself finds its ``/opt/ml``.
    ``own``: the variables that the run and its backend give this host, such as free ports in ``MUSTER_MASTER_PORT``.
    """

    job: LocalJob
    name: str
    layout: Layout
    addresses: Mapping[str, str]
    tree: str
    own: Mapping[str, str] = {}

    @property
    def rank(self) -> int:
        """The host's place among all hosts of the job."""
        return self.job.hosts.index(self.name)


class HostProcess(NamedTuple):
    """A process that the platform starts on a host.

    ``argv``: its command line.
    ``environment``: its variables on top of the host's.
    ``cwd``: its working directory.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = {}
    cwd: str = "/"


class LocalPlatform(NamedTuple):
    """How the control plane of one platform is played.

    ``host_names``: the names of the hosts, from their number and ``--host-names``.
    ``read_distribution``: turns the JSON object of ``--distribution`` into what :attr:`LocalJob.distribution` keeps,
    given the number of hosts. A UsageError says what is wrong with it.
    ``check``: a UsageError where the platform can't run such a job.
    ``prepare``: makes the host's directories and files, before there are any hosts.
    ``environment``: the variables that the platform gives every process of a host.
    ``processes``: what it starts on a host; the host ends when they all have, with the first code that isn't 0.
    ``grace``: seconds that a host gets between SIGTERM and SIGKILL.
    ``namings``: whether ``--host-names`` changes the hosts' names.
    ``failure_head``: what the control plane writes before the reason of a failed job.
    ``seen``: the variables of a host's first process where they aren't those of ``processes``, for ``muster plan``.
    """

    host_names: Callable[[int, HostNaming], tuple[str, ...]]
    read_distribution: Callable[[Mapping[str, Any], int], dict[str, Any]]
    check: Callable[[LocalJob], None]
    prepare: Callable[[LocalJob, str, Layout], None]
    environment: Callable[[PlayedHost], dict[str, str]]
    processes: Callable[[PlayedHost], Sequence[HostProcess]]
    seen: Callable[[PlayedHost], dict[str, str]] | None = None
    grace: float = 30.0
    namings: bool = False
    failure_head: str = ""
