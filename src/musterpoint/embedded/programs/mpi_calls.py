"""Which processes are in one and the same call of an MPI."""

from __future__ import annotations

import json
import subprocess
import sys

from musterpoint.embedded.programs.process_files import MPI_LIBRARY, answers_of, poke, read, stat_of, ticks_of
from musterpoint.embedded.programs.process_stacks import RETURNS
from musterpoint.embedded.programs.work_done import TICKS_PER_SECOND

CALLS_SECONDS = 5.0
"""For the end of the program that looks at native code, beside the time between the looks."""
FEW_CALLS = 5
"""So many moments at least, all of them in an MPI, say that a thread was there all the time."""


class Calls:
    """Where in native code the processes are, from now on for ``seconds``; those that have no MPI aren't looked at."""

    def __init__(self, program: str, seconds: float, pids: list[int]) -> None:
        self._returns = {pid: Returns(pid) for pid in pids if MPI_LIBRARY.search(read(f"/proc/{pid}/maps"))}
        self._ticks = {pid: self._others(pid) for pid in self._returns}
        self._seconds = seconds
        words = [sys.executable, "-I", "-S", program, str(seconds), *map(str, self._returns)]
        self._child = (
            subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            if self._returns
            else None
        )

    @staticmethod
    def _others(pid: int) -> int:
        """Processor time of all threads but the main one."""
        return ticks_of(stat_of(pid)) - ticks_of(stat_of(f"{pid}/task/{pid}"))

    def in_mpi(self) -> dict[int, int]:
        """The processes that were in an MPI's libraries whenever they were looked at, with the number of their call."""
        if self._child is None:
            return {}
        try:
            counts = json.loads(self._child.communicate(timeout=CALLS_SECONDS)[0])
        except (subprocess.TimeoutExpired, ValueError):  # a thread didn't stop, or nothing is known of this machine
            self._child.kill()
            return {}
        found = {}
        for pid, returns in self._returns.items():
            inside, outside = counts[str(pid)]
            others = self._others(pid) - self._ticks[pid]
            if inside >= FEW_CALLS and not outside and others <= max(2.0, self._seconds * TICKS_PER_SECOND):
                found[pid] = returns.call()
        return found


class Returns:
    """Whether the main thread of a process has run Python since it was asked. A question that it hasn't answered isn't
    asked again: then its number says that it has been in one and the same call since.
    """

    def __init__(self, pid: int) -> None:
        self._path = ""
        try:
            for path, bell in answers_of(pid, RETURNS):
                self._path = path
                if not self.call():
                    poke(bell)
        except (OSError, ValueError):
            pass

    def call(self) -> int:
        """The number of the question that is open; 0: none is, or none could be asked."""
        try:
            with open(self._path, "rb") as file:
                asked, came = file.read(8), file.read(8)
        except OSError:
            return 0
        return int.from_bytes(asked, "big") if asked != came else 0
