"""``muster plan --hosts N``: the trees it reads are gone at once, and shown where they would be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from musterpoint.cli import plan_local
from musterpoint.errors import UsageError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("raise SystemExit('never run')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("--hosts 2 train.py", True),
        ("--hosts=2 --slots 4 train.py --epochs 3", True),
        ("--slots 4 train.py --hosts 2", False),
        ("-- train.py --hosts=2", False),
    ],
)
def test_hosts_behind_the_program_are_its_own_business(words: str, ours: bool) -> None:
    asked = plan_local.read(words.split())
    assert (asked is not None) == ours
    if asked is not None:
        assert (asked.options.hosts, asked.command.program) == (2, "train.py")


def test_a_wrong_option_is_told() -> None:
    with pytest.raises(UsageError, match="--hosts='0': expected a whole number"):
        plan_local.read(["--hosts", "0", "train.py"])


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/tmp/a/b and /tmp/a", "/new/b and /new"),
        (Pair("/tmp/a", 3), Pair("/new", 3)),
        (Pair(("/tmp/a/x", None), Pair("/else", "/tmp/a")), Pair(("/new/x", None), Pair("/else", "/new"))),
        ((), ()),
    ],
)
def test_paths_are_moved_wherever_they_stand(value: Any, expected: Any) -> None:
    moved = plan_local.moved(value, "/tmp/a", "/new")
    assert moved == expected
    assert type(moved) is type(expected)


def test_the_plan_of_every_host(project: Path, environ: dict[str, str]) -> None:
    words = ["--hosts", "2", "--host-slots", "1,3", "--launcher", "ranks", "--output", "left", "train.py", "--lr", "1"]
    asked = plan_local.read(words)
    assert asked is not None
    planned = plan_local.planned(asked, environ)
    assert [(plan.host, plan.first_rank, plan.local_ranks) for plan in planned.plans] == [
        ("algo-1", 0, 1),
        ("algo-2", 1, 3),
    ]
    variables = {setting.name: setting.value for setting in planned.plans[1].environment}
    tree = os.path.join(project, "left", "hosts", "algo-2", "opt", "ml")
    assert variables["SM_MODEL_DIR"] == os.path.join(tree, "model")
    assert planned.plans[0].processes[0].words[-2:] == ["--lr", "1"]
    assert os.listdir(project) == ["train.py"], "planning leaves nothing behind"
    assert "muster-plan-" not in repr(planned.plans)


def test_an_image_is_not_guessed_at(project: Path) -> None:
    asked = plan_local.read(["--hosts", "2", "--image", "an-image", "train.py"])
    assert asked is not None
    with pytest.raises(UsageError, match="docker run --rm an-image muster plan"):
        plan_local.planned(asked, {})
