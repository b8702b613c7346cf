"""What is done to the hosts of a job from outside, whatever they are."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class Machines(Protocol):
    """The hosts of one job, by their names."""

    def options(self, environ: Mapping[str, str], memory: int) -> list[str]:
        """The words of ``muster local`` that make such hosts, with ``environ`` for the job's programs.

        ``memory``: MiB that the whole job may use; 0: no limit.
        """

    def power_off(self, host: str) -> None:
        """Everything on the host ends at once."""

    def kill_entry_point(self, host: str) -> None:
        """It alone is killed by SIGKILL."""

    def terminate(self, host: str) -> None:
        """Stops this host, as a spot interruption or a pod's eviction does it."""

    def freeze(self, host: str) -> None:
        """Every process of the host stands still."""

    def thaw(self, host: str) -> None:
        """They go on, if any is left."""

    def cut(self, host: str, add: bool) -> None:
        """Drops every packet to and from the host, or no longer."""

    def left(self, host: str, killed: bool) -> list[str]:
        """What is left of a host whose entry point has ended by itself, or was ``killed``."""

    def close(self) -> None:
        """Nothing more is done to them."""


def in_namespace_of(init: int) -> list[int]:
    """The pids of all processes in the PID namespace of its PID 1, that first."""
    namespace = os.readlink(f"/proc/{init}/ns/pid")
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            if pid != init and os.readlink(f"/proc/{pid}/ns/pid") == namespace:
                found.append(pid)
    return [init, *sorted(found)]


def firewall(init: int, add: bool) -> None:
    """Drops every packet in the network namespace of the process ``init``, or no longer."""
    tool = ["nsenter", "-t", str(init), "--net", "iptables", "-w", "-A" if add else "-D"]
    for rule in (["INPUT", "-i", "eth0", "-j", "DROP"], ["OUTPUT", "-o", "eth0", "-j", "DROP"]):
        subprocess.run([*tool, *rule], check=True)


def shared(folder: Path) -> Path:
    """Where hosts and the matrix tell each other of events: ``muster local`` shows it to containers under a
    ``file://`` output, :data:`IN_CONTAINERS`.
    """
    return folder / "output" / "intermediate"


IN_CONTAINERS = "/opt/ml/output/intermediate"
