"""Who finds the culprit: in which share of failures do a tool's last words name the right rank, code and error?

The failures are rows of the fault matrix whose fault is in the program itself (``tests/faults``), and those of
``reported``, which are made after reports of users of other tools. Every tool runs the same program, four
ranks of which the last one fails. A row counts for a tool if one place has all three: the last 12,000 characters of one
host's output, or a file that the tool wrote about the failure. What was said when a tool had to be killed counts too.
A row that is wrong is tried once more with twice the time, for every tool.

What tools say is kept in FILE.part beside ``--json FILE``, and a run that is stopped goes on there. The order of rows
has nothing to do with what they are, so that those which are done are a fair sample.
"""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from benchmarks.culprit_record import Record, Trial
from benchmarks.figure import Figure
from benchmarks.peers import PEERS, Peer, Stacks, Stopped, Told
from benchmarks.reported import ROWS as REPORTED
from benchmarks.trial import Bench
from benchmarks.verdicts import Row, Verdict

ROOT = Path(__file__).resolve().parents[2]
GOAL = 0.99
TRIALS = 3
AGAIN = 2.0
"""By what the limits are multiplied when a row is tried again."""

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


AT_EXIT = {"last-moment"}
HANGS = {"hangs"}


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
        code = 0 if name in HANGS else fault.truth.code
        yield Row(name, fault.about, programs, code, error, at_exit=name in AT_EXIT)
    for each in REPORTED:
        programs = {kind: start + each.body for kind, start in starts.items()}
        facts = (True, each.source, each.every, each.at_exit)
        yield Row(each.name, each.about, programs, each.code, each.error, *facts)


def one(row: Row, peer: Peer, stacks: Stacks, patience: float, stop: threading.Event) -> Told:
    folder = Path(tempfile.mkdtemp(prefix="culprit-", dir="/tmp"))  # Ray's sockets need a short path
    try:
        return peer.run(row.programs[peer.collective], folder, stacks, row.hangs, patience, stop)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stacks_of(bench: Bench) -> Stacks:
    def made(stage: str) -> list[Path]:
        done = subprocess.run([ROOT / "scripts" / "setup", stage], stdout=subprocess.PIPE, text=True, check=True)
        return [Path(line) for line in done.stdout.splitlines()]

    openmpi4, openmpi5 = made("openmpi4")[0], made("mpi")[0]
    return Stacks(bench.ours, bench.theirs, openmpi5, openmpi4, made("ray")[0], made("resiliency")[0])


def chosen(names: tuple[str, ...]) -> list[Row]:
    """The rows of these names, or all of them, in the order in which they are run."""
    every = {row.name: row for row in rows()}
    if unknown := set(names) - set(every):
        sys.exit(f"bench: --rows {','.join(sorted(unknown))}: expected some of {', '.join(every)}")
    found = [every[name] for name in names] if names else list(every.values())
    return sorted(found, key=lambda row: hashlib.sha256(row.name.encode()).digest())


def measure(bench: Bench) -> list[Figure]:
    table = chosen(bench.rows)
    stacks = stacks_of(bench)
    versions = {peer.name: peer.version(stacks) for peer in PEERS}
    record = Record(bench.kept, versions)
    stop = threading.Event()

    def end(signo: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        todo = [(row, peer) for row in table for peer in PEERS if due(record, row, peer)]
        run_all(todo, record, stacks, bench.lanes, stop)
    except KeyboardInterrupt:
        sys.exit(f"bench: stopped; the same command goes on with what is in {bench.kept}" if bench.kept else 130)
    finally:
        signal.signal(signal.SIGTERM, before)
    return [figure(peer, record, table, versions[peer.name]) for peer in PEERS]


def due(record: Record, row: Row, peer: Peer) -> float:
    """With how much patience a row is to be run next: at first 1, again if what was said is wrong; 0: it is done.

    A trial in which the ranks didn't come to the failure says nothing, and is made anew, up to three times in all.
    """
    trials = record.of(row, peer)
    struck = [trial.patience for trial in trials if trial.told.rank >= 0]
    if not row.applies_to(peer) or AGAIN in struck or len(trials) - len(struck) >= TRIALS:
        return 0
    found = record.verdict(row, peer)
    if found is None:
        return 1
    return 0 if all(found[0]) else AGAIN


def run_all(todo: list[tuple[Row, Peer]], record: Record, stacks: Stacks, lanes: int, stop: threading.Event) -> None:
    """Runs what is left, ``lanes`` at the same time: they mostly wait, and no figure here is a time."""
    done = 0

    def run(row: Row, peer: Peer) -> None:
        nonlocal done
        try:
            while not stop.is_set() and (patience := due(record, row, peer)):
                began = time.monotonic()
                told = one(row, peer, stacks, patience, stop)
                record.add(Trial(peer.name, row.name, row.digest(peer), patience, told))
                found = record.verdict(row, peer)
                next_one = ", and once more" if due(record, row, peer) else ""
                said = f"{found[0] if found and told.rank >= 0 else 'did not come to the failure'}{next_one}"
                words = f"{row.name}: {peer.name}: {said}, {time.monotonic() - began:.0f} s"
                print(f"bench: culprits {done + 1}/{len(todo)}: {words}", file=sys.stderr, flush=True)
            done += 1
        except Stopped:
            pass

    with ThreadPoolExecutor(lanes) as pool:
        waiting = [pool.submit(run, row, peer) for row, peer in todo]
        try:
            for each in waiting:
                each.result()
        except BaseException:
            stop.set()
            raise


def figure(peer: Peer, record: Record, table: list[Row], version: str) -> Figure:
    """The line of one tool; behind it stand all verdicts, and what it said where one is wrong."""
    found = {row.name: pair for row in table if (pair := record.verdict(row, peer)) and row.applies_to(peer)}
    verdicts = [verdict for verdict, _ in found.values()]
    whole = sum(all(each) for each in verdicts)
    parts = {name: sum(getattr(each, name) for each in verdicts) for name in Verdict._fields}
    ours = peer.name.startswith("musterpoint")
    count = max(len(verdicts), 1)
    shares = ", ".join(f"{name} {100 * number / count:.0f} %" for name, number in parts.items())
    facts = {
        "peer": peer.name,
        "version": version,
        "rows": {row.name: row.about for row in table},
        "named": whole,
        **parts,
        "verdicts": {name: list(verdict) for name, (verdict, _) in found.items()},
        "said": {name: text for name, (verdict, text) in found.items() if not all(verdict)},
    }
    measured = f"{100 * whole / count:.0f} % of {len(verdicts)} ({shares})"
    goal = f"≥ {100 * GOAL:.0f} %" if ours else "–"
    return Figure(f"culprit named: {peer.name} {version}", goal, measured, not ours or whole >= GOAL * count, facts)
