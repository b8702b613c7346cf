"""What every way of making hosts on this machine offers, and which one a run takes."""

from __future__ import annotations

from typing import Callable, Literal, Mapping, Protocol, Sequence, get_args

from musterpoint.errors import UsageError
from musterpoint.local.job import LocalJob
from musterpoint.local.netns_hosts import NetnsHosts, why_unavailable
from musterpoint.local.process_hosts import ProcessHosts
from musterpoint.local.tree import Layout

BackendName = Literal["process", "netns", "docker"]
BACKENDS: tuple[BackendName, ...] = get_args(BackendName)


class Running(Protocol):
    """A started host."""

    def poll(self) -> int | None:
        """Its entry point's exit code (negative: a signal), or None as long as it runs."""

    def wait(self) -> int:
        """Its entry point's exit code, once it has ended."""


class Backend(Protocol):
    """The hosts of one run. Used as ``open``, then ``start`` once per host, then ``close``; from the main thread only.

    ``name``: what ``--backend`` calls it.
    ``about``: half a sentence for people on how the hosts are made.
    ``shares_python``: whether the hosts have this machine's Python, packages and paths; the links in a host's tree then
    lead to the user's files.
    ``addresses``: host names → numeric addresses, once the hosts have started.
    """

    about: str
    shares_python: bool
    addresses: dict[str, str]

    @property
    def name(self) -> BackendName: ...

    def open(self, on_end: Callable[[], None]) -> None:
        """Makes the hosts, without anything running on them. A UsageError says what this machine lacks.

        ``on_end`` is called, from any thread, when a host has ended that isn't a child of this process.
        """

    def inherited(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What a host has of the caller's environment."""

    def environment(self, host: str) -> dict[str, str]:
        """The variables this way of making hosts calls for on ``host``."""

    def start(self, host: str, argv: Sequence[str], env: Mapping[str, str], stdin: int, output: int) -> Running:
        """Starts ``host`` with ``argv`` as its entry point; ``output`` is its stdout and stderr.

        The returned handle ends when the host does, and then no process of the host is left.
        """

    def signal(self, host: str, signo: int) -> None:
        """Signals the host's entry point, and nothing else of it."""

    def kill(self, host: str) -> None:
        """Kills everything on the host, like pulling its plug."""

    def out_of_memory(self, host: str) -> bool:
        """Whether the host as a whole was killed for using more memory than there is."""

    def close(self) -> None:
        """Kills what still runs and gives everything back. May be called at any time, any number of times."""


def choose_backend(name: BackendName | None, layout: Layout, job: LocalJob, one_address: bool = False) -> Backend:
    """The backend called ``name``; None: ``docker`` for a job with an image, else ``netns`` where a namespace can
    really be made, else ``process``. Nothing is made yet.

    Raises:
        UsageError: what is asked for can't be had; the message says why.
    """
    if job.container is not None:
        from musterpoint.local.docker_hosts import DockerHosts

        return DockerHosts(job, layout)
    why_not = ""
    if name != "process" and not (one_address and name is None):
        why_not = why_unavailable()
        if not why_not:
            return NetnsHosts(layout, job.hosts)
    if name == "netns":
        raise UsageError(f"--backend netns can't be had on this machine: {why_not}; use --backend process")
    return ProcessHosts(layout, job.hosts, one_address=one_address)
