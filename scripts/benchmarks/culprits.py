"""Who finds the culprit: in which share of failures do a tool's last words name the right rank, code and error?

The failures are rows of the fault matrix whose fault is in the program itself (``tests/faults``), and
``culprit_rows.py``'s, which are made after reports of users of other tools. Every tool runs the same program, four
ranks of which the last one fails. A row counts for a tool if one place has all three: the last 4,000 characters of one
host's output, or a file that the tool wrote about the failure.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.culprit_rows import ROWS as REPORTED
from benchmarks.figure import Figure
from benchmarks.peers import PEERS, Peer, Said, Stacks
from benchmarks.trial import Bench

ROOT = Path(__file__).resolve().parents[2]
GOAL = 0.99


class Row(NamedTuple):
    """``name``; ``about`` as a phrase; the ``program`` of every rank by its collective: "torch" or "mpi".

    ``code``: the job's right exit code. ``error``: a regular expression of what the user must read; empty: the code is
    all that there is.
    """

    name: str
    about: str
    programs: dict[str, str]
    code: int
    error: str


# What of the matrix is a failure of the program alone, with the words that its user must read.
SHARD = r"LookupError: no such shard: 17"
OF_MATRIX = {
    "raises": SHARD,
    "exits": "giving up",
    "leaves": "",
    "exit-text": "no data for rank 3",
    "group": r"ExceptionGroup: 2 shards can't be read",
    "killed": "",
    "segfault": "",
    "aborts": "",
    "bus": "",
    "terminated": "",
    "interrupted": "KeyboardInterrupt",
    "limited": "MemoryError",
    "exit-true": "",
    "noise": SHARD,
    "chained": SHARD,
    "quotes": "RuntimeError: task 3 failed",
    "last-moment": "",
    "timeout": r"Timeout \(0:00:00\.500000\)!",
    "cpp": "no such shard: 17",
    "child": SHARD,
    "daemon": SHARD,
    "flood": SHARD,
    "long-text": SHARD,
    "bytes": "ValueError: shard 17",
    "quotes-abort": SHARD,
    "ignores": SHARD,
    "neighbour": SHARD,
    "raises-waited": SHARD,
    "raises-late": SHARD,
    "killed-waited": "",
    "slow-raises": SHARD,
    "slow-exits": "",
    "slow-killed": "",
    "hangs": "slow_read",
}


def rows() -> Iterator[Row]:
    sys.path.insert(0, str(ROOT))
    from tests.faults.in_collective import IN_COLLECTIVE
    from tests.faults.in_rank import IN_RANK
    from tests.faults.launchers import MPI, TORCH

    preamble = (ROOT / "tests/faults/programs/preamble.py").read_text()
    starts = {"torch": preamble + TORCH, "mpi": preamble + MPI}
    matrix = {fault.name: fault for fault in (*IN_RANK, *IN_COLLECTIVE)}
    for name, error in OF_MATRIX.items():
        fault = matrix[name]
        assert fault.truth.code, f"{name}: no failure"
        programs = {kind: start + fault.body for kind, start in starts.items()}
        yield Row(name, fault.about, programs, fault.truth.code, error)
    for reported in REPORTED:
        programs = {kind: start + reported.body for kind, start in starts.items()}
        yield Row(reported.name, reported.about, programs, reported.code, reported.error)


class Verdict(NamedTuple):
    """What one place names rightly."""

    rank: bool
    code: bool
    error: bool


RANKS = re.compile(
    r"(?i)(?<!local[ _])(?<!local)\brank\s*[:=]?\s*\[?(\d+)"  # also torchrun's table, [rank3]: and world_rank=3
    r"|\[rank(\d+)\]|world_rank=(\d+)"
    r"|Process name: \[\[\d+,\d+\],(\d+)\]"  # Open MPI
)
TABLE = re.compile(r"Root Cause \(first observed failure\).*", re.DOTALL)
OF_THE_PROGRAM = re.compile(r"^.*(?:rank \d+ works|the last line of rank \d+|rank \d+ has saved).*$", re.MULTILINE)
SIGNALS = {130: "SIGINT", 134: "SIGABRT", 135: "SIGBUS", 137: "SIGKILL", 139: "SIGSEGV", 143: "SIGTERM"}


def judged(row: Row, rank: int, said: Said) -> Verdict:
    """``rank``: the one that fails."""
    text = OF_THE_PROGRAM.sub("", said.text)
    table = TABLE.search(text)
    told = table[0] if table else text
    first = RANKS.search(told)
    named = next((int(number) for number in first.groups() if number), -1) if first else -1
    codes = [rf"(?i)exit ?code\W{{0,8}}{row.code}\b", rf"(?i)(?:status|code)\W{{1,3}}{row.code}\b"]
    if row.code in SIGNALS:
        number = row.code - 128
        codes += [SIGNALS[row.code], rf"(?i)exit ?code\W{{0,8}}-{number}\b", rf"(?i)signal\W{{1,3}}{number}\b"]
    code = said.code == row.code or any(re.search(pattern, told) for pattern in codes)
    error = not row.error or re.search(row.error, text) is not None
    return Verdict(named == rank, code, error)


def one(row: Row, peer: Peer, stacks: Stacks) -> tuple[Verdict, str]:
    """The verdict on a tool, and what it said at the place that names most."""
    folder = Path(tempfile.mkdtemp(prefix="culprit-"))
    try:
        said = peer.run(row.programs[peer.collective], folder, stacks, row.name == "hangs")
        victim = folder / "events" / "victim"
        rank = int(victim.read_text()) if victim.exists() else -1
        return max(((judged(row, rank, place), place.text) for place in said), key=lambda pair: (sum(pair[0]), pair))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stacks_of(bench: Bench) -> Stacks:
    def made(stage: str) -> list[Path]:
        done = subprocess.run([ROOT / "scripts" / "setup", stage], stdout=subprocess.PIPE, text=True, check=True)
        return [Path(line) for line in done.stdout.splitlines()]

    return Stacks(bench.ours, bench.theirs, made("mpi")[0], made("ray")[0], made("resiliency")[0])


def measure(bench: Bench) -> list[Figure]:
    stacks = stacks_of(bench)
    every = {row.name: row for row in rows()}
    if unknown := set(bench.rows) - set(every):
        sys.exit(f"bench: --rows {','.join(sorted(unknown))}: expected some of {', '.join(every)}")
    table = [every[name] for name in bench.rows or every]
    found: dict[str, dict[str, tuple[Verdict, str]]] = {peer.name: {} for peer in PEERS}

    def note(row: Row, peer: Peer) -> None:
        verdict, _ = found[peer.name][row.name] = one(row, peer, stacks)
        words = ", ".join(f"{name} {'right' if told else 'wrong'}" for name, told in verdict._asdict().items())
        print(f"bench: culprit of {row.name}: {peer.name}: {words}", file=sys.stderr, flush=True)

    # Beside each other, as they mostly wait: no figure here is a time.
    with ExitStack() as lanes:
        waiting = []
        for peer in PEERS:
            lane = lanes.enter_context(ThreadPoolExecutor(1))
            waiting += [lane.submit(note, row, peer) for row in table]
        for each in waiting:
            each.result()
    return [figure(peer, found[peer.name], table, peer.version(stacks)) for peer in PEERS]


def figure(peer: Peer, found: dict[str, tuple[Verdict, str]], table: list[Row], version: str) -> Figure:
    """The line of one tool; behind it stand all verdicts, and what it said where one is wrong."""
    verdicts = [verdict for verdict, _ in found.values()]
    whole = sum(all(each) for each in verdicts)
    parts = {name: sum(getattr(each, name) for each in verdicts) for name in Verdict._fields}
    ours = peer.name.startswith("musterpoint")
    shares = ", ".join(f"{name} {100 * count / len(table):.0f} %" for name, count in parts.items())
    facts = {
        "peer": peer.name,
        "version": version,
        "rows": {row.name: row.about for row in table},
        "named": whole,
        **parts,
        "verdicts": {name: list(verdict) for name, (verdict, _) in found.items()},
        "said": {name: text for name, (verdict, text) in found.items() if not all(verdict)},
    }
    measured = f"{100 * whole / len(table):.0f} % of {len(table)} ({shares})"
    goal = f"≥ {100 * GOAL:.0f} %" if ours else "–"
    return Figure(
        f"culprit named: {peer.name} {version}", goal, measured, not ours or whole >= GOAL * len(table), facts
    )
