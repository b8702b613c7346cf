"""The interface of all ways to make hosts on this machine, and the choice of one for a run."""

from __future__ import annotations

from typing import Callable, Literal, Mapping, Protocol, Sequence, get_args

from musterpoint.base.errors import UsageError
from musterpoint.local.docker_hosts import DockerHosts
from musterpoint.local.job_request import LocalJob
from musterpoint.local.netns_hosts import NetnsHosts, why_unavailable
from musterpoint.local.process_hosts import ProcessHosts, can_have_own_tree
from musterpoint.local.tree import Layout

BackendName = Literal["process", "netns", "docker"]
BACKENDS: tuple[BackendName, ...] = get_args(BackendName)


class Running(Protocol):
    """A started host."""

    def poll(self) -> int | None:
        """Its entry point's exit code (negative: a signal), or None while it runs."""

    def wait(self) -> int:
        """Its entry point's exit code, once it has ended."""


class Backend(Protocol):
    """The hosts of one run. Used as ``open``, then ``start`` once per host, then ``close``; from the main thread only.

    ``name``: what ``--backend`` calls it.
    ``about``: how the hosts are made, in a few words for the log.
    ``shares_python``: whether the hosts have this machine's Python, packages and paths; the links in a host's tree then
    lead to the user's files.
    ``isolated``: whether the hosts have no way out of this machine.
    ``interface``: the network interface by which a host reaches the others; empty: that of this machine.
    ``addresses``: host names → numeric addresses; those of containers once they have started.
    """

    about: str
    shares_python: bool
    isolated: bool
    interface: str
    addresses: dict[str, str]

    @property
    def name(self) -> BackendName: ...

    def open(self, on_end: Callable[[], None]) -> None:
        """Makes the hosts, with nothing running on them yet. A UsageError says what this machine lacks.

        ``on_end`` is called, from any thread, when a host that isn't a child of this process has ended.
        """

    def inherited(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The part of the caller's environment that a host gets."""

    def environment(self, host: str) -> dict[str, str]:
        """The variables that this backend sets on ``host``."""

    def tree(self, host: str) -> str:
        """The path at which ``host`` itself finds its ``/opt/ml``."""

    def start(self, host: str, argv: Sequence[str], env: Mapping[str, str], stdin: int, output: int) -> Running:
        """Starts ``host`` with ``argv`` as its entry point; ``output`` is its stdout and stderr.

        The returned handle ends when the host does, and then no process of the host is left.
        """

    def signal(self, host: str, signo: int) -> None:
        """Signals the host's entry point, no other process."""

    def kill(self, host: str) -> None:
        """Kills every process of the host."""

    def out_of_memory(self, host: str) -> bool:
        """Whether the whole host was killed because it ran out of memory."""

    def close(self) -> None:
        """Kills what still runs and removes everything that was made. May be called at any time, more than once."""


def choose_backend(
    name: BackendName | None, layout: Layout, job: LocalJob, one_address: bool = False, internet: bool = False
) -> Backend:
    """The backend called ``name``. None: ``docker`` for a job with an image, ``netns`` for several hosts where a
    namespace can really be made, else ``process``. Nothing is made yet.

    Raises:
        UsageError: the backend can't be used here; the message says why.
    """
    if job.container is not None:
        return DockerHosts(job, layout)
    why_not = ""
    alone = one_address or len(job.hosts) == 1  # nothing to tell apart: this machine's own network will do
    if name != "process" and not (alone and name is None):
        why_not = why_unavailable()
        if not why_not:
            return NetnsHosts(layout, job.hosts, internet=internet)
    if name == "netns":
        raise UsageError(f"--backend netns can't be had on this machine: {why_not}; use --backend process")
    # a script may name /opt/ml itself, and hosts that are namespaces have it
    own_tree = name is None and len(job.hosts) == 1 and can_have_own_tree()
    return ProcessHosts(layout, job.hosts, one_address=one_address, own_tree=own_tree)
