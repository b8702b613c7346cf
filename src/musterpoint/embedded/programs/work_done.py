"""What processes have done so far: processor time, bytes, turns, pages."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from musterpoint.embedded.programs.process_files import read_text, size_of, stat_of, ticks_of

TICKS_PER_SECOND = 1.0
"""Hundredths of a second of processor time: 1 % of a processor is what idle helper threads use."""
IDLE_BYTES, IDLE_BYTES_SECONDS = 4096, 10.0
"""So many bytes, in so many seconds, are what idle connections move."""
POLLERS = re.compile(r"/horovod/\S*mpi_lib\S*\.so$", re.MULTILINE)
"""Libraries whose own threads look for work a thousand times a second, also while there is none: Horovod's cycle is
1 ms (``horovod/common/operations.cc``, HOROVOD_CYCLE_TIME).
"""
POLL_SECONDS = 100e-6
"""What such a thread runs at a time: 10 to 20 µs were measured. One that computes runs until another gets its turn,
which is 0.5 ms or more.
"""
POLL_SHARE = 0.25
"""Of a processor, for all such threads of a process: 2 % were measured."""
STARVED_SHARE = 0.5
"""Of the time between the looks: a thread that ran or waited for a processor for so long wanted to run, though a busy
machine may have given it next to nothing.
"""
FEW_FAULTS = 16
"""Pages that a process which only looks for messages touches for the first time, between two looks."""


class Work(NamedTuple):
    """What processes or threads have done so far: ``ticks`` of processor time used, ``size`` bytes read and written.

    ``polled``: the same of their threads that may only look for work, each with ``seconds`` on a processor and the
    ``turns`` in which it had them, by thread.
    """

    ticks: int
    size: int
    polled: dict[int, Thread] = {}

    def since(self, earlier: Work, seconds: float) -> tuple[int, int]:
        """Ticks and bytes since ``earlier``, ``seconds`` ago, without those of threads that only looked for work."""
        ticks, size = self.ticks - earlier.ticks, self.size - earlier.size
        ran = [thread.since(earlier.polled[tid]) for tid, thread in self.polled.items() if tid in earlier.polled]
        idle = [each for each in ran if each.seconds <= each.turns * POLL_SECONDS]
        if sum(each.seconds for each in idle) > seconds * POLL_SHARE:
            return ticks, size
        return ticks - sum(each.ticks for each in idle), size - sum(each.size for each in idle)


class Thread(NamedTuple):
    """A thread of a process, as :class:`Work`."""

    ticks: int
    size: int
    seconds: float
    turns: int

    def since(self, earlier: Thread) -> Thread:
        ticks, size, seconds, turns = earlier
        return Thread(self.ticks - ticks, self.size - size, self.seconds - seconds, self.turns - turns)


def work_of(pids: list[int], python: dict[int, set[int]]) -> Work:
    """What these processes have done so far; ``python``: threads that run Python, where they are known."""
    ticks = size = 0
    polled: dict[int, Thread] = {}
    for pid in pids:
        ticks += ticks_of(stat_of(pid))
        size += size_of(read_text(f"/proc/{pid}/io"))
        if pid in python and POLLERS.search(read_text(f"/proc/{pid}/maps")):
            polled.update(native_threads(pid, python[pid]))
    return Work(ticks, size, polled)


def native_threads(pid: int, python: set[int]) -> dict[int, Thread]:
    """The threads of a process that run no Python. A kernel that doesn't count a thread's time says nothing of any."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/task"):
        folder, tid = f"/proc/{pid}/task/{name}", int(name)
        spent = read_text(f"{folder}/schedstat").split()
        if tid != pid and tid not in python and len(spent) == 3:
            fields = read_text(f"{folder}/stat").rpartition(")")[2].split()
            size = size_of(read_text(f"{folder}/io"))
            found[tid] = Thread(ticks_of(fields), size, int(spent[0]) / 1e9, int(spent[2]))
    return found


class Turns(NamedTuple):
    """What a thread had of a processor so far: the seconds for which it ``ran`` and ``waited`` for its turn, and in how
    many ``turns``. ``runs``: it has or wants one now. ``main``: it is its process's main thread.
    """

    ran: float
    waited: float
    turns: int
    runs: bool
    main: bool

    def wanted(self, earlier: Turns, seconds: float) -> bool:
        """Whether it wanted to run for most of the ``seconds`` since ``earlier``. A thread that only looks for work may
        wait for long on a busy machine, too, but then it runs for a moment; a main thread is none.
        """
        ran, waited, turns = self.ran - earlier.ran, self.waited - earlier.waited, self.turns - earlier.turns
        if not turns:  # the kernel adds what a thread waits when its turn has come
            return self.runs and earlier.runs
        return ran + waited > seconds * STARVED_SHARE and (self.main or ran > turns * POLL_SECONDS)


def turns_of(pids: list[int]) -> dict[int, Turns]:
    """The threads of processes, where the kernel counts their turns."""
    found = {}
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for name in names:
            spent = read_text(f"/proc/{pid}/task/{name}/schedstat").split()
            if len(spent) == 3:
                ran, waited, turns = map(int, spent)
                runs = stat_of(f"{pid}/task/{name}")[:1] == ["R"]
                found[int(name)] = Turns(ran / 1e9, waited / 1e9, turns, runs, int(name) == pid)
    return found


def faults_of(pid: int) -> int:
    """How often a process touched a page of memory for the first time."""
    fields = stat_of(pid)
    return int(fields[7]) + int(fields[9]) if len(fields) > 9 else 0
