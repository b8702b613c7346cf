"""What the last words of a tool name rightly: the rank that failed, its exit code, and the user's error."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from benchmarks.peers import HOSTS, SLOTS, Peer, Said


class Row(NamedTuple):
    """A failure. ``name``; ``about`` as a phrase; the ``program`` of every rank by its collective: "torch" or "mpi".

    ``code``: the exit code of the rank that fails; 0: it hangs, so that any code but 0 is right.
    ``error``: a regular expression of what the user must read; empty: the code is all that there is.
    ``reported``: whether it is made after a report, not of the fault matrix. ``source``: that report; empty: unknown.
    ``every``: whether all ranks fail alike, so that each of them is the right one.
    ``at_exit``: whether it fails while the interpreter exits: a rank that is a thread of the tool's process doesn't.
    """

    name: str
    about: str
    programs: dict[str, str]
    code: int
    error: str
    reported: bool = False
    source: str = ""
    every: bool = False
    at_exit: bool = False

    @property
    def hangs(self) -> bool:
        return self.code == 0

    def applies_to(self, peer: Peer) -> bool:
        return peer.exits or not self.at_exit

    def digest(self, peer: Peer) -> str:
        """Changes when the program that ``peer`` runs for this row does."""
        return hashlib.sha256(self.programs[peer.collective].encode()).hexdigest()[:12]


class Verdict(NamedTuple):
    """What one place names rightly."""

    rank: bool
    code: bool
    error: bool

    def __str__(self) -> str:
        return ", ".join(f"{name} {'right' if told else 'wrong'}" for name, told in self._asdict().items())


RANKS = re.compile(
    r"(?i)(?<!local[ _])(?<!local)\brank\s*[:=]?\s*\[?(\d+)"  # also torchrun's table, [rank3]: and world_rank=3
    r"|\[rank(\d+)\]|world_rank=(\d+)"
    r"|Process name: \[(?:\[\d+,\d+\]|[^\[\],]+),(\d+)\]"  # Open MPI
    r"|\{(\d+): ProcessFailure\("  # ft_launcher
)
HEADINGS = (
    r"Root Cause \(first observed failure\)",  # torchrun's table
    r"Some rank\(s\) exited with non-zero exit code",  # ft_launcher
    r"Training failed due to worker errors",  # Ray Train
    r"MPI_ABORT was invoked on rank",  # Open MPI, as the next
    r"(?:mpirun|prterun) (?:detected that|noticed that process|has exited due to process)",
)
"""Where a tool's own account of the failure begins."""
ACCOUNT = re.compile(rf"(?:{'|'.join(HEADINGS)}).*", re.DOTALL)
WITHOUT_HEADING = 4000
"""Characters at the end that are taken for the tool's account where it has none of these headings."""
OF_THE_PROGRAM = re.compile(r"^.*(?:rank \d+ works|the last line of rank \d+|rank \d+ has saved).*$", re.MULTILINE)
GUESSES = re.compile(r"Some common causes include:.*|connection error code \d+")
"""Ray's list of what may have ended a worker, and the code of how it noticed."""
COLOURS = re.compile(r"\x1b\[[\d;]*m")
SIGNALS = {
    130: "SIGINT",
    132: "SIGILL",
    134: "SIGABRT",
    135: "SIGBUS",
    136: "SIGFPE",
    137: "SIGKILL",
    138: "SIGUSR1",
    139: "SIGSEGV",
    143: "SIGTERM",
}


def judged(row: Row, rank: int, said: Said) -> Verdict:
    """``rank``: the one that fails."""
    text = GUESSES.sub("", OF_THE_PROGRAM.sub("", COLOURS.sub("", said.text)))
    account = ACCOUNT.search(text)
    told = account[0] if account else text[-WITHOUT_HEADING:]
    first = RANKS.search(told)
    named = next((int(number) for number in first.groups() if number), -1) if first else -1
    right = named in range(HOSTS * SLOTS) if row.every else named == rank
    error = not row.error or re.search(row.error, text) is not None
    return Verdict(right, says_code(row.code, told, said.code), error)


def says_code(code: int, told: str, of_the_tool: int | None) -> bool:
    """Whether the words or the tool's own exit code (None: it had to be killed) say ``code``."""
    if not code:
        return of_the_tool not in (None, 0)
    numbers = [str(code)]
    if code in SIGNALS:
        numbers.append(f"-{code - 128}")
    if code > 128:
        numbers.append(str(code - 256))  # as a C program's exit(-1)
    number = rf"(?<![\d-])(?:{'|'.join(map(re.escape, numbers))})\b"
    patterns = [rf"(?i)exit ?code\W{{0,8}}?{number}", rf"(?i)(?:status|code)\W{{1,3}}?{number}"]
    if code in SIGNALS:
        patterns += [SIGNALS[code], rf"(?i)signal\W{{1,3}}{code - 128}\b"]
    return of_the_tool == code or any(re.search(pattern, told) for pattern in patterns)


def best(row: Row, rank: int, said: list[Said]) -> tuple[Verdict, str]:
    """The verdict on the place that names most, and what it says."""
    found = [(judged(row, rank, place), place.text) for place in said]
    return max(found, key=lambda pair: (sum(pair[0]), pair[0]), default=(Verdict(False, False, False), ""))
