"""SDK v3's ModelTrainer in its local container mode: jobs of two hosts on our images, and on one without us."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .sdk import Client, client_of, snippet

pytestmark = pytest.mark.xdist_group("sagemaker-sdk")

TEXT = """it's two words, "quoted" """
SMP = {"sm_activation_offloading": False, "random_seed": 7}
Image = Callable[[str], str]

JOBS = """
import json, os, sys
from musterpoint.sagemaker import Muster
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, SourceCode
from sagemaker.train.distributed import MPI, SMP, Torchrun
from sagemaker.train.model_trainer import Mode

for wrong in json.loads(sys.argv[2]):
    try:
        Muster(**wrong)
    except ValueError as error:
        print("REFUSED", str(error).replace(chr(10), " "), flush=True)

for name, settings in json.loads(sys.argv[1]).items():
    kind = {"muster": Muster, "torchrun": Torchrun, "mpi": MPI, None: lambda: None}[settings.pop("kind", None)]
    distributed = settings.pop("distributed", {})
    if "smp" in distributed:
        distributed["smp"] = SMP(**distributed["smp"])
    data = settings.pop("data", "data")
    os.mkdir(name)
    trainer = ModelTrainer(
        training_mode=Mode.LOCAL_CONTAINER,
        local_container_root=os.path.abspath(name),
        source_code=SourceCode(source_dir="src", entry_script=settings.pop("entry", "train.py")),
        compute=Compute(instance_type="local_cpu", instance_count=2),
        distributed=kind(**distributed),
        **settings,
    )
    print("BEGIN", name, flush=True)
    try:
        trainer.train([InputData(channel_name=channel, data_source=data) for channel in ("training", "more-1")])
        print("END", name, "done", flush=True)
    except RuntimeError as error:
        print("END", name, "error", error, flush=True)
"""


@pytest.fixture
def client(stack: Callable[[str], Path], environ: dict[str, str], tmp_path: Path) -> Iterator[Client]:
    with client_of(stack("sdk-v3"), environ, tmp_path) as made:
        yield made


@pytest.fixture
def stock(image: Image) -> Iterator[str]:
    """An image with Python and torch and nothing of ours."""
    tag = f"muster-test-stock:{uuid.uuid4().hex[:12]}"
    text = f"FROM {image('torch')}\nRUN pip uninstall --quiet --yes musterpoint && ! command -v train\n"
    subprocess.run(
        ["docker", "build", "--quiet", "--tag", tag, "-"], input=text, text=True, check=True, capture_output=True
    )
    yield tag
    subprocess.run(["docker", "rmi", "--force", tag], check=True, capture_output=True)


def test_muster_brings_itself_as_in_the_documentation(client: Client, stock: str) -> None:
    done = client.run(snippet("sagemaker.md", "v3", stock))
    assert done.returncode == 0, done.stdout
    result = client.model("compressed_artifacts/model.tar.gz")["result"]
    assert result["ranks"] == [["algo-1", 0], ["algo-1", 1], ["algo-2", 0], ["algo-2", 1]]
    assert result["epochs"] == 3
    assert "launcher torchrun, 4 ranks (2 each)" in done.stdout


