"""The plans of a local job: the trees they are read from are gone at once, and shown where they would be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from musterpoint.cli import local_command_line
from musterpoint.cli.options import split
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.launch_plan import Argument
from musterpoint.local.backend import BackendName
from musterpoint.local.local_preview import moved, preview_local
from musterpoint.local.netns_hosts import why_unavailable
from musterpoint.local.platforms import playable


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("raise SystemExit('never run')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/tmp/a/b and /tmp/a", "/new/b and /new"),
        (Pair("/tmp/a", 3), Pair("/new", 3)),
        (Pair(("/tmp/a/x", None), Pair("/else", "/tmp/a")), Pair(("/new/x", None), Pair("/else", "/new"))),
        ((Argument("/tmp/a/t"), EnvSetting("A", "b:/tmp/a", "")), (Argument("/new/t"), EnvSetting("A", "b:/new", ""))),
        ((), ()),
    ],
)
def test_paths_are_moved_wherever_they_stand(value: Any, expected: Any) -> None:
    found = moved(value, "/tmp/a", "/new")
    assert found == expected
    assert type(found) is type(expected)


NEEDS_A_NAMESPACE = why_unavailable()


def previewed(words: list[str], project: Path, environ: dict[str, str], backend: BackendName) -> Any:
    parser = local_command_line.parser()
    command = split(parser, words)
    job = local_command_line.job_from(command, parser.parse_args(command.head), str(project), environ)
    return preview_local(job, os.path.join(project, "left"), environ, backend)[1]


@pytest.mark.parametrize("backend", ["process"] if NEEDS_A_NAMESPACE else ["process", "netns"])
def test_the_plan_of_every_host(backend: BackendName, project: Path, environ: dict[str, str]) -> None:
    words = ["--hosts", "2", "--host-slots", "1,3", "--launcher", "ranks", "train.py", "--lr", "1"]
    shown = previewed(words, project, environ, backend)
    places = [(plan.host, plan.first_rank, plan.local_ranks) for plan in shown.plans]
    assert places == [("algo-1", 0, 1), ("algo-2", 1, 3)]
    variables = {setting.name: setting.value for setting in shown.plans[1].environment}
    tree = os.path.join(project, "left", "hosts", "algo-2", "opt", "ml") if backend == "process" else "/opt/ml"
    ranks = {setting.name: setting.value for setting in shown.plans[1].processes[0].environment}
    assert ranks["MASTER_ADDR"] == {"process": "127.0.0.11", "netns": "10.77.1.2"}[backend]
    assert variables["NCCL_SOCKET_IFNAME"] == {"process": "lo", "netns": "eth0"}[backend]
    assert f"2 local hosts, {backend}" in shown.notes[-1]
    assert variables["SM_MODEL_DIR"] == os.path.join(tree, "model")
    assert shown.plans[0].processes[0].words[-2:] == ["--lr", "1"]
    assert os.listdir(project) == ["train.py"], "planning leaves nothing behind"
    assert "muster-plan-" not in repr(shown.plans)


def test_a_host_of_a_platform_that_runs_commands_has_a_directory_of_its_own(
    project: Path, environ: dict[str, str]
) -> None:
    words = ["--hosts", "2", "--platform", "slurm", "--launcher", "ranks", "--slots", "1", "train.py"]
    shown = previewed(words, project, environ, "process")
    for host, plan in zip(("node1", "node2"), shown.plans, strict=True):
        assert plan.processes[0].cwd == plan.user_cwd == os.path.join(project, "left", "hosts", host, "wd")


@pytest.mark.parametrize("platform", playable())
def test_every_platform_has_the_plan_of_its_hosts(platform: str, project: Path, environ: dict[str, str]) -> None:
    typed = ["--hosts", "3", "--platform", platform, "--python", "/bin/true"]
    for launcher, slots in {"ranks": 2, "torchrun": 2, "script": 1}.items():
        words = [*typed, "--launcher", launcher, *(["--slots", "2"] if slots > 1 else []), "train.py"]
        shown = previewed(words, project, environ, "process")
        assert [(plan.first_rank, plan.local_ranks) for plan in shown.plans] == [(n * slots, slots) for n in range(3)]
        assert (shown.choice.launcher, len({plan.host for plan in shown.plans})) == (launcher, 3)
    shown = previewed([*typed, "--slots", "2", "train.py"], project, environ, "process")
    assert shown.choice.launcher == ("tensorflow" if platform == "tfconfig" else "torchrun"), "as typed, or why not"
