"""Jobs under the MPIs of scripts/stacks.py, on network namespaces."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any, Callable

import pytest

from ..conftest import eventually, pids

PROGRAMS = Path(__file__).parent / "programs"
FLAVOURS = ("openmpi4", "openmpi5", "mpich", "mpich-apt", "impi")
NO_SOUND_END = ("mpich-apt",)
"""Debian's MPICH 4.0 hangs in MPI_Finalize once in a hundred runs: a rank still closes its UCX connections, and the
others wait in a barrier of PMI, where they don't help it (pmodels/mpich pull request 6596 takes that barrier out)."""
STOPPED = 128 + signal.SIGTERM


class MpiJob:
    """``muster local`` under one MPI: its mpirun first on PATH, and a Python that has mpi4py for it."""

    def __init__(self, local: Any, folder: Path, flavour: str) -> None:
        self.local = local
        self.flavour = flavour
        self.environ = local.environ
        self.environ["MUSTER_PYTHON"] = str(folder / "python")
        self.environ["PATH"] = f"{folder}{os.pathsep}{self.environ['PATH']}"
        # four ranks and two daemons share two processors with other tests: who waits should sleep
        self.environ["OMPI_MCA_mpi_yield_when_idle"] = "1"

    def words(
        self, program: str | Path, options: tuple[str | Path, ...], arguments: tuple[str, ...]
    ) -> list[str | Path]:
        chosen = [] if {"--distribution", "--launcher"} & set(options) else ["--launcher", "mpi"]
        where = [] if "--backend" in options else ["--backend", "netns"]
        path = program if isinstance(program, Path) else PROGRAMS / program
        return [*where, *chosen, *options, path, *arguments]

    def run(self, program: str | Path, *options: str | Path, arguments: tuple[str, ...] = ()) -> Any:
        return self.local.run(*self.words(program, options, arguments), timeout=500)

    def run_well(self, program: str, *options: str | Path, ranks: int, arguments: tuple[str, ...] = ()) -> Any:
        """As :meth:`run` for ranks that each say something and end well; where their MPI can't be trusted to end, they
        stay, and the job is stopped.
        """
        if self.flavour in NO_SOUND_END:
            self.environ["TEST_STAYS"] = "1"
            words = self.words(program, options, arguments)
            ran, code = self.local.stop(*words, when=f" of {ranks} says ", lines=ranks), STOPPED
        else:
            ran, code = self.run(program, *options, arguments=arguments), 0
        assert ran.code == code, ran.stderr + ran.stdout
        return ran

    def start(self, program: str | Path, *options: str | Path, arguments: tuple[str, ...] = ()) -> Any:
        return self.local.start(*self.words(program, options, arguments))

    def ready(self, process: Any, ranks: int, hosts: tuple[str, ...] = ("algo-1", "algo-2")) -> None:
        """Returns when ``ranks`` ranks have said that they are ready."""
        logs = [self.local.output / "hosts" / host / "log" for host in hosts]

        def said() -> bool:
            assert process.poll() is None, process.communicate()
            return sum(log.read_text().count("is ready") for log in logs if log.exists()) >= ranks

        eventually(said)

    def finish(self, process: Any) -> Any:
        return self.local.finish(process, 200)

    def left(self, ran: Any, host: str) -> list[dict[str, Any]]:
        """What the ranks of a host wrote, in order of their ranks."""
        folder = ran.output / "hosts" / host / "opt" / "ml" / "output" / "data"
        found = [json.loads(path.read_text()) for path in folder.glob("rank-*.json")]
        return sorted(found, key=lambda each: int(each["rank"]))

    def pids(self, host: str, program: str) -> list[int]:
        """Processes of a host whose executable has this file name, as this machine numbers them."""
        found = []
        for pid in pids(f"MUSTER_TEST_TOKEN={self.local.token}", f"HOSTNAME={host}"):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if os.path.basename(words[0].decode()) == program:
                    found.append(pid)
        return found

    def lose(self, host: str) -> None:
        """Kills the host's first process, and everything on it with that."""
        for pid in self.pids(host, "python"):
            status = Path(f"/proc/{pid}/status").read_text()
            numbers = next(line for line in status.splitlines() if line.startswith("NSpid")).split()[1:]
            if numbers[1:] == ["1"]:
                os.kill(pid, signal.SIGKILL)
                return
        raise AssertionError(f"{host} has no first process")

    def kill(self, host: str, program: str) -> None:
        killed = []
        for pid in self.pids(host, program):
            with contextlib.suppress(ProcessLookupError):  # a process of it that was about to end
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        assert killed, f"no {program} runs on {host}"


def pytest_itemcollected(item: pytest.Item) -> None:
    """One MPI is for every run, less tests that are marked for the lane."""
    its = getattr(item, "callspec", None)
    if its and its.params.get("flavour") == FLAVOURS[0] and item.get_closest_marker("lane") is None:
        item.add_marker(pytest.mark.lane("suite"))


@pytest.fixture
def under(local: Any, stack: Callable[[str], Path]) -> Callable[[str], MpiJob]:
    """A job's runner, by the name of its MPI's environment."""
    return lambda flavour: MpiJob(local, stack(flavour), flavour)
