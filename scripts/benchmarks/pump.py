"""85 MB of log lines through `train`, over the same lines written straight into the same pipe; start-up left out.

``lines`` writes each line at once, as PYTHONUNBUFFERED=1 does; ``blocks`` writes 8 KiB at a time, as Python does
without it.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import trial
from benchmarks.figure import Figure

SIZE = 85_000_000
SCRIPT = """\
import os
line = b"2026-01-01 00:00:00 INFO step 000000 loss 0.123456 lr 0.001 tokens/s 12345.6 grad_norm 0.98 mem 12.3G\\n"
out = open(1, "wb", 0 if os.environ["BENCH_HOW"] == "lines" else 8192, closefd=False)
for _ in range(int(os.environ["BENCH_BYTES"]) // len(line)):
    out.write(line)
out.flush()
"""
INHERITED = """\
import os, sys
pids = [os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ) for _ in range(int(os.environ["MUSTER_SLOTS"]))]
sys.exit(max(os.waitpid(pid, 0)[1] for pid in pids))
"""


def carry(command: list[str], base: Path, ranks: int, how: str) -> float:
    """Seconds from the first to the last byte of what ``ranks`` ranks write through ``command``."""
    options = {"MUSTER_LAUNCHER": "ranks" if ranks > 1 else "script", "MUSTER_SLOTS": str(ranks)}
    reader, writer = os.pipe()
    process = trial.start(command, base, writer, BENCH_BYTES=str(SIZE // ranks), BENCH_HOW=how, **options)
    os.close(writer)
    got, first, last = 0, 0.0, 0.0
    while data := os.read(reader, 1 << 20):
        last = time.monotonic()
        first = first or last
        got += len(data)
    os.close(reader)
    trial.finish(process, base, 0)
    if got < SIZE * 0.99:
        raise SystemExit(f"bench: {got} of {SIZE} bytes came through {command}")
    return last - first


def ratio(bench: trial.Bench, ranks: int, how: str, pairs: int) -> dict[str, float]:
    """The median of the ratios of paired, alternating runs, and the median seconds of both sides."""
    straight: list[float] = []
    through: list[float] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        base = trial.make(Path(folder) / "job", SCRIPT)
        script = [str(bench.python), str(base / "code" / "train.py")]
        sides = [(through, bench.train), (straight, [str(bench.python), "-c", INHERITED, *script])]
        for index in range(-1, pairs):
            for times, command in sides[:: 1 if index % 2 else -1]:
                seconds = carry(command, base, ranks, how)
                if index >= 0:
                    times.append(seconds)
    pairwise = [ours / bare for ours, bare in zip(through, straight, strict=True)]
    return {
        "ratio": round(statistics.median(pairwise), 3),
        "bare_s": round(statistics.median(straight), 3),
        "train_s": round(statistics.median(through), 3),
    }


def measure(bench: trial.Bench) -> list[Figure]:
    figures = []
    names = {
        1: "85 MB of log lines, start-up subtracted, over a raw pipe (lines; 8 KiB blocks)",
        8: "8 ranks writing at once, over inherited stdout (lines; 8 KiB blocks)",
    }
    for ranks, limit in ((1, 1.10), (8, 1.15)):
        facts = {how: ratio(bench, ranks, how, max(5, bench.runs // 3)) for how in ("lines", "blocks")}
        lines, blocks = facts["lines"]["ratio"], facts["blocks"]["ratio"]
        measured = f"{lines:.2f}; {blocks:.2f}"
        figures.append(Figure(names[ranks], f"≤ {limit:.2f}", measured, max(lines, blocks) <= limit, dict(facts)))
    return figures
