"""Hosts that are network namespaces, each with a PID 1 of the matrix's own (``programs/init.py``)."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from .machines import firewall, in_namespace_of, shared


class Namespaces:
    """Implements :class:`~tests.faults.machines.Machines`. Processes of the job have ``token`` in their environment.

    ``outlives``: whether processes may outlive an entry point that was killed.
    """

    def __init__(self, token: str, folder: Path, outlives: bool) -> None:
        self.token, self.folder, self.outlives = token, folder, outlives
        self._inits: dict[str, int] = {}

    def options(self, environ: Mapping[str, str], memory: int) -> list[str]:
        """The programs inherit the environment, and the whole command runs in a memory cgroup."""
        return ["--backend", "netns"]

    def power_off(self, host: str) -> None:
        os.kill(self._init(host), signal.SIGKILL)

    def kill_entry_point(self, host: str) -> None:
        os.kill(self._entry_point(host), signal.SIGKILL)

    def terminate(self, host: str) -> None:
        os.kill(self._entry_point(host), signal.SIGTERM)

    def freeze(self, host: str) -> None:
        self._signal_all(host, signal.SIGSTOP)

    def thaw(self, host: str) -> None:
        with contextlib.suppress(OSError):
            self._signal_all(host, signal.SIGCONT)

    def cut(self, host: str, add: bool) -> None:
        firewall(self._init(host), add)

    def left(self, host: str, killed: bool) -> list[str]:
        """What its PID 1 found; that is killed together with a whole host."""
        report = shared(self.folder) / f"left-{host}"
        if killed and (self.outlives or not report.exists()):
            return []
        return report.read_text().splitlines()[1:]

    def close(self) -> None:
        pass

    def launched(self, host: str, program: str) -> int:
        """The pid of a host's first process whose command line has the regular expression ``program``."""
        processes = list(self._processes(host))
        found = [pid for pid, words in processes if program and re.search(program, words.replace("\0", " "))]
        assert found, f"no {program!r} runs on {host}"
        return min(found)

    def _init(self, host: str) -> int:
        """The pid of a host's PID 1, as this machine numbers it."""
        if host not in self._inits:
            found = [pid for pid, words in self._processes(host) if "init.py" in words and _numbers(pid)[-1] == "1"]
            assert found, f"{host} has no PID 1"
            self._inits[host] = found[0]
        return self._inits[host]

    def _entry_point(self, host: str) -> int:
        init = self._init(host)
        children = Path(f"/proc/{init}/task/{init}/children").read_text().split()
        return int(children[0])

    def _processes(self, host: str) -> Iterator[tuple[int, str]]:
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
                ours = f"MUSTER_TEST_TOKEN={self.token}".encode() in environ
                if ours and f"HOSTNAME={host}".encode() in environ:
                    yield int(name), Path(f"/proc/{name}/cmdline").read_text(errors="replace")

    def _signal_all(self, host: str, signo: int) -> None:
        for pid in in_namespace_of(self._init(host)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signo)


def _numbers(pid: int) -> list[str]:
    """A process's numbers in all namespaces, the innermost last."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        return next(line for line in status.splitlines() if line.startswith("NSpid")).split()[1:]
    return [""]