def test_trainers(client: Client, image: Image) -> None:
    values = {"flag": True, "list": [1, "a"], "t": None}
    smp = {"training_image": image("torch"), "kind": "torchrun", "entry": "shards.py"}
    given: dict[str, Any] = {"hyperparameters": {"epochs": 3, "text": TEXT, **values}}
    jobs = {
        "plain": {"training_image": image("base"), **given},
        "failing": {
            "training_image": image("base"), "kind": "muster", "distributed": {"launcher": "script"},
            "hyperparameters": {"fail": "loss is nan"},
        },
        "mpi": {
            "training_image": image("mpi"), "kind": "muster", "hyperparameters": {"by": "mpi"},
            "distributed": {"launcher": "mpi", "process_count_per_node": 1, "mpi_options": "-x WHO=everybody"},
        },
        "their-mpi": {
            "training_image": image("mpi"), "kind": "mpi", "hyperparameters": {"by": "mpi", "text": "two words"},
            "distributed": {"process_count_per_node": 2, "mpi_additional_options": ["-x", "WHO=every body"]},
        },
        "their-smp": {
            **smp, "distributed": {"process_count_per_node": 2, "smp": {**SMP, "hybrid_shard_degree": 2}},
            "hyperparameters": {"steps": 40, "most": 0.5},
        },
        "their-smp-again": {
            **smp, "distributed": {"process_count_per_node": 1, "smp": SMP},
            "hyperparameters": {"steps": 0, "most": 1e-9}, "data": "their-smp/artifacts/model",
        },
        "mirrored": {
            "training_image": image("tensorflow"), "hyperparameters": {"by": "tensorflow"}, "kind": "muster",
            "distributed": {"launcher": "tensorflow"},
        },
    }  # fmt: skip
    wrong = [{"launcher": "rsh"}, {"slots": 2}, {"process_count_per_node": 0}, {"secret": "x"}, {"log_dir": "it's"}]
    done = client.run(JOBS, json.dumps(jobs), json.dumps(wrong))
    assert done.returncode == 0, done.stdout

    refused = [line for line in done.stdout.splitlines() if line.startswith("REFUSED")]
    told = ("expected one of auto, script", "no option 'slots'", "1 to 65536", "would be readable", "single quote")
    assert len(refused) == len(wrong)
    for line, words in zip(refused, told, strict=True):
        assert words in line

    plain = client.model("plain/compressed_artifacts/model.tar.gz")
    assert sorted(plain) == ["algo-1", "algo-2"], done.stdout
    for result in plain.values():
        assert (result["epochs"], result["text"], result["numbers"]) == (3, TEXT, "1 2 3")
        assert result["json"] == [True, [1, "a"], None], "as the SDK's own drivers spell them"
        assert result["more"] == "/opt/ml/input/data/more-1"

    log, end = client.part(done.stdout, "failing")
    assert end.startswith("error Failed to run") and end.endswith("exited with code: 7"), "the program's own code"
    assert "ArithmeticError: loss is nan" in log
    reason = client.text("failing/compressed_artifacts/output.tar.gz", "failure")
    assert reason.startswith("ArithmeticError: loss is nan\nrank")

    ranks = client.model("mpi/compressed_artifacts/model.tar.gz")["result"]
    assert ranks["ranks"] == [["algo-1", 0], ["algo-2", 0]]
    assert "launcher script, 2 independent programs, no common world" in client.part(done.stdout, "plain")[0]

    ranks = client.model("their-mpi/compressed_artifacts/model.tar.gz")["result"]
    assert ranks["ranks"] == [["algo-1", 0], ["algo-1", 1], ["algo-2", 0], ["algo-2", 1]]
    assert (ranks["text"], ranks["who"]) == ("two words", "every body")
    assert "launcher mpi, 4 ranks (2 each)" in client.part(done.stdout, "their-mpi")[0]

    shards = json.loads(client.text("their-smp/compressed_artifacts/model.tar.gz", "result.json"))
    hosts = [["algo-1", 0], ["algo-1", 1], ["algo-2", 0], ["algo-2", 1]]
    assert [row[:2] for row in shards["ranks"]] == hosts
    assert sum(row[2] for row in shards["ranks"]) == 2 * (9 * 24 + 25), "two copies of the model, in shards"
    assert (shards["whose"], shards["degree"], shards["job"]) == ("musterpoint", 2, {**SMP, "hybrid_shard_degree": 2})
    assert abs(shards["loss"] - shards["of_one_process"]) < 1e-12
    assert "launcher torchrun, 4 ranks (2 each)" in client.part(done.stdout, "their-smp")[0]

    log, end = client.part(done.stdout, "their-smp-again")
    reason = client.text("their-smp-again/compressed_artifacts/output.tar.gz", "failure")
    assert end.startswith("error Failed to run"), log
    assert reason.startswith(f"ArithmeticError: the loss on held-out data is {shards['loss']:.12f}\nrank 1 ")

    workers = client.model("mirrored/compressed_artifacts/model.tar.gz")["result"]
    assert (workers["total"], len(workers["workers"])) == (11.0, 2)
