#!/usr/bin/env python3
"""What the log pump costs: the time to carry log lines, over the same lines through a bare pipe. Prints JSON.

Each figure is the median of ratios of paired runs, alternating in one process. Start-up is left out: a run's time is
from the first byte to the end of the stream. Ranks are Python programs that print; ``lines`` writes each line at once
(PYTHONUNBUFFERED), ``blocks`` 8 KiB at a time, as Python does without it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

WRITER = """
import sys
size = int(sys.argv[1])
line = "2026-01-01 00:00:00 INFO step 000000 loss 0.123456 lr 0.001 tokens/s 12345.6 grad_norm 0.98 mem 12.3G"
for _ in range(size // (len(line) + 1)):
    print(line)
"""

SUPERVISOR = """
import os, sys
from musterpoint.supervise.pump import Pump
ranks, argv = int(sys.argv[1]), sys.argv[2:]
pump, pids = Pump(streams=ranks), []
for rank in range(ranks):
    out, err = pump.open(rank, rank)
    actions = [(os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, err, 2)]
    pids.append(os.posix_spawn(argv[0], argv, os.environ, file_actions=actions))
    for end in {out, err}:
        os.close(end)
pump.start()
for pid in pids:
    os.waitpid(pid, 0)
assert pump.drain(60)
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(line.split()[1], file=open(os.environ["BENCH_MEMORY"], "w"))
"""

BARE = """
import os, sys
argv = sys.argv[2:]
pids = [os.posix_spawn(argv[0], argv, os.environ) for _ in range(int(sys.argv[1]))]
for pid in pids:
    os.waitpid(pid, 0)
"""


def seconds(program: str, ranks: int, size: int, how: str) -> float:
    """First byte to end of stream, for ``size`` bytes in all written by ``ranks`` processes."""
    unbuffered = ["-u"] if how == "lines" else []
    writer = [sys.executable, *unbuffered, "-I", "-S", "-c", WRITER, str(size // ranks)]
    read_end, write_end = os.pipe()
    command = [sys.executable, "-c", program, str(ranks), *writer]
    process = subprocess.Popen(command, stdout=write_end, stderr=write_end)
    os.close(write_end)
    got, started = 0, 0.0
    while data := os.read(read_end, 1 << 20):
        started = started or time.perf_counter()
        got += len(data)
    elapsed = time.perf_counter() - started
    os.close(read_end)
    if process.wait() != 0 or got < size * 0.99:
        raise SystemExit(f"the run failed: code {process.returncode}, {got} of {size} bytes")
    return elapsed


def measure(ranks: int, size: int, how: str, pairs: int) -> dict[str, float]:
    bare, pumped = [], []
    for index in range(pairs):
        for program, times in ((BARE, bare), (SUPERVISOR, pumped))[:: 1 if index % 2 else -1]:
            times.append(seconds(program, ranks, size, how))
    return {
        "ratio": round(statistics.median(b / a for a, b in zip(bare, pumped, strict=True)), 3),
        "bare_s": round(statistics.median(bare), 3),
        "pumped_s": round(statistics.median(pumped), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7, help="paired runs for each figure (default 7)")
    parser.add_argument("--megabytes", type=int, default=85, help="log text per run (default 85)")
    options = parser.parse_args()
    source = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    size = options.megabytes * 1_000_000
    memory = f"/tmp/bench_pump.{os.getpid()}"
    os.environ["BENCH_MEMORY"] = memory
    figures: dict[str, object] = {"cpus": os.cpu_count(), "megabytes": options.megabytes, "pairs": options.pairs}
    for ranks in (1, 8):
        for how in ("lines", "blocks"):
            figures[f"{ranks}_rank_{how}"] = measure(ranks, size, how, options.pairs)
        with open(memory) as file:
            figures[f"{ranks}_rank_supervisor_kib"] = int(file.read())
    os.unlink(memory)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
