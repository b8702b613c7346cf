"""Every command of ``muster`` that a page, a help text or a message prints is one that ``muster`` takes as printed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.cli import main

from . import commands, printed
from .blocks import ROOT

PLANS = {"launch": ("plan",), "local": ("plan", "--hosts", "1"), "torchrun": ("torchrun", "--muster-plan")}
"""What shows what a command would start."""


def examples() -> list[tuple[str, ...]]:
    """The commands of help texts that can be tried as they are, without an image of the reader's."""
    found = dict.fromkeys(each.words for each in printed.of_help() if each.exact and each.words[1:])
    kept = [words for words in found if not {"--image", "--demo", "--help"} & {*words}]
    return [(*PLANS.get(name, (name,)), *rest) for name, *rest in kept if name in ("plan", "env", *PLANS)]


@pytest.fixture
def with_examples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The example of docs/plugins.md is installed."""
    platform = ROOT / "examples" / "plugins" / "platform"
    info = tmp_path / "installed" / "musterpoint_gang-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: musterpoint-gang\nVersion: 1\n")
    text = (platform / "pyproject.toml").read_text()
    points = re.findall(r'^entry-points\."(.*)"\.gang = "(.*)"$', text, re.MULTILINE)
    (info / "entry_points.txt").write_text("".join(f"[{group}]\ngang = {value}\n" for group, value in points))
    monkeypatch.syspath_prepend(info.parent)
    monkeypatch.syspath_prepend(platform)


@pytest.mark.usefixtures("with_examples")
def test_what_is_printed_is_taken() -> None:
    found = printed.everywhere()
    wrong = [f"{each.place}: muster {' '.join(each.words)}: {said}" for each in found if (said := refused(each))]
    assert wrong == []
    assert len(found) > 400 and {"README.md", "muster local --help"} <= {each.place for each in found}


def refused(each: printed.Printed) -> str:
    """Why the command is refused; empty: it isn't. A command that is only named needs no words behind it."""
    try:
        if each.words[1:] or each.words[0] not in main.COMMANDS:
            commands.parse(list(each.words))
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("words", examples(), ids=" ".join)
def test_examples_of_help_texts_can_be_planned(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    """Those that start a job, with the plan in the place of the start."""
    for name in ("train.py", "train_ddp.py", "launcher.py", "package/train.py", "data/part", "job.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('program = "train.py"\nhosts = 2\n' if name == "job.toml" else "print()\n")
    monkeypatch.chdir(tmp_path)
    if not {"train.py", "launcher.py", "-m", "-f"} & {*words}:  # the job of this container
        files = {
            "hyperparameters": {"sagemaker_program": "train.py", "sagemaker_submit_directory": str(tmp_path)},
            "resourceconfig": {"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]},
        }
        config = tmp_path / "ml" / "input" / "config"
        config.mkdir(parents=True)
        for name, content in files.items():
            (config / f"{name}.json").write_text(json.dumps(content))
        environ = {**environ, "SAGEMAKER_BASE_DIR": str(tmp_path / "ml")}
    assert main.main(words, environ) == 0
