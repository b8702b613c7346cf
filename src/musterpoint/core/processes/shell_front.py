"""The shells in front of a rank's programs: who is there, and who gets the signal to end when. Reads Linux' /proc.

A signal to a whole process group reaches a shell and its program together, and a shell acts on it when the program has
ended. Nothing of the script comes between: no next line, no ``wait -n``, no loop that looks whether a helper runs. So
shells are held while what they run ends, whether they trap the signal or not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat as stat_module
from typing import Container, Iterable, Iterator, Literal

from musterpoint.base.records import NamedTuple
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.process_tree import Stat

Pipe = tuple[int, int]
"""Device and inode of a pipe or a FIFO."""
Place = tuple[int, int]
"""Pid and descriptor by which a process has a pipe."""
STOP_WITH_CHILD = frozenset({"su", "runuser", "sudo", "script"})
"""Those of :data:`process_tree.PASSING` that stop themselves with their child, and let it go on when they do."""


class Front(NamedTuple):
    """A rank's processes down to its nearest programs, outer ones first.

    Zombies are left out.
    """

    root: int  # the rank's own
    parents: dict[int, int]  # of each but the root
    shells: list[int]
    waiters: dict[int, str]  # by pid the names of those that run one program and end as it does
    programs: list[int]  # those that were started first before later ones

    def members(self) -> list[int]:
        """The pids of all."""
        return [self.root, *self.parents]

    def above(self, pid: int) -> Iterator[int]:
        """The pids from the parent of ``pid`` up to the root."""
        while (pid := self.parents.get(pid, 0)) != 0:
            yield pid

    def below(self, pid: int) -> set[int]:
        """The pids of those that ``pid`` is above of."""
        return {other for other in self.parents if pid in self.above(other)}

    def leaves(self) -> list[int]:
        """The shells and waiters that run nothing now."""
        parents = set(self.parents.values())
        return [pid for pid in (*self.shells, *self.waiters) if pid not in parents]

    def stoppable(self, proc: str = "/proc") -> list[int]:
        """The shells that SIGSTOP may hold.

        One can't be held whose parent would stop then and carries a terminal's bytes (``script``): it has to run.
        """
        carriers = {
            pid for pid, name in self.waiters.items() if name in STOP_WITH_CHILD and _carries_terminal(pid, proc)
        }
        return [pid for pid in self.shells if self.parents.get(pid) not in carriers]


def front_of(root: int, signo: int = signal.SIGTERM, proc: str = "/proc") -> Front:
    """Finds the front of the process ``root``: itself alone, where it is a program or has ended.

    What a program has started is its own matter, unless it ignores ``signo``: then those are programs, too.
    """
    stat = process_tree.read_stat(root, proc)
    front = Front(root, {}, [], {}, [])
    programs: list[Stat] = []
    todo = [] if stat is None else [stat]
    for stat in todo:  # grows meanwhile
        if process_tree.is_shell(stat, proc):
            front.shells.append(stat.pid)
        elif stat.comm in process_tree.PASSING:
            front.waiters[stat.pid] = stat.comm
        else:
            programs.append(stat)
            if not process_tree.ignores(stat.pid, signo, proc):
                continue
        for child in process_tree.children_of(stat.pid, proc):
            if child.state not in "ZX" and child.pid not in front.parents:
                front.parents[child.pid] = stat.pid
                todo.append(child)
    front.programs.extend(stat.pid for stat in sorted(programs, key=lambda stat: (stat.started, stat.pid)))
    return front if todo else front._replace(programs=[root])


Turn = Literal["now", "held", "reads", "after", "late", "continued"]
"""When a process gets the signal.

now: at once. held: it is stopped until those before it have ended. reads: likewise, but it goes on while there is
something to read, and what it reads has no end before its turn. after: it goes on until those before it have ended.
late: likewise, and then it has time to end by itself. continued: it never gets the signal, but may have stopped itself
because its child was stopped.
"""


class Turns(NamedTuple):
    """The turns of a front's processes, outer ones first."""

    turns: dict[int, Turn]
    before: dict[int, set[int]]  # those that end before the turn of each comes that isn't told at once
    pipes: dict[int, list[Place]]  # of each shell that reads what programs write: those pipes' ends for writing

    def of(self, turn: Turn) -> list[int]:
        """The pids whose turn is this."""
        return [pid for pid, its in self.turns.items() if its == turn]


