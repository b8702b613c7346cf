"""``muster plan``: every host, from a container's tree, a program, or the trees of a local job."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from musterpoint.cli.main import main

from ..job_tree import PROGRAM, write_tree
from ..running import result_of


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a program in it."""
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tree(here: Path) -> Path:
    """The /opt/ml of algo-1, one of two hosts of a torch_distributed job."""
    hyperparameters = {
        "epochs": "3", "sagemaker_program": '"train.py"', "sagemaker_torch_distributed_enabled": "true",
        "api_token": '"s3cret-s3cret"',
    }  # fmt: skip
    return write_tree(here / "opt" / "ml", hyperparameters, hosts=2)


def planned(capsys: pytest.CaptureFixture[str], words: list[str], environ: dict[str, str]) -> dict[str, Any]:
    assert main(["plan", "--json", *words], environ) == 0, capsys.readouterr().err
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def variables(host: dict[str, Any], process: int = 0) -> dict[str, str]:
    rows = [*host["environment"], *host["processes"][process]["environment"]]
    return {row["name"]: row["value"] for row in rows}


@pytest.mark.torch
def test_a_containers_job_on_every_host(
    tree: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    value = planned(capsys, ["--slots", "4"], {**environ, "SAGEMAKER_BASE_DIR": str(tree)})
    assert [host["host"] for host in value["hosts"]] == ["algo-1", "algo-2"]
    assert [host["launcher"] for host in value["hosts"]] == ["torchrun", "torchrun"]
    assert [host["first_rank"] for host in value["hosts"]] == [0, 4]
    first, second = (host["processes"][0]["argv"] for host in value["hosts"])
    assert "--node-rank=0" in first
    assert "--node-rank=1" in second
    assert "--master-addr=algo-1" in second
    assert first[-4:] == ["--epochs", "3", "--api_token", "***"]
    assert [variables(host)["SM_CURRENT_HOST"] for host in value["hosts"]] == ["algo-1", "algo-2"]
    assert json.loads(variables(value["hosts"][1])["SM_RESOURCE_CONFIG"])["current_host"] == "algo-2"


def test_a_typed_program(here: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    value = planned(capsys, ["--launcher", "ranks", "--slots", "2", "train.py", "--lr", "1"], environ)
    (host,) = value["hosts"]
    argvs = [process["argv"] for process in host["processes"]]
    assert [argv[-2:] for argv in argvs] == [["--lr", "1"]] * 2
    assert [(here / argv[-3]).resolve() for argv in argvs] == [here / "train.py"] * 2
    assert variables(host, 1)["RANK"] == "1"


def test_every_hosts_slots_as_another_toolkit_counted_them(
    here: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    environ.update(SM_HOSTS='["algo-1", "algo-2"]', SM_CURRENT_HOST="algo-2", SM_NUM_GPUS="4")
    value = planned(capsys, ["--launcher", "ranks", "train.py"], environ)
    assert [(host["local_ranks"], host["first_rank"], host["world_size"]) for host in value["hosts"]] == [
        (4, 0, 8), (4, 4, 8),
    ]  # fmt: skip
    assert main(["plan", "--launcher", "ranks", "train.py"], environ) == 0
    page = capsys.readouterr().out
    assert "this host's SM_NUM_GPUS stands for every host's" in page
    assert "SM_NUM_GPUS is 4, but 0 GPUs can be seen" in page


def test_a_local_job_is_read_from_the_trees_it_would_get(
    here: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--hosts", "3", "--host", "algo-2", "--launcher", "ranks", "--host-slots", "1,2,1", "--output", "out"]
    words += ["--backend", "process"]
    value = planned(capsys, [*words, "--hyperparameters", '{"lr": 0.5}', "train.py", "--hosts"], environ)
    (host,) = value["hosts"]
    assert (host["host"], host["first_rank"], host["world_size"], host["local_ranks"]) == ("algo-2", 1, 4, 2)
    assert host["processes"][0]["argv"][-3:] == ["--lr", "0.5", "--hosts"]
    assert host["user_cwd"] == str(here / "out" / "hosts" / "algo-2" / "opt" / "ml" / "code")
    assert variables(host)["SM_HOSTS"] == '["algo-1","algo-2","algo-3"]'
    assert not (here / "out").exists()
    assert "muster-plan" not in json.dumps(value)


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        ("--hosts 2 train.py", 2),
        ("--hosts=2 --slots 4 train.py --epochs 3", 2),
        ("--slots 4 train.py --hosts 2", 1),
        ("-- train.py --hosts=2", 1),
    ],
)
@pytest.mark.usefixtures("here")
def test_hosts_behind_the_program_are_its_own_business(
    words: str, hosts: int, environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    value = planned(capsys, ["--launcher", "ranks", *words.split()], environ)
    assert len(value["hosts"]) == hosts


def test_the_page_hides_secrets(tree: Path, environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    environ.update(SAGEMAKER_BASE_DIR=str(tree), MY_TOKEN="x")
    for words, token in (([], False), (["--all"], True)):
        assert main(["plan", "--launcher", "script", *words], environ) == 0
        page = capsys.readouterr().out
        assert "algo-2: script" in page
        assert ("SM_HP_API_TOKEN" in page) == token, "folded unless everything is asked for"
        assert "s3cret-s3cret" not in page


@pytest.mark.torch
@pytest.mark.usefixtures("here")
def test_a_model_in_parts_is_checked_against_the_hosts(
    environ: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    model = {"modelparallel": {"enabled": True, "parameters": {"partitions": 2, "microbatches": 4, "ddp": True}}}
    mpi = {"enabled": True, "processes_per_host": 2, "custom_mpi_options": "-x HELLO=1 -verbose"}
    asked = ["--launcher", "torchrun", "--distribution", json.dumps({"smdistributed": model, "mpi": mpi}), "train.py"]
    assert main(["plan", "--hosts", "2", *asked], environ) == 0
    page = capfd.readouterr().out
    assert "smdistributed.modelparallel is musterpoint's own, on PyTorch" in page
    assert "HELLO=1" in page
    assert "custom_mpi_options: -verbose isn't followed: torchrun starts the ranks" in page
    mpi["processes_per_host"] = 1
    asked[3] = json.dumps({"smdistributed": model, "mpi": mpi})
    assert main(["plan", "--hosts", "3", *asked], environ) == 64
    assert "has partitions 2, so one replica of the model is 2 ranks, but the job has 3" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--host", "algo-9", "train.py"], "--host=algo-9: no host of this job"),
        (["--hosts", "2"], "PROGRAM"),
        (["--hosts", "0", "train.py"], "--hosts='0': expected a whole number"),
        (["--hosts", "2", "--image", "an-image", "train.py"], "docker run --rm an-image muster plan"),
        (["nowhere.py"], "nowhere.py"),
        ([], "muster plan --hosts 2 PROGRAM"),
    ],
)
def test_mistakes(
    here: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    environ["SAGEMAKER_BASE_DIR"] = str(here / "none")
    assert main(["plan", *words], environ) == 64
    assert sentence in capfd.readouterr().err


@pytest.fixture
def bare(here: Path, environ: dict[str, str]) -> dict[str, str]:
    """A machine whose Python has no packages, without mpirun and ssh."""
    (here / "bin").mkdir()
    own = here / "bin" / "python3"
    own.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    own.chmod(0o755)
    hosts = {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-1"}
    return {**environ, **hosts, "PATH": str(here / "bin"), "MUSTER_PYTHON": str(own)}


@pytest.mark.parametrize(
    ("words", "starts", "lacks"),
    [
        ([], "-m torch.distributed.run", ["no module torch to start it with torchrun"]),
        (["--launcher", "torchrun"], "-m torch.distributed.run", ["has no module torch"]),
        (["--launcher", "deepspeed"], "-m deepspeed.launcher.launch", ["has no module deepspeed"]),
        (["--launcher", "accelerate"], "train.py", ["has no module accelerate"]),
        (["accelerate", "launch", "--num_processes=4", "--multi_gpu"], "train.py", ["can't import accelerate"]),
        (["--launcher", "jax"], "train.py", ["has no module jax"]),
        (["--launcher", "ray"], "train.py", ["has no module ray"]),
        (["--launcher", "mpi"], "mpirun -np 2", ["there is no mpirun on PATH"]),
        (["--launcher", "ranks", "--ssh", "on"], "train.py", ["openssh-client"]),
        (["--launcher", "torchrun", "--ssh", "on"], "-m torch.distributed.run", ["module torch", "openssh-client"]),
    ],
)
def test_what_is_missing_here_ends_a_launch_and_no_plan(
    here: Path, bare: dict[str, str], capfd: pytest.CaptureFixture[str], words: list[str], starts: str, lacks: list[str]
) -> None:
    """The machine on which a job is planned need not be the one that runs it."""
    value = planned(capfd, [*words, "train.py"], bare)
    assert [host["host"] for host in value["hosts"]] == ["algo-1", "algo-2"]
    assert any(starts in " ".join(process["argv"]) for process in value["hosts"][0]["processes"])
    assert [each["code"] for each in value["lacks"]] == [72] * len(lacks)
    for part, said in zip(lacks, value["lacks"], strict=True):
        assert part in said["reason"]

    assert main(["plan", *words, "train.py"], bare) == 0
    warning = next(line for line in capfd.readouterr().out.splitlines() if line.startswith("warning: started on"))
    assert warning.endswith("code 72: " + value["lacks"][0]["reason"])
    assert main(["env", *words, "train.py"], bare) == 0
    assert f"musterpoint: {warning}" in capfd.readouterr().err


@pytest.mark.parametrize(
    "words", [[], ["--launcher", "mpi"], ["--launcher", "accelerate"], ["--launcher", "jax"], ["accelerate", "launch"]]
)
def test_a_launch_without_its_launcher_is_72_as_the_plan_says(
    here: Path, bare: dict[str, str], root: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    one_host = {**bare, "SM_HOSTS": '["algo-1"]', "MUSTER_SLOTS": "2", "SAGEMAKER_BASE_DIR": str(here / "ml")}
    said = planned(capsys, [*words, "train.py"], one_host)["lacks"][0]
    launch = [sys.executable, "-m", "musterpoint", "launch", *words, "train.py"]
    done = result_of(launch, {**one_host, "PYTHONPATH": str(root / "src")})
    assert (done.returncode, said["code"]) == (72, 72)
    assert said["reason"] in done.stderr


def test_a_local_plan_without_torch(here: Path, bare: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    del bare["SM_HOSTS"], bare["SM_CURRENT_HOST"]
    for words in ([], ["--launcher", "mpi"]):
        value = planned(capsys, ["--hosts", "2", "--backend", "process", *words, "train.py"], bare)
        assert [host["world_size"] for host in value["hosts"]] == [2, 2]
        assert [each["code"] for each in value["lacks"]] == [72]
