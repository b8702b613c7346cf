"""What one way of making hosts on this machine must offer, and which way a run takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Mapping, Protocol, Sequence

from musterpoint.errors import UsageError
from musterpoint.local.tree import Layout

BACKENDS = ("process", "netns")


class Backend(Protocol):
    """The hosts of one run. Used as ``open``, then ``start`` once per host, then ``close``; from the main thread only.

    ``about`` is half a sentence for people. ``addresses`` (after ``open``) maps host names to numeric addresses.
    """

    name: str
    about: str
    addresses: dict[str, str]

    def open(self) -> None:
        """Makes the hosts, without anything running on them. A UsageError says what this machine lacks."""

    def environment(self, host: str) -> dict[str, str]:
        """The variables this way of making hosts calls for on ``host``."""

    def start(
        self, host: str, argv: Sequence[str], env: Mapping[str, str], stdin: int, output: int
    ) -> subprocess.Popen[bytes]:
        """Starts ``host`` with ``argv`` as its entry point; ``output`` is its stdout and stderr.

        The handle ends when the host does, with its code, and then no process of the host is left.
        """

    def signal(self, host: str, signo: int) -> None:
        """Signals the host's entry point, and nothing else of it."""

    def kill(self, host: str) -> None:
        """Kills everything on the host, like pulling its plug."""

    def close(self) -> None:
        """Kills what still runs and gives everything back. May be called at any time, any number of times."""


def choose(name: str, layout: Layout, hosts: tuple[str, ...], one_address: bool = False) -> Backend:
    """The backend called ``name``; an empty name: ``netns`` where a namespace can really be made, else ``process``.

    Raises:
        UsageError: ``netns`` is asked for and can't be had; the message says why.
    """
    from musterpoint.local.netns import Netns
    from musterpoint.local.process import Process

    why_not = ""
    if name != "process" and not (one_address and not name):
        why_not = missing()
        if not why_not:
            return Netns(layout, hosts)
    if name == "netns":
        raise UsageError(f"--backend netns can't be had on this machine: {why_not}; use --backend process")
    return Process(layout, hosts, one_address=one_address)


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
