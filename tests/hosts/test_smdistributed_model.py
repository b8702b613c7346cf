"""Scripts for AWS's smdistributed.modelparallel on two hosts, unchanged, under mpirun and under torchrun."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest

pytestmark = pytest.mark.torch


READ = """
import runpy, sys, torch
import musterpoint_smdistributed
example = runpy.run_path(sys.argv[1])
saved = torch.load(sys.argv[2], weights_only=True)
if "shared" in sys.argv:
    import smdistributed.modelparallel.torch as smp
    smp.init({})
model = example["VisionTransformer"]()
model.load_state_dict(saved["model_state_dict"])
if "shared" not in sys.argv:
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.load_state_dict(saved["optimizer_state_dict"])
    for parameter in model.parameters():
        assert optimizer.state[parameter]["exp_avg"].shape == parameter.shape
images, labels = example["digits"]()[1].tensors
print((model.eval()(images).argmax(dim=1) == labels).float().mean().item())
"""
"""The checkpoint of an example in a program without any model parallelism, or of ranks that shared tensors in one."""

SAME = """
import sys, torch
one, *others = (torch.load(path, weights_only=True) for path in sys.argv[1:])
for two in others:
    assert list(one) == list(two), (list(one), list(two))
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=0, atol=1e-5)
"""


def two_hosts(slots: int, **parameters: Any) -> tuple[str, ...]:
    asked = {"partitions": 2, "microbatches": 4, "ddp": True, **parameters}
    distribution = {
        "smdistributed": {"modelparallel": {"enabled": True, "parameters": asked}},
        "mpi": {"enabled": True, "processes_per_host": slots},
    }
    return "--hosts", "2", "--backend", "process", "--distribution", json.dumps(distribution)


def accuracies(ran: Any) -> list[float]:
    assert ran.code == 0, ran.stderr + ran.stdout
    return [float(text) for text in re.findall(r"(?:test|val):accuracy=([0-9.]+);", ran.stdout)]


def model_of(ran: Any, name: str) -> Path:
    path: Path = ran.output / "hosts/algo-1/opt/ml/model" / name
    return path


def run(local: Any, *words: object) -> str:
    done = subprocess.run(
        [local.python, *map(str, words)], env=local.environ, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_alone(local: Any, *words: object) -> float:
    return float(run(local, "-c", READ, *words))


@pytest.fixture
def mpirun(local: Any, stack: Callable[[str], Path]) -> None:
    local.environ["PATH"] = f"{stack('openmpi4')}{os.pathsep}{local.environ['PATH']}"
    local.environ["MUSTER_PYTHON"] = local.python


def test_the_example_under_mpirun(local: Any, root: Path, mpirun: None) -> None:
    """Each copy of the model on one host. Its checkpoint is a plain model's."""
    example = root / "examples/smdistributed/model_parallel.py"
    ran = local.run(*two_hosts(2), example, "--epochs", "2")
    printed = accuracies(ran)
    assert len(printed) == 2, "rank 0 alone prints"
    assert printed[-1] > 0.85
    assert "ranks=4; partitions=2;" in ran.stdout
    assert "launcher mpi" in ran.log("algo-1")
    assert read_alone(local, example, model_of(ran, "checkpoint.pt")) == pytest.approx(printed[-1], abs=1e-4)


def test_the_example_where_there_is_no_mpirun(local: Any, root: Path, tmp_path: Path) -> None:
    """The model over both hosts."""
    local.environ["PATH"] = str(tmp_path)
    example = root / "examples/smdistributed/model_parallel.py"
    ran = local.run(*two_hosts(1, placement_strategy="spread"), example, "--epochs", "2")
    assert accuracies(ran)[-1] > 0.85
    assert model_of(ran, "checkpoint.pt").exists()
    assert "launcher torchrun" in ran.log("algo-1")


def test_ranks_that_share_tensors(local: Any, root: Path, mpirun: None) -> None:
    """Of one host; each host has a part of the pipeline. The checkpoint is one process's."""
    example = root / "examples/smdistributed/tensor_parallel.py"
    ran = local.run(*two_hosts(2, tensor_parallel_degree=2), example, "--epochs", "1")
    printed = accuracies(ran)
    assert len(printed) == 1 and printed[-1] > 0.8
    assert "ranks=4; partitions=2; tensors=2;" in ran.stdout
    assert "tensor parallelism over 2 ranks: 2 DistributedLinear, 1 DistributedTransformer" in ran.log("algo-1")
    assert read_alone(local, example, model_of(ran, "checkpoint.pt"), "shared") == pytest.approx(printed[-1], abs=1e-4)


def test_the_same_with_and_without_it(local: Any, root: Path, tmp_path: Path) -> None:
    """The pair of docs/smp-to-pytorch.md: the same loss and the same weights, from a pipeline, shards and FSDP."""
    shared = {"microbatches": 4, "ddp": True}
    jobs: dict[str, dict[str, Any] | None] = {
        "pipeline": {"partitions": 2, **shared},
        "shards": {"sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0, **shared},
        "plain": None,
    }
    losses, weights = {}, {}
    for name, asked in jobs.items():
        model_parallel = {"smdistributed": {"modelparallel": {"enabled": True, "parameters": asked}}}
        words = ("--distribution", json.dumps(model_parallel)) if asked else ()
        script = root / "examples/smdistributed" / ("with_smp.py" if asked else "without_smp.py")
        local.output = tmp_path / name
        ran = local.run("--hosts", "1", "--slots", "2", "--launcher", "ranks", *words, script)
        assert ran.code == 0, ran.stderr + ran.stdout
        printed = re.findall(r"loss=([0-9.]+)", ran.stdout)
        assert len(printed) == 2
        losses[name], weights[name] = float(printed[0]), str(model_of(ran, "model.pt"))
    assert losses["pipeline"] == pytest.approx(losses["plain"], abs=2e-6)
    assert losses["shards"] == pytest.approx(losses["plain"], abs=2e-6)
    run(local, "-c", SAME, *weights.values())
