"""The words of ``muster local`` as a job."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.cli import local, local_command_line
from musterpoint.cli.options import split
from musterpoint.local.job_request import Container, LocalJob
from musterpoint.local.tree import Layout


def job(directory: Path, *words: str, **environ: str) -> LocalJob:
    parser = local_command_line.parser()
    command = split(parser, words)
    here = {"AWS_REGION": "eu-west-1", **environ}
    return local_command_line.job_from(command, parser.parse_args(command.head), str(directory), here)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").touch()
    return tmp_path


def test_arguments_are_the_programs(project: Path) -> None:
    made = job(project, "--hosts", "3", "train.py", "--hosts", "9", "--", "-x", "a b")
    assert (made.hosts, made.arguments) == (("algo-1", "algo-2", "algo-3"), ("--hosts", "9", "--", "-x", "a b"))
    assert (made.source_dir, made.program, made.region) == (str(project), "train.py", "eu-west-1")


def test_options_become_variables(project: Path) -> None:
    words = ("--launcher", "ranks", "--nproc-per-node", "2", "--stop-grace", "1.5", "--platform", "sagemaker")
    expected = {"MUSTER_LAUNCHER": "ranks", "MUSTER_SLOTS": "2", "MUSTER_STOP_GRACE": "1.5"}
    assert job(project, *words, "train.py").options == expected


def test_a_distribution_is_the_sdks(project: Path) -> None:
    made = job(project, "--distribution", '{"torch_distributed": {"enabled": true}}', "train.py")
    assert made.distribution["sagemaker_torch_distributed_enabled"] == "true"
    mirrored = job(project, "--distribution", '{"multi_worker_mirrored_strategy": {"enabled": true}}', "train.py")
    assert mirrored.distribution == {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no PROGRAM given"),
        (("--debug", "one", "train.py"), "--debug='one': expected the number of a rank"),
        (("--debug", "0", "--stop-after", "9", "train.py"), "--debug 0: --stop-after doesn't go with it"),
        (("--debug", "0", "--stall-timeout", "9", "train.py"), "--debug 0: --stall-timeout doesn't go with it"),
        (("--hosts", "two", "train.py"), "--hosts='two': expected a whole number"),
        (("--stop-after", "-1", "train.py"), "--stop-after='-1': expected a number of seconds"),
        (("--host-slots", "1,2", "train.py"), "expected one number for each of the 1 hosts"),
        (("--launcher", "nothing", "train.py"), "--launcher='nothing': expected one of"),
        (("--backend", "vm", "train.py"), "--backend='vm': expected one of process, netns, docker"),
        (("--backend", "docker", "train.py"), "--backend docker: which image"),
        (("--backend", "netns", "--image", "i", "train.py"), "--backend netns: --image is for --backend docker"),
        (("--memory", "1g", "train.py"), "--memory is for hosts that are containers: add --image"),
        (("--image", "i", "--one-address", "train.py"), "--one-address is for --backend process"),
        (("--image", "i", "--cpus", "many", "train.py"), "--cpus='many': expected a number"),
        (("--image", "i", "--requirements", "absent.txt", "train.py"), "--requirements='absent.txt': there is no file"),
        (("--unknown", "train.py"), "unknown option --unknown"),
        (("--channel", "train", "train.py"), "--channel='train': expected NAME=PATH"),
        (("--distribution", '{"modelparallel": {}}', "train.py"), "smdistributed"),
        (("--source-dir", "nowhere", "train.py"), "there is no directory"),
        (("absent.py",), "there is no file"),
    ],
)
def test_what_is_wrong_is_said(project: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        job(project, *words)


@pytest.mark.parametrize("words", [("--hosts", "2"), ("--env", "MUSTER_SLOTS"), ("--image", "i")])
def test_a_wrong_variable_is_refused_before_there_is_a_job(
    words: tuple[str, ...], project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    assert local.main([*words, "train.py"], {"MUSTER_SLOTS": "two"}) == 64
    assert "MUSTER_SLOTS='two': expected a whole number" in capfd.readouterr().err
    assert not (project / "muster-jobs").exists()
    assert job(project, "--slots", "2", "train.py", MUSTER_SLOTS="two").options["MUSTER_SLOTS"] == "2"


def test_a_variable_may_be_taken_from_here(project: Path) -> None:
    made = job(project, "--env", "AWS_REGION", "--env", "A=b=c", "train.py")
    assert made.environment == {"AWS_REGION": "eu-west-1", "A": "b=c"}
    with pytest.raises(UsageError, match=r"--env='ABSENT': expected K=V .*or the name of one that is set here"):
        job(project, "--env", "ABSENT", "train.py")


def test_containers(project: Path) -> None:
    made = job(project, "--image", "an-image", "train.py")
    assert made.container == Container("an-image", shm_size=2 << 30)
    (project / "needs.txt").touch()
    words = ["--memory=1g", "--shm-size=64m", "--cpus=1.5", "--gpus=2", "--network-isolation"]
    words += ["--image", "i", "--backend", "docker", "--requirements", "needs.txt"]
    assert job(project, *words, "train.py").container == Container(
        "i", shm_size=64 << 20, memory=1 << 30, cpus=1.5, gpus="2", isolated=True,
        requirements=str(project / "needs.txt"),
    )  # fmt: skip


def test_host_names_of_the_sdk(project: Path) -> None:
    names = job(project, "--hosts", "2", "--host-names", "sdk", "train.py").hosts
    assert re.fullmatch(r"algo-1-([a-z0-9]{5}) algo-2-\1", " ".join(names))


def test_a_used_output_directory_is_left_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    same = project / "muster-jobs" / "same"
    (same / "precious").mkdir(parents=True)
    assert local.main(["--output", str(same), "train.py"], {}) == 64
    assert f"--output={same}: there is something in {same} already; give another --output" in capfd.readouterr().err
    (same / "hosts").mkdir()
    assert local.main(["--job-name", "same", "train.py"], {}) == 64
    assert f"--job-name=same: a job that is over has left {same}; give another --job" in capfd.readouterr().err


def test_jobs_are_kept_out_of_git(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    layout = Layout(str(project / "muster-jobs" / "a-job"))
    local._make_output(layout, "--job-name=a-job", True)
    assert (project / "muster-jobs" / ".gitignore").read_text() == "*\n"
    with pytest.raises(UsageError, match=r"^--job-name=a-job: a job that still runs has .*; give another --job-name"):
        local._make_output(layout, "--job-name=a-job", True)  # for another job, which found it empty