def turns(front: Front, signo: int, held: Container[int], proc: str = "/proc") -> Turns:
    """Gives everybody of a front a turn for ``signo``. ``held``: those that are stopped already.

    Waiters get no signal: some kill what they run, and all end as it does.
    """
    everyone = front.members()
    pipes = _Pipes(everyone, proc)
    readers = _only_readers(front, pipes, signo, proc)
    reading = {pid: [*found.values()] for pid in front.shells if (found := pipes.between(front.programs, pid))}
    now = {pid for pid in front.programs if pid not in readers}
    hearing = {pid for pid in front.shells if pipes.between(everyone, pid)}
    now.update(pid for pid in front.leaves() if pid not in hearing)
    # who writes what one reads that is told now is told, too: held, it would starve that one
    while writing := {
        pid for pid in front.shells if pid not in now and any(pipes.between([pid], told) for told in now)
    }:
        now |= writing
    its: dict[int, Turn] = {}
    for pid in everyone:
        if pid in now:
            its[pid] = "now"
        elif pid in held:
            its[pid] = "reads" if pid in reading else "held"
        elif pid not in front.waiters:
            its[pid] = "after" if pid in front.shells else "late"
        elif front.waiters[pid] in STOP_WITH_CHILD:
            its[pid] = "continued"
    parents = {*front.parents.values()}.intersection(front.programs)
    stopped = [pid for pid in its if its[pid] != "continued"]
    waited = {pid for pid in stopped if pid in parents or not process_tree.ignores(pid, signo, proc)}
    if not waited.intersection(front.programs):
        waited = {*its}  # all programs ignore it: their shells wait for them
    later = [pid for pid in front.shells if pid not in now]
    before = {}
    for pid in its:
        if pid not in now:
            # what reads from a shell that isn't told yet ends after that shell
            first = {other for other in front.below(pid) if not pipes.between(later, other)}
            if pid in readers or pid in hearing:  # not behind those that read its own words
                first |= {
                    other for other in everyone if pipes.between([other], pid) and not pipes.between([pid], other)
                }
            before[pid] = first & waited - {pid}
    return Turns(its, before, reading)


class _Pipes:
    """The pipes that processes read and write."""

    def __init__(self, pids: list[int], proc: str) -> None:
        self._ends = {pid: pipe_ends(pid, proc) for pid in pids} if len(pids) > 1 else {}

    def between(self, writers: Iterable[int], reader: int) -> dict[Pipe, Place]:
        """Finds the pipes that ``reader`` reads and others of ``writers`` write, with a place of each for writing."""
        read = self._ends[reader].reads if reader in self._ends else {}
        return {
            pipe: (pid, fd)
            for pid in (writers if read else ())
            if pid != reader and pid in self._ends
            for pipe, fd in self._ends[pid].writes.items()
            if pipe in read
        }


def _only_readers(front: Front, pipes: _Pipes, signo: int, proc: str) -> set[int]:
    """Finds the programs that only read what others write, as ``| tee`` does.

    They end after those. Signalled with them, they would take away the programs' stdout in the middle of a checkpoint.
    Who heeds the signal gets it with the others.
    """
    possible = [
        pid
        for pid in front.programs
        if pipes.between(front.members(), pid)
        and not any(pipes.between([pid], shell) and pipes.between([shell], pid) for shell in front.shells)
        and not (process_tree.catches(pid, signo, proc) or process_tree.blocks(pid, signo, proc))
    ]
    sources = {*front.members()} - {*possible}
    readers: set[int] = set()
    while found := {pid for pid in possible if pid not in readers and pipes.between(sources | readers, pid)}:
        readers |= found
    return readers  # those that read each other's output alone aren't among them


class PipeEnds(NamedTuple):
    """A process's ends of pipes and FIFOs, with a descriptor of each."""

    reads: dict[Pipe, int]
    writes: dict[Pipe, int]


def pipe_ends(pid: int, proc: str = "/proc") -> PipeEnds:
    """Finds the ends that a process has open.

    Stdin counts as one for reading, however it was opened, stdout and stderr as ones for writing.
    """
    ends = PipeEnds({}, {})
    for fd in process_tree.listed(f"{proc}/{pid}/fd"):
        path = f"{proc}/{pid}/fd/{fd}"
        with contextlib.suppress(OSError):  # closed meanwhile
            status = os.stat(path)
            if stat_module.S_ISFIFO(status.st_mode):
                mode = os.lstat(path).st_mode  # the link's own mode is that of the descriptor
                writes = fd in ("1", "2") or (fd != "0" and bool(mode & stat_module.S_IWUSR))
                (ends.writes if writes else ends.reads).setdefault((status.st_dev, status.st_ino), int(fd))
    return ends


def open_again(places: Iterable[Place], proc: str = "/proc") -> list[int]:
    """Opens pipes for writing, as far as we may; returns our descriptors."""
    found = []
    for pid, fd in places:
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            found.append(os.open(f"{proc}/{pid}/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    return found


def _carries_terminal(pid: int, proc: str) -> bool:
    """Asks for the master's side of a terminal: who has it must run, or what is behind it can't print."""
    folder = f"{proc}/{pid}/fd"
    return any("ptmx" in process_tree.link_of(f"{folder}/{fd}") for fd in process_tree.listed(folder))


def hearers(pid: int, signo: int, proc: str = "/proc") -> list[int]:
    """Finds whom ``signo``, which ends nothing, is for: programs that ``pid`` runs, and shells that catch it."""
    front = front_of(pid, signo, proc)
    told = turns(front, signo, (), proc).of("now")
    return [*told, *(shell for shell in front.shells if shell not in told and process_tree.catches(shell, signo, proc))]


def is_stopped(pid: int, proc: str = "/proc") -> bool:
    """Says if a process stands still by SIGSTOP, or has ended."""
    stat = process_tree.read_stat(pid, proc)
    return stat is None or stat.state in "TtZX"


def is_idle(shell: int, but: Container[int] = (), proc: str = "/proc") -> bool:
    """Says if a shell sleeps, or stands still, and runs nothing but those ``but``."""
    if any(child.state not in "ZX" and child.pid not in but for child in process_tree.children_of(shell, proc)):
        return False
    stat = process_tree.read_stat(shell, proc)  # after its children: the end of one wakes it
    return stat is None or stat.state not in "RD"
