"""The tree of each host, file by file."""

from __future__ import annotations

import json
import os
from pathlib import Path

from musterpoint.base.settings import Settings
from musterpoint.core.job.read import read_job
from musterpoint.local import tree
from musterpoint.local.job_request import Container, LocalJob
from musterpoint.local.tree import Layout

JOB = LocalJob(
    name="digits",
    hosts=("algo-1", "algo-2"),
    program="train.py",
    source_dir="/code",
    hyperparameters={"lr": 0.1, "name": "x", "deep": True, "layers": [1, 2], "none": None},
    distribution={"sagemaker_mpi_enabled": "true"},
    region="eu-west-1",
)


def test_hyperparameters_are_json_text_in_their_order() -> None:
    files = tree.config(JOB, "algo-2")
    assert list(files["hyperparameters.json"].items()) == [
        ("lr", "0.1"), ("name", '"x"'), ("deep", "true"), ("layers", "[1, 2]"), ("none", "null"),
        ("sagemaker_mpi_enabled", "true"), ("sagemaker_program", '"train.py"'),
        ("sagemaker_submit_directory", '"/code"'), ("sagemaker_container_log_level", "20"),
        ("sagemaker_job_name", '"digits"'), ("sagemaker_region", '"eu-west-1"'),
    ]  # fmt: skip


def test_the_files_of_a_sharded_channel_are_shared_out(tmp_path: Path) -> None:
    names = ["b.csv", "a.csv", "c/d.csv", "c/e.csv", "c/f.csv"]
    for name in names:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text(name)
    hosts = ("algo-1", "algo-2", "algo-10")
    job = JOB._replace(hosts=hosts, channels={"train": str(tmp_path / "data")}, sharded=("train",))
    layout = Layout(str(tmp_path / "out"))
    found = []
    for host in hosts:
        tree.write(job, host, layout)
        base = Path(layout.tree(host)) / "input"
        files = [path for path in (base / "data/train").rglob("*") if path.is_file()]
        assert all(path.read_text() == str(path.relative_to(base / "data/train")) for path in files)
        assert json.loads((base / "config/inputdataconfig.json").read_text())["train"]["S3DistributionType"] == (
            "ShardedByS3Key"
        )
        found.append(sorted(path.read_text() for path in files))
    assert found == [["a.csv", "c/e.csv"], ["b.csv", "c/f.csv"], ["c/d.csv"]]


def test_channels_are_links_to_the_users_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.csv").write_text("1")
    job = JOB._replace(channels={"train": str(data), "one": str(data / "a.csv")})
    layout = Layout(str(tmp_path / "out"))
    tree.write(job, "algo-1", layout)
    base = Path(layout.tree("algo-1"))
    assert (base / "input/data/train/a.csv").read_text() == "1"
    assert (base / "input/data/one/a.csv").read_text() == "1"
    assert (base / "input/data/train").is_symlink()
    assert set(json.loads((base / "input/config/inputdataconfig.json").read_text())) == {"train", "one"}
    for directory in ("model", "output/data", "checkpoints"):
        assert (base / directory).is_dir()
    assert os.readlink(base / "code") == "/code"


def test_in_a_container_everything_of_the_users_is_mounted(tmp_path: Path) -> None:
    job = JOB._replace(channels={"train": "/data"}, container=Container("an-image", isolated=True))
    layout = Layout(str(tmp_path))
    tree.write(job, "algo-1", layout)
    base = Path(layout.tree("algo-1"))
    assert [each for each in base.rglob("*") if each.is_symlink()] == []
    files = {path.name: json.loads(path.read_text()) for path in (base / "input/config").iterdir()}
    assert files["hyperparameters.json"]["sagemaker_submit_directory"] == '"/opt/ml/code"'
    assert files["trainingjobconfig.json"] == {"EnableNetworkIsolation": True}
    assert set(files["inputdataconfig.json"]) == {"train"}


def test_the_job_reader_reads_it(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path))
    tree.write(JOB, "algo-2", layout)
    job = read_job({"SAGEMAKER_BASE_DIR": layout.tree("algo-2"), "TRAINING_JOB_NAME": "digits"}, Settings())
    assert (job.platform, job.name, job.current_host, job.hosts) == ("sagemaker", "digits", "algo-2", JOB.hosts)
    assert job.entry_point[:2] == ("train.py", "/code")
    assert [parameter.value for parameter in job.hyperparameters[:5]] == [0.1, "x", True, [1, 2], None]


def test_a_file_output_is_one_directory_for_all_hosts(tmp_path: Path) -> None:
    """As SDK v2's local mode mounts it."""
    job = JOB._replace(hyperparameters={"sagemaker_s3_output": f"file://{tmp_path}/results"})
    layout = Layout(str(tmp_path / "out"))
    for host in job.hosts:
        tree.write(job, host, layout)
        (Path(layout.tree(host)) / "output/intermediate" / host).touch()
    assert sorted(os.listdir(tmp_path / "results/output/intermediate")) == ["algo-1", "algo-2"]
    assert JOB.intermediate == JOB._replace(hyperparameters={"sagemaker_s3_output": "s3://b/p"}).intermediate == ""
