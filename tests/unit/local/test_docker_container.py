"""What is asked of containers, as the Engine takes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from musterpoint.local import docker_container
from musterpoint.local.docker_container import DockerRun, Mount
from musterpoint.local.job_request import Container, LocalJob
from musterpoint.local.tree import CONTAINER_PATCHES, CONTAINER_RANKS, Layout

RUN = DockerRun("a-network", run="r", owner="o")
LAYOUT = Layout("/out")


@pytest.fixture(autouse=True)
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source directory of one file; tests stand beside it."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    return folder


def job(**asked: Any) -> LocalJob:
    source = os.path.abspath("code")
    return LocalJob("digits", ("algo-1", "algo-2"), "train.py", source, container=Container("an-image", **asked))


def body(made: LocalJob, host: str = "algo-1", docker_run: DockerRun = RUN) -> dict[str, Any]:
    return docker_container.create_body(made, host, LAYOUT, {"A": "b c=d"}, docker_run)


def test_a_host_of_a_plain_job(code: Path) -> None:
    made = body(job())
    assert made["HostConfig"] == {
        "NetworkMode": "a-network",
        "Mounts": [
            {"Type": "bind", "Source": "/out/hosts/algo-1/opt/ml", "Target": "/opt/ml", "ReadOnly": False},
            {"Type": "bind", "Source": "/out/hosts/algo-1/ranks", "Target": CONTAINER_RANKS, "ReadOnly": False},
            {"Type": "bind", "Source": f"{code}/train.py", "Target": "/opt/ml/code/train.py", "ReadOnly": True},
            {"Type": "bind", "Source": "/out/patches", "Target": CONTAINER_PATCHES, "ReadOnly": True},
        ],
        "ShmSize": 2 << 30,
        "LogConfig": {"Type": "none", "Config": {}},
    }
    assert (made["Image"], made["Cmd"], made["Hostname"]) == ("an-image", ["train"], "algo-1")
    assert "Entrypoint" not in made
    assert made["Env"] == ["A=b c=d", "NVIDIA_VISIBLE_DEVICES=void"]
    assert made["NetworkingConfig"] == {"EndpointsConfig": {"a-network": {"Aliases": ["algo-1"]}}}
    assert made["Labels"] == {docker_container.RUN: "r", docker_container.OWNER: "o", docker_container.HOST: "algo-1"}
    assert (made["Tty"], made["OpenStdin"]) == (False, False)


@pytest.mark.parametrize(
    ("asked", "docker_run", "expected"),
    [
        ({"shm_size": 7}, RUN, {"ShmSize": 7}),
        ({"memory": 64 << 20}, RUN, {"Memory": 64 << 20, "MemorySwap": 64 << 20}),
        ({"cpus": 1.5}, RUN, {"NanoCpus": 1_500_000_000}),
        ({"isolated": True}, RUN, {"DnsOptions": ["timeout:1", "attempts:1"]}),
        ({}, RUN._replace(security=("name=selinux",)), {"SecurityOpt": ["label=disable"]}),
    ],
)
def test_limits(asked: dict[str, Any], docker_run: DockerRun, expected: dict[str, Any]) -> None:
    made = body(job(**asked), docker_run=docker_run)["HostConfig"]
    assert {key: made[key] for key in expected} == expected
    with_gpus = body(job(gpus="all", **asked), docker_run=docker_run)
    assert (bool(with_gpus["HostConfig"]["DeviceRequests"]), with_gpus["Env"]) == (True, ["A=b c=d"])


ALL = {"Count": -1}


@pytest.mark.parametrize(
    ("gpus", "hosts", "docker_run", "expected"),
    [
        ("none", 2, DockerRun("n", gpus=4, nvidia=True), None),
        ("auto", 2, DockerRun("n", gpus=4), None),
        ("auto", 1, DockerRun("n", gpus=4, nvidia=True), ALL),
        ("auto", 2, DockerRun("n", gpus=4, nvidia=True), {"DeviceIDs": ["2", "3"]}),
        ("auto", 2, DockerRun("n", gpus=1, nvidia=True), ALL),
        ("all", 2, DockerRun("n"), ALL),
        ("1", 2, DockerRun("n"), {"DeviceIDs": ["1"]}),
        ("3", 2, DockerRun("n"), {"DeviceIDs": ["3", "4", "5"]}),
    ],
)
def test_gpus_of_the_last_host(gpus: str, hosts: int, docker_run: DockerRun, expected: dict[str, Any] | None) -> None:
    made = docker_container.device_requests(gpus, hosts - 1, hosts, docker_run)
    assert made == ([{"Driver": "", **expected, "Capabilities": [["gpu"]], "Options": {}}] if expected else [])


def test_what_is_mounted_where(tmp_path: Path, code: Path) -> None:
    (code / "dangling").symlink_to("nowhere")
    (tmp_path / "data").mkdir()
    (tmp_path / "one.csv").touch()
    made = job()._replace(channels={"train": str(tmp_path / "data"), "one": str(tmp_path / "one.csv")})
    assert docker_container.mounts(made, "algo-2", LAYOUT)[2:] == [
        Mount(str(code / "train.py"), "/opt/ml/code/train.py"),
        Mount(str(tmp_path / "data"), "/opt/ml/input/data/train"),
        Mount(str(tmp_path / "one.csv"), "/opt/ml/input/data/one/one.csv"),
        Mount("/out/patches", CONTAINER_PATCHES),
    ]


def test_a_sharded_channel_is_mounted_file_by_file(tmp_path: Path, code: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "data" / name).touch()
    made = job()._replace(channels={"train": str(tmp_path / "data")}, sharded=("train",))
    targets = {
        host: [mount.target for mount in docker_container.mounts(made, host, LAYOUT) if "input" in mount.target]
        for host in made.hosts
    }
    assert targets == {
        "algo-1": ["/opt/ml/input/data/train/a", "/opt/ml/input/data/train/c"],
        "algo-2": ["/opt/ml/input/data/train/b"],
    }


def test_requirements_stand_beside_code_that_stays_as_it_is(tmp_path: Path, code: Path) -> None:
    (code / "lib").mkdir()
    (code / "requirements.txt").write_text("the code's own")
    needs = tmp_path / "needs.txt"
    needs.touch()
    made = job(requirements=str(needs))
    assert docker_container.shared(made) == [
        Mount(str(code / "lib"), "/opt/ml/code/lib"),
        Mount(str(needs), "/opt/ml/code/requirements.txt"),
        Mount(str(code / "train.py"), "/opt/ml/code/train.py"),
    ]
    layout = Layout(str(tmp_path / "out"))
    os.makedirs(layout.tree("algo-1"))
    docker_container.prepare(made, "algo-1", layout)
    place = Path(layout.tree("algo-1")) / "code"
    assert [(each.name, each.is_dir()) for each in sorted(place.iterdir())] == [
        ("lib", True), ("requirements.txt", False), ("train.py", False),
    ]  # fmt: skip
    assert sorted(os.listdir(code)) == ["lib", "requirements.txt", "train.py"]


@pytest.mark.parametrize(
    ("security", "owner", "more"),
    [
        ((), "7:8", {}),
        (("name=seccomp,profile=default", "name=rootless"), "0:0", {}),
        (("name=userns",), "7:8", {"UsernsMode": "host"}),
        (("name=selinux",), "7:8", {"SecurityOpt": ["label=disable"]}),
    ],
)
def test_files_are_given_back_to_their_owner(security: tuple[str, ...], owner: str, more: dict[str, Any]) -> None:
    made = docker_container.repair_body("an-image", "/out/hosts", "7:8", RUN._replace(security=security))
    assert (made["Entrypoint"], made["User"]) == (["chown", "-Rh", owner, "/hosts"], "0:0")
    config = made["HostConfig"]
    assert config.pop("Mounts") == [{"Type": "bind", "Source": "/out/hosts", "Target": "/hosts", "ReadOnly": False}]
    assert config == {"NetworkMode": "none", "LogConfig": {"Type": "none", "Config": {}}, **more}
    assert made["Labels"][docker_container.RUN] == "r"


def test_a_file_output_is_mounted_as_in_the_sdks_local_mode(tmp_path: Path) -> None:
    made = job()._replace(hyperparameters={"sagemaker_s3_output": f"file://{tmp_path}"})
    where = Mount(f"{tmp_path}/output/intermediate", "/opt/ml/output/intermediate", False)
    assert where in docker_container.mounts(made, "algo-1", LAYOUT)
    assert not any("intermediate" in mount.target for mount in docker_container.mounts(job(), "algo-1", LAYOUT))
