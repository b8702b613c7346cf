"""One job of a few ranks on this machine, whose programs import musterpoint's smdistributed."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import trial

STARTUP = Path(__file__).resolve().parents[2] / "src" / "musterpoint_smdistributed" / "startup"
PORT = "29577"

TURNS = """
import json, time

times = {"smp": [], "torch": []}
for index in range(-2, rounds):  # the first two build what later ones use
    for name, step in (("smp", ours), ("torch", torchs)):
        smp.barrier()
        began = time.perf_counter()
        step()
        smp.barrier()
        if index >= 0:
            times[name].append(time.perf_counter() - began)
if smp.rank() == 0:
    print(json.dumps(times), flush=True)
smp.barrier()
"""
"""The end of a program that has steps ``ours`` and ``torchs``, which take turns, ``rounds`` of each; it prints their
seconds.
"""


def run(bench: trial.Bench, text: str, ranks: int, *words: str, **more: str) -> Any:
    """What rank 0 printed, as JSON. ``text`` is the program, ``words`` its arguments, ``more`` its variables.

    A rank that fails ends the benchmark.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        program = Path(folder, "program.py")
        program.write_text(text)
        started = []
        for rank in range(ranks):
            launched = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
                        "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT,
                        "PYTHONPATH": str(STARTUP)}  # fmt: skip
            started.append(subprocess.Popen(
                [str(bench.python), str(program), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env={**trial.environment(), **launched, **more},
            ))  # fmt: skip
        said = [process.communicate(timeout=trial.LIMIT) for process in started]
    for process, (_out, errors) in zip(started, said):
        if process.returncode:
            raise SystemExit(f"bench: a rank ended with {process.returncode}:\n{os.fsdecode(errors)[-2000:]}")
    return json.loads(said[0][0])
