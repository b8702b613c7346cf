"""Hosts that are Docker's containers: their entry point is PID 1, and what is done to them is Docker's own."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from .machines import IN_CONTAINERS, firewall

GRACE = 120
"""Seconds between SIGTERM and SIGKILL of a ``docker stop``, as on the platform."""
DAEMON = 300
"""Seconds that the daemon may take for an answer on a busy machine, a ``docker stop`` with its grace included."""


class Containers:
    """Implements :class:`~tests.faults.machines.Machines` for the job ``name`` of containers of ``image``."""

    def __init__(self, name: str, image: str, folder: Path) -> None:
        self.name, self.image, self.folder = name, image, folder
        self._docker = import_module("docker")  # which a folder of this checkout is called, too
        self._engine = self._docker.from_env(timeout=DAEMON)

    def options(self, environ: Mapping[str, str], memory: int) -> list[str]:
        """The job's memory is shared out between two hosts."""
        output = {"sagemaker_s3_output": f"file://{self.folder}"}
        words = ["--backend", "docker", "--image", self.image, "--job-name", self.name]
        words += ["--hyperparameters", json.dumps(output)]
        for name, value in {**environ, "FAULT_FOLDER": IN_CONTAINERS}.items():
            words += ["--env", f"{name}={value}"]
        return [*words, "--memory", f"{memory // 2}m"] if memory else words

    def power_off(self, host: str) -> None:
        """``docker kill``."""
        self._container(host).kill()

    kill_entry_point = power_off
    """A container ends with its PID 1."""

    def terminate(self, host: str) -> None:
        """``docker stop``, which returns when the container has ended."""
        stop = self._container(host).stop
        threading.Thread(target=stop, kwargs={"timeout": GRACE}, daemon=True).start()

    def freeze(self, host: str) -> None:
        """``docker pause``."""
        self._container(host).pause()

    def thaw(self, host: str) -> None:
        """``docker unpause``."""
        with contextlib.suppress(self._docker.errors.APIError):
            self._container(host).unpause()

    def cut(self, host: str, add: bool) -> None:
        firewall(self._container(host).attrs["State"]["Pid"], add)

    def left(self, host: str, killed: bool) -> list[str]:
        """The container itself, or the job's network: processes, locks and memory of a container go with it."""
        mine = {"filters": {"name": f"muster-{self.name}-"}}
        found = [*self._engine.containers.list(all=True, **mine), *self._engine.networks.list(**mine)]
        return [f"{type(each).__name__.lower()} {each.name}" for each in found]

    def close(self) -> None:
        self._engine.close()

    def _container(self, host: str) -> Any:
        return self._engine.containers.get(f"muster-{self.name}-{host}")
