"""Models in parts: generated modules and steps, trained over the ranks of a pipeline and in one process.

What must hold: losses, weights and buffers are those of one process to 1e-11 in double precision, or the model is
refused by name. Ranks are real processes of this machine, so a model takes about a second. One that is wrong belongs
into ``tests/unit/smdistributed`` then.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings

from fuzzers.findings import MOST_WRONG, Findings

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "unit" / "smdistributed" / "programs"
RANKS = 4
AT_ONCE = 25
"""Models that one start of the ranks trains."""


def fuzz(number: int, inputs: int) -> Findings:
    sys.path.insert(0, str(ROOT))
    generated: Any = importlib.import_module("tests.unit.smdistributed.generated_models")
    drawn: list[dict[str, Any]] = []

    @seed(number)
    @settings(max_examples=inputs, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(generated.models(RANKS))
    def draw(model: dict[str, Any]) -> None:
        drawn.append(model)

    draw()
    wrong: list[str] = []
    tried = 0
    for start in range(0, len(drawn), AT_ONCE):
        some = drawn[start : start + AT_ONCE]
        tried += len(some)
        found = train(some)
        if isinstance(found, str):
            wrong.append(f"{found}\n  one of: {json.dumps(some)}")
        else:
            for model, errors in zip(some, zip(*found)):
                exact = all(isinstance(each, float) and each <= generated.LIMIT for each in errors)
                if not exact and not generated.refused(list(errors)):
                    wrong.append(f"{[str(each)[-600:] for each in errors]}\n  {json.dumps(model)}")
        if len(wrong) >= MOST_WRONG:
            break
    return Findings(tried, tuple(wrong[:MOST_WRONG]))


def train(models: list[dict[str, Any]]) -> list[list[Any]] | str:
    """What each rank found of each model, or what ended a rank."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "models.jsonl"
        file.write_text("\n".join(map(json.dumps, models)), encoding="utf-8")
        ranks = []
        for rank in range(RANKS):
            own = {
                "RANK": rank,
                "LOCAL_RANK": rank,
                "WORLD_SIZE": RANKS,
                "LOCAL_WORLD_SIZE": RANKS,
                "MASTER_PORT": port,
            }
            environ = {
                **os.environ, **{name: str(value) for name, value in own.items()}, "MASTER_ADDR": "127.0.0.1",
                "PYTHONPATH": str(ROOT / "src" / "musterpoint_smdistributed" / "startup"), "OMP_NUM_THREADS": "1",
                "SMP_TIMEOUT_SECONDS": "300",
            }  # fmt: skip
            out = open(Path(folder) / f"{rank}.out", "w+b")  # noqa: SIM115 - closed below
            err = open(Path(folder) / f"{rank}.err", "w+b")  # noqa: SIM115
            words = [sys.executable, str(PROGRAMS / "smp_generated.py"), str(file)]
            ranks.append((subprocess.Popen(words, env=environ, stdout=out, stderr=err, cwd=folder), out, err))
        found: list[list[Any]] = []
        ended = ""
        for process, out, err in ranks:
            code = process.wait()
            with out, err:
                out.seek(0)
                err.seek(0)
                if code:
                    ended = ended or f"code {code}: {err.read().decode(errors='replace')[-1500:]}"
                else:
                    found.append(json.loads(out.read().decode().splitlines()[-1])["found"])
    return ended or found
