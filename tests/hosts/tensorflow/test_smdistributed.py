"""Scripts for AWS's smdistributed with TensorFlow on two hosts, on TensorFlow's own collectives and on Horovod."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Callable

import pytest

GRADIENTS = Path(__file__).parents[1] / "smdistributed" / "tensorflow_gradients.py"
EXAMPLES = Path(__file__).parents[3] / "examples" / "smdistributed"
MICROBATCHES = GRADIENTS.with_name("tensorflow_microbatches.py")
DATA_PARALLEL = json.dumps({"smdistributed": {"dataparallel": {"enabled": True}}})

pytestmark = [pytest.mark.netns, pytest.mark.xdist_group("tensorflow")]


@pytest.mark.parametrize(
    ("environment", "carrier"),
    [("tensorflow", "TensorFlow's collective operations"), ("horovod-tf", "Horovod")], ids=["own", "horovod"],
)  # fmt: skip
def test_gradients_are_those_of_one_process(
    tensor: Any, stack: Callable[[str], Path], environment: str, carrier: str
) -> None:
    tensor.local.environ["MUSTER_PYTHON"] = str(stack(environment) / "python")
    tensor.local.environ["PATH"] = f"{stack('openmpi4')}{os.pathsep}{tensor.local.environ['PATH']}"
    ran = tensor.run(2, "auto", GRADIENTS, "--slots", "1", "--distribution", DATA_PARALLEL)
    assert ran.code == 0, ran.stderr + ran.stdout
    said = re.findall(rf"rank (\d): exact, by {carrier}; losses (\[.*\])", ran.stdout)
    assert sorted(rank for rank, _losses in said) == ["0", "1"], ran.stdout
    assert len({losses for _rank, losses in said}) == 1, "MetricAverageCallback gives all ranks one mean"
    assert "rank 1 of 2, local 0 of 1, on algo-2" in ran.stdout
    assert ran.stdout.count("init() called more than once. smdistributed.dataparallel is already initialized.") == 2


def model_parallel(**parameters: object) -> str:
    asked = {"modelparallel": {"enabled": True, "parameters": {"microbatches": 4, **parameters}}}
    return json.dumps({"smdistributed": asked, "mpi": {"enabled": True, "processes_per_host": 1}})


def losses(lines: str) -> list[float]:
    """What an example printed, epoch by epoch."""
    found = re.findall(r"epoch=(\d); train:loss=([\d.]+);", lines)
    assert [int(epoch) for epoch, _loss in found] == [*range(len(found))], lines
    return [float(loss) for _epoch, loss in found]


def test_microbatches_are_the_whole_batch(tensor: Any, tmp_path: Path) -> None:
    """And the examples learn. Also: where there is no mpirun, ranks of TensorFlow need none."""
    tensor.local.environ["PATH"] = str(tmp_path)
    examples = [str(EXAMPLES / f"tensorflow_{name}.py") for name in ("data_parallel", "microbatches")]
    asked = ("--backend", "process", "--distribution", model_parallel(partitions=1), "--", *examples)
    ran = tensor.run(2, "auto", MICROBATCHES, *asked)
    assert ran.code == 0, ran.stderr + ran.stdout
    assert "launcher ranks: the job asks for smdistributed model parallelism" in ran.log("algo-1")
    for rank in (0, 1):
        assert f"rank {rank} of 2: microbatches are exact" in ran.stdout, ran.stdout
    assert "pipeline_parallel_degree=2 (SM_HP_MP_PARAMETERS): musterpoint's smdistributed.modelparallel" in ran.stdout
    assert "images: a batch of 7 can't be divided into 4 microbatches" in ran.stdout
    for rank in (0, 1):
        before, _, after = ran.log(f"algo-{rank + 1}").partition(f"rank {rank} of 2: microbatches are exact")
        learned = losses(before)
        assert len(learned) == (0 if rank else 5), "rank 0 speaks for both, and both have one model"
        assert not learned or learned[-1] < learned[0] / 10
        learned = losses(after)
        assert len(learned) == 5 and learned[-1] < learned[0] / 2, learned
    assert (ran.output / "hosts/algo-1/opt/ml/model/1/saved_model.pb").exists()
