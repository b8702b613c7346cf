"""Models in parts: generated modules and steps, trained over the ranks of a pipeline and in one process.

What must hold: losses, weights and buffers are those of one process to 1e-11 in double precision, or the model is
refused by name. Ranks are real processes of this machine, so a model takes about a second. A tenth are of version 2
(``torch.sagemaker``). One that is wrong belongs into ``tests/unit/smdistributed`` then.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Sequence

from fuzzers.findings import MOST_WRONG, Findings

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 40
"""Models that one start of the ranks trains: on a busy machine they stay within a test's limit, too."""


def fuzz(number: int, inputs: int) -> Findings:
    sys.path.insert(0, str(ROOT))
    generated: Any = importlib.import_module("tests.unit.smdistributed.generated_models")
    degrees = inputs // 10
    drawn = generated.drawn(number, inputs - degrees)
    ranks_of: Any = importlib.import_module("tests.unit.smdistributed.conftest")
    parents = ranks_of.Parent(), ranks_of.Parent()
    wrong: list[str] = []
    tried = refused = 0
    for ranks, alike in itertools.groupby(drawn, lambda model: int(model["ranks"])):
        same = list(alike)
        for start in range(0, len(same), AT_ONCE):
            some = same[start : start + AT_ONCE]
            run = functools.partial(generated.trained, run=functools.partial(train, size=ranks, parents=parents))
            for model, errors in zip(some, found_of(some, run)):
                tried += 1
                if generated.refused(errors, model):
                    refused += 1
                elif not generated.exact(errors, model):
                    wrong.append(f"{[str(each)[-600:] for each in errors]}\n  {json.dumps(model)}")
            print(f"fuzz: {tried} models, {len(wrong)} wrong", file=sys.stderr, flush=True)
            if len(wrong) >= MOST_WRONG:
                break
    for each in parents:
        each.close()
    if degrees and len(wrong) < MOST_WRONG:
        others = second(number, degrees)
        tried, wrong = tried + others.tried, [*wrong, *others.wrong]
    print(f"smdistributed: {refused} models were refused by name")
    return Findings(tried, tuple(wrong))


def found_of(models: list[dict[str, Any]], run: Callable[..., list[list[Any]]]) -> list[list[Any]]:
    """Findings of the ranks for each model; None and why for one that ends them."""
    try:
        return run(models)
    except RuntimeError as error:
        if len(models) == 1:
            return [[None, str(error)]]
        print(f"fuzz: one of {len(models)} models ends the ranks: {error}", file=sys.stderr, flush=True)
    half = len(models) // 2
    return [*found_of(models[:half], run), *found_of(models[half:], run)]


def second(number: int, inputs: int) -> Findings:
    """Models of transformers divided by version 2's degrees."""
    generated: Any = importlib.import_module("tests.hosts.stacks.generated_degrees")
    made = subprocess.run([ROOT / "scripts/setup", "huggingface"], stdout=subprocess.PIPE, text=True, check=True)
    models: list[dict[str, Any]] = generated.drawn(number, inputs)
    run = functools.partial(_second, python=Path(made.stdout.splitlines()[0]) / "python")
    wrong: list[str] = []
    for start in range(0, len(models), AT_ONCE):  # groups of ranks stay, with their threads
        some = models[start : start + AT_ONCE]
        for model, errors in zip(some, found_of(some, run)):
            if not generated.exact(errors) and not generated.refused(errors):
                wrong.append(f"{[str(each)[-600:] for each in errors]}\n  {json.dumps(model)}")
    return Findings(len(models), tuple(wrong))


def _second(models: list[dict[str, Any]], python: Path) -> list[list[Any]]:
    """Findings of each model's ranks. Raises RuntimeError: they have ended."""
    ranks: Any = importlib.import_module("tests.unit.smdistributed.conftest")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "models.jsonl"
        file.write_text("\n".join(map(json.dumps, models)), encoding="utf-8")
        environ = {**os.environ, "PYTHONPATH": ranks.STARTUP, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port())}  # fmt: skip
        program = ROOT / "tests/hosts/stacks/programs/tsm_generated.py"
        command = [python, program, file]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"code {done.returncode}: {done.stderr[-1500:]}")
    found: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def train(models: Sequence[dict[str, Any]], size: int, parents: Any) -> list[list[Any]]:
    """What each rank found of the models, up to the first that failed.

    Raises:
        RuntimeError: a rank has ended.
    """
    ranks: Any = importlib.import_module("tests.unit.smdistributed.conftest")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        file = folder / "models.jsonl"
        file.write_text("\n".join(map(json.dumps, models)), encoding="utf-8")
        environ = {**os.environ, "PYTHONPATH": ranks.STARTUP, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(port()),
                   "SMP_TIMEOUT_SECONDS": "100"}  # fmt: skip
        running = []
        for rank in range(size):
            out, err = (stack.enter_context(open(folder / f"{rank}.{name}", "w+b")) for name in ("out", "err"))
            words = [str(ranks.PROGRAMS / "smp_generated.py"), str(file)]
            own = {**environ, **ranks.by_torchrun(rank, size)}
            running.append((parents[rank % 2].fork(words, own, folder, out, err), out, err))
        found: list[list[Any]] = []
        ended = ""
        for rank, (pid, out, err) in enumerate(running):
            code = parents[rank % 2].wait(pid)
            for each in (out, err):
                each.seek(0)
            said, errors = (each.read().decode(errors="replace") for each in (out, err))
            if code:
                ended = ended or f"code {code}: {errors[-1500:]}"
            else:
                found.append(json.loads(said.splitlines()[-1])["found"])
    if ended:
        raise RuntimeError(ended)
    return found
