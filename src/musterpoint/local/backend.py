"""What one way of making hosts on this machine must offer, and which way a run takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Callable, Mapping, Protocol, Sequence

from musterpoint.errors import UsageError
from musterpoint.local.job import LocalJob
from musterpoint.local.tree import Layout

BACKENDS = ("process", "netns", "docker")


class Running(Protocol):
    """A started host."""

    def poll(self) -> int | None:
        """Its entry point's exit code (negative: a signal), or None as long as it runs."""

    def wait(self) -> int:
        """Its entry point's exit code, once it has ended."""


class Backend(Protocol):
    """The hosts of one run. Used as ``open``, then ``start`` once per host, then ``close``; from the main thread only.

    ``about`` is half a sentence for people. ``shares_python``: the hosts' Python, packages and paths are this
    machine's own; the tree's links lead to the user's files there. ``addresses`` (after ``start``) maps host names to
    numeric addresses. ``on_end`` is called, from any thread, when a host has ended whose end is no SIGCHLD.
    """

    name: str
    about: str
    shares_python: bool
    addresses: dict[str, str]
    on_end: Callable[[], None]

    def open(self) -> None:
        """Makes the hosts, without anything running on them. A UsageError says what this machine lacks."""

    def inherited(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What a host has of the caller's environment."""

    def environment(self, host: str) -> dict[str, str]:
        """The variables this way of making hosts calls for on ``host``."""

    def start(self, host: str, argv: Sequence[str], env: Mapping[str, str], stdin: int, output: int) -> Running:
        """Starts ``host`` with ``argv`` as its entry point; ``output`` is its stdout and stderr.

        The handle ends when the host does, with its code, and then no process of the host is left.
        """

    def signal(self, host: str, signo: int) -> None:
        """Signals the host's entry point, and nothing else of it."""

    def kill(self, host: str) -> None:
        """Kills everything on the host, like pulling its plug."""

    def out_of_memory(self, host: str) -> bool:
        """Whether the host as a whole was killed for using more memory than there is."""

    def close(self) -> None:
        """Kills what still runs and gives everything back. May be called at any time, any number of times."""


def nobody() -> None:
    """What ``on_end`` is before somebody wants to hear of it."""


def choose(name: str, layout: Layout, job: LocalJob, one_address: bool = False) -> Backend:
    """The backend called ``name``; an empty name: ``docker`` for a job with an image, else ``netns`` where a namespace
    can really be made, else ``process``. Nothing is made yet.

    Raises:
        UsageError: what is asked for can't be had; the message says why.
    """
    if job.container is not None:
        from musterpoint.local.docker_hosts import Docker

        return Docker(job, layout)
    from musterpoint.local.netns import Netns
    from musterpoint.local.process import Process

    why_not = ""
    if name != "process" and not (one_address and not name):
        why_not = missing()
        if not why_not:
            return Netns(layout, job.hosts)
    if name == "netns":
        raise UsageError(f"--backend netns can't be had on this machine: {why_not}; use --backend process")
    return Process(layout, job.hosts, one_address=one_address)


def missing() -> str:
    """Why no network namespaces can be made here, in a few words; empty if they can (it is tried)."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "it needs root"
    for program in ("ip", "unshare", "nsenter", "setpriv", "mount"):
        if shutil.which(program) is None:
            package = "iproute2" if program == "ip" else "util-linux"
            return f"the program {program!r} is missing (Debian: apt-get install {package})"
    trial = subprocess.run(
        ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "ip", "-batch", "-"],
        input=b"link add br0 type bridge\nlink add port1 type veth peer name eth0\n", capture_output=True, check=False,
    )  # fmt: skip
    if trial.returncode:
        words = trial.stderr.decode(errors="replace").strip().splitlines()
        return f"a trial failed: {words[0] if words else f'exit code {trial.returncode}'}"
    return ""
