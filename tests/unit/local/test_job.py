"""The words of the command line, checked before anything is made."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.local import job_request as job


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "code" / "sub").mkdir(parents=True)
    (tmp_path / "code" / "package").mkdir()
    for name in ("code/train.py", "code/sub/deep.py", "code/package/__main__.py", "outside.py"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("program", "source", "expected"),
    [
        ("code/train.py", "", ("code", "train.py")),
        ("train.py", "code", ("code", "train.py")),
        ("code/train.py", "code", ("code", "train.py")),
        ("sub/deep.py", "code", ("code", "sub/deep.py")),
        ("code/sub/deep.py", "", ("code/sub", "deep.py")),
        ("code/package/", "", ("code", "package")),
        ("package", "code", ("code", "package")),
    ],
)
def test_program_is_found(project: Path, program: str, source: str, expected: tuple[str, str]) -> None:
    assert job.find_program(program, source, str(project)) == (str(project / expected[0]), expected[1])


@pytest.mark.parametrize(
    ("program", "source", "words"),
    [
        ("python3", "", "there is no file .*; give the path of a script, without python3 before it$"),
        ("nothing.py", "", "there is no file .*; give the path of a script$"),
        ("code/train.py --lr 1", "", r"\(code/train.py is there\), .* not in the same quotes: code/train.py --lr 1$"),
        ("accelerate", "", "--launcher accelerate SCRIPT` starts a script as accelerate would"),
        ("mpirun", "", "--launcher mpi SCRIPT"),
        ("trl", "", "--launcher accelerate -m trl.scripts.COMMAND` starts a script as trl would"),
        ("code", "", "is a directory without a __main__.py"),
        ("train.py", "nowhere", "there is no directory"),
        ("outside.py", "code", "no such file in --source-dir"),
    ],
)
def test_program_is_missing(project: Path, program: str, source: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        job.find_program(program, source, str(project))


@pytest.mark.parametrize("program", ["train.py", "a/my_long script!.py", "---.sh", "x" * 200 + ".py", "名.py"])
def test_job_names_are_the_platforms(program: str) -> None:
    assert job.NAME.fullmatch(job.name_for(program, 1_700_000_000.123))


def test_json_comes_as_text_or_file(tmp_path: Path) -> None:
    (tmp_path / "hp.json").write_text('{"lr": 0.1}')
    assert job.read_json('{"epochs": 3}', "--hyperparameters", str(tmp_path)) == {"epochs": 3}
    assert job.read_json("hp.json", "--hyperparameters", str(tmp_path)) == {"lr": 0.1}


@pytest.mark.parametrize("text", ["{", "[1]", '"a"', "", "absent.json", "list.json", "text.json"])
def test_json_that_is_no_object(tmp_path: Path, text: str) -> None:
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "text.json").write_text("epochs: 3")
    with pytest.raises(UsageError, match=r"--hyperparameters.*expected a JSON object"):
        job.read_json(text, "--hyperparameters", str(tmp_path))


def test_pairs_and_channels(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert job.read_pairs(["A=1", "B=x=y", "C="], "--env", "K=V", job.VARIABLE) == {"A": "1", "B": "x=y", "C": ""}
    assert job.read_channels(["train=data"], str(tmp_path)) == {"train": str(tmp_path / "data")}


def test_channels_that_hosts_bring_themselves(tmp_path: Path) -> None:
    (tmp_path / "a;sharded").mkdir()
    texts = ["here=a;sharded", "far=s3://bucket/x;sharded", "part=a;manifest", "none=absent"]
    assert job.fetched_channels(texts, str(tmp_path)) == {
        "far=s3://bucket/x;sharded": "far=s3://bucket/x;sharded",
        "part=a;manifest": f"part={tmp_path}/a;manifest",
    }
    with pytest.raises(UsageError, match="'shraded' is none of"):
        job.fetched_channels(["far=s3://bucket/x;shraded"], str(tmp_path))


WRONG: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "--env=": (lambda text: job.read_pairs(text.split(), "--env", "K=V", job.VARIABLE), ("A", "=1", "1A=2", "A=1 A=2")),
    "--channel=train=data: there is no file": (lambda text: job.read_channels([text], "/"), ("train=data",)),
    "--host-slots=": (lambda text: job.read_host_slots(text, 2), ("2", "2,0", "2,x", "")),
    "--job-name=": (lambda text: job.check_job(job.LocalJob(text, ("algo-1",), "train.py", "/")), ("-no-",)),
    "--cpus=": (job.read_cpus, ("0", "many", "nan", "-1", "inf")),
    "--gpus=": (job.read_gpus, ("0", "-1", "some", "1.5")),
    "--memory=.*expected a size of .* such as 512m or 2g": (
        lambda text: job.read_size(text, "--memory", job.SMALLEST_MEMORY), ("", "much", "-1", "1x", "0", "1m"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("named", "text"), [(named, text) for named, (_, texts) in WRONG.items() for text in texts])
def test_a_wrong_value_is_refused_with_its_option(named: str, text: str) -> None:
    with pytest.raises(UsageError, match=named):
        WRONG[named][0](text)


def test_values_that_are_right() -> None:
    assert job.host_names(3) == ("algo-1", "algo-2", "algo-3")
    assert job.read_host_slots("2,4", 2) == (2, 4)
    assert (job.read_cpus("1.5"), job.read_gpus("all"), job.read_gpus("2")) == (1.5, "all", "2")


@pytest.mark.parametrize(
    ("text", "size"),
    [("512m", 512 << 20), ("2g", 2 << 30), ("1.5GiB", 3 << 29), ("64 MB", 64 << 20), ("7b", 7), ("4096", 4096)],
)
def test_sizes_as_docker_reads_them(text: str, size: int) -> None:
    assert job.read_size(text, "--memory") == size


@pytest.mark.parametrize("names", [["val"], ["one"]])
def test_only_a_channel_that_is_a_directory_can_be_sharded(names: list[str], tmp_path: Path) -> None:
    (tmp_path / "one.csv").touch()
    channels = {"train": str(tmp_path), "one": str(tmp_path / "one.csv")}
    assert job.read_sharded(["train"], channels) == ("train",)
    with pytest.raises(UsageError, match=f"--sharded={names[0]}: no channel of this job .*; expected train"):
        job.read_sharded(names, channels)
