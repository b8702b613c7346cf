"""SDK v2's local mode, unmodified: estimators whose jobs run on our images, two hosts each."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .sdk import Client, client_of, snippet

pytestmark = pytest.mark.xdist_group("sagemaker-sdk")

Image = Callable[[str], str]

JOBS = """
import importlib, json, sys
from sagemaker.local import LocalSession

for name, settings in json.loads(sys.argv[1]).items():
    module, _, kind = settings.pop("estimator").rpartition(".")
    session = LocalSession()
    session.config = {"local": {"local_code": True, **settings.pop("local", {})}}
    estimator = getattr(importlib.import_module(module), kind)(
        entry_point=settings.pop("entry_point", "train.py"), source_dir="src", instance_count=2, instance_type="local",
        role="arn:aws:iam::111122223333:role/SageMaker", output_path="file://" + name, sagemaker_session=session,
        **settings,
    )
    print("BEGIN", name, flush=True)
    try:
        estimator.fit({"training": "file://data"})
        print("END", name, "model", estimator.model_data, flush=True)
    except RuntimeError as error:
        print("END", name, "error", error, flush=True)
"""


@pytest.fixture
def client(stack: Callable[[str], Path], environ: dict[str, str], tmp_path: Path) -> Iterator[Client]:
    with client_of(stack("sdk-v2"), environ, tmp_path) as made:
        yield made


def test_a_pytorch_estimator_as_in_the_documentation(client: Client, image: Image) -> None:
    done = client.run(snippet("sagemaker.md", "v2", image("torch")))
    assert done.returncode == 0, done.stdout
    result = client.model("results/model.tar.gz")["result"]
    one, two = result["hosts"]
    assert one.startswith("algo-1-") and two.startswith("algo-2-")
    assert result["ranks"] == [[one, 0], [two, 0]]
    assert result["epochs"] == 3
    assert client.text("results/output.tar.gz", "success") == ""


def test_estimators(client: Client, image: Image) -> None:
    given: dict[str, Any] = {"hyperparameters": {"epochs": 3, "text": 'two words, "quoted"'}}
    mirrored = {"multi_worker_mirrored_strategy": {"enabled": True}}
    jobs = {
        "plain": {
            "estimator": "sagemaker.estimator.Estimator", "image_uri": image("base"),
            "entry_point": "sub/who.py", **given,
        },
        "failing": {
            "estimator": "sagemaker.estimator.Estimator", "image_uri": image("base"),
            "hyperparameters": {"fail": "loss is nan"},
        },
        "mpi": {
            "estimator": "sagemaker.pytorch.PyTorch", "image_uri": image("mpi"), "hyperparameters": {"by": "mpi"},
            "distribution": {"mpi": {"enabled": True, "processes_per_host": 2}},
        },
        "mirrored": {
            "estimator": "sagemaker.tensorflow.TensorFlow", "image_uri": image("tensorflow"),
            "hyperparameters": {"by": "tensorflow"}, "distribution": mirrored, "framework_version": "2.18",
        },
    }  # fmt: skip
    done = client.run(JOBS, json.dumps(jobs))
    assert done.returncode == 0, done.stdout

    plain = client.model("plain/model.tar.gz")
    assert len(plain) == 2, done.stdout
    for host, result in plain.items():
        assert result["hosts"] == sorted(plain) and host in plain
        assert (result["epochs"], result["text"]) == (3, 'two words, "quoted"')
        assert (result["numbers"], result["rank"]) == ("1 2 3", None)

    log, end = client.part(done.stdout, "failing")
    assert end.startswith("error Failed to run") and end.endswith("exited with code: 7"), "the program's own code"
    assert "ArithmeticError: loss is nan" in log
    assert client.text("failing/output.tar.gz", "failure").startswith("ArithmeticError: loss is nan\nrank")

    ranks = client.model("mpi/model.tar.gz")["result"]
    one, two = ranks["hosts"]
    assert ranks["ranks"] == [[one, 0], [one, 1], [two, 0], [two, 1]]

    workers = client.model("mirrored/model.tar.gz")["result"]
    assert (workers["total"], len(workers["workers"])) == (11.0, 2)


def test_estimators_that_ask_for_smdistributed(client: Client, image: Image, root: Path) -> None:
    """The SDK's own checks pass: an image of one's own isn't asked for its versions, nor ``local`` for its GPUs."""
    for name in ("data_parallel.py", "model_parallel.py"):
        shutil.copy(root / "examples/smdistributed" / name, client.folder / "src")
    parameters = {"partitions": 2, "microbatches": 4, "ddp": True, "pipeline": "interleaved", "optimize": "speed"}
    model_parallel = {
        "smdistributed": {"modelparallel": {"enabled": True, "parameters": parameters}},
        "mpi": {"enabled": True},
    }
    jobs = {
        "data": {
            "estimator": "sagemaker.pytorch.PyTorch", "image_uri": image("torch"), "entry_point": "data_parallel.py",
            "hyperparameters": {"epochs": 2}, "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
        },
        "model": {
            "estimator": "sagemaker.pytorch.PyTorch", "image_uri": image("mpi"), "entry_point": "model_parallel.py",
            "hyperparameters": {"epochs": 2}, "distribution": model_parallel,
        },
    }  # fmt: skip
    done = client.run(JOBS, json.dumps(jobs))
    assert done.returncode == 0, done.stdout
    for name, launcher, ranks, file in (
        ("data", "torchrun", 2, "model.pt"), ("model", "mpi", 2, "checkpoint.pt"),
    ):  # fmt: skip
        log, end = client.part(done.stdout, name)
        assert end.startswith("model "), done.stdout
        assert f"launcher {launcher}" in log and f"ranks={ranks};" in log
        assert float(re.findall(r"test:accuracy=([0-9.]+);", log)[-1]) > 0.85
        assert client.member(f"{name}/model.tar.gz", file)[:2] == b"PK", "torch's own format is a zip file"
