"""What is said after a failure that comes from how local hosts are made, and of paths that hosts don't have."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.local.advice import advice, elsewhere
from musterpoint.local.job_request import Container, LocalJob
from musterpoint.local.tree import Layout


@pytest.fixture
def job(tmp_path: Path) -> LocalJob:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    (tmp_path / "src" / "in.txt").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").touch()
    return LocalJob("a-job", ("algo-1", "algo-2"), "train.py", str(tmp_path / "src"))


@pytest.mark.parametrize(
    "words",
    [
        "URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
        "requests.exceptions.ConnectionError: NameResolutionError",
        "fatal: unable to access 'https://x/': Could not resolve host: x",
    ],
)
def test_hosts_without_a_way_out(tmp_path: Path, job: LocalJob, words: str) -> None:
    layout = Layout(str(tmp_path / "out"))
    (said,) = advice(words, job, layout, True, "/")
    assert "no way out" in said
    assert "--internet on" in said
    assert advice(words, job, layout, False, "/") == []
    assert "--network-isolation" in advice(words, job._replace(container=Container("i")), layout, True, "/")[0]


def test_the_words_may_stand_in_a_log_alone(tmp_path: Path, job: LocalJob) -> None:
    layout = Layout(str(tmp_path / "out"))
    Path(layout.host("algo-2")).mkdir(parents=True)
    Path(layout.log("algo-2")).write_text("could not download: Temporary failure in name resolution\n" + "x" * 1000)
    assert len(advice("RuntimeError: Dataset not found", job, layout, True, "/")) == 1


def test_a_file_that_another_host_wrote(tmp_path: Path, job: LocalJob) -> None:
    layout, reason = (
        Layout(str(tmp_path / "out")),
        "FileNotFoundError: [Errno 2] No such file or directory: 'vocab.json'",
    )
    code = Path(layout.tree("algo-1")) / "code"
    code.mkdir(parents=True)
    (code / "vocab.json").touch()
    (said,) = advice(reason, job, layout, False, "/")
    assert "beside the code of algo-1 only" in said
    assert advice(reason.replace("vocab", "other"), job, layout, False, "/") == []


PATHS = [
    (("--data", "data/x.csv"), True), (("--data=data/x.csv",), True), (("--data", "data"), True),
    (("--data", "../data"), True), (("data/x.csv",), True), (("data",), False), (("--mode", "train", "in.txt"), False),
    (("--data", "/data/x.csv"), False), (("--data", "nowhere/x.csv"), False),
    (("--lr", "0.1", "s3://data/x.csv"), False),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "said"), PATHS)
def test_relative_paths_that_the_program_does_not_have(
    tmp_path: Path, job: LocalJob, arguments: tuple[str, ...], said: bool
) -> None:
    cwd = str(tmp_path / "src") if arguments == ("--data", "../data") else str(tmp_path)
    found = elsewhere(job._replace(arguments=arguments), cwd)
    assert bool(found) is said
    if said:
        assert str(tmp_path / "data") in found[0]
        assert "--channel" in found[0]


def test_hyperparameters_and_files_of_a_failure(tmp_path: Path, job: LocalJob) -> None:
    assert len(elsewhere(job._replace(hyperparameters={"file": "data/x.csv", "lr": 1}), str(tmp_path))) == 1
    reason = "FileNotFoundError: [Errno 2] No such file or directory: '../data/x.csv'\nrank 0"
    (said,) = advice(reason, job, Layout(str(tmp_path)), False, str(tmp_path / "src"))
    assert "../data/x.csv" in said.partition(" is ")[0]
