"""Completion, asked of the shells themselves: what they offer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.cli.completion import SHELLS, in_short
from musterpoint.cli.main import COMMANDS, main
from musterpoint.core.launch.launchers import LAUNCHERS

pytest.importorskip("shtab")
# what is typed before the TAB → what is offered for its last word, all of it or (after "…") some of it
LINES = [
    ("muster lo", "local"), ("muster local --laun", "--launcher"), ("muster local --launcher par", "parameter-server"),
    ("muster local --launcher ra", "ranks ray"), ("muster local --slots 2 --host-s", "--host-slots"),
    ("muster plan --backend n", "netns"), ("muster local --source-dir fol", "folder"),
    ("muster local -f jo", "job.toml"),
    ("muster local tra", "train.py"), ("muster torchrun --nproc-per", "--nproc-per-node"),
    ("muster torchrun --nproc-per-node 2 tra", "train.py"), ("muster env --format host", "hostfile"),
    ("muster completion b", "bash"), ("muster report fol", "folder"), ("muster local --", "… --hosts --cpu-fallback"),
]  # fmt: skip


def script_of(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell], {}) == 0
    return capsys.readouterr().out


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    for name in ("train.py", "job.toml"):
        (tmp_path / name).touch()
    return tmp_path


ASKS = """
eval "$(cat script)"
COMP_LINE=$1; COMP_POINT=${#COMP_LINE}; read -ra COMP_WORDS <<< "$1"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_shtab_muster muster "${COMP_WORDS[COMP_CWORD]}"
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(("typed", "offered"), LINES)
def test_what_bash_offers(typed: str, offered: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "script").write_text(script_of("bash", capsys))
    words = ["bash", "--norc", "-c", ASKS, "bash", typed]
    done = subprocess.run(words, cwd=here, capture_output=True, text=True, check=True)
    found = done.stdout.split()
    wanted = offered.removeprefix("… ").split()
    assert set(wanted) <= set(found) if offered.startswith("…") else sorted(found) == wanted, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_shell_reads_its_script(shell: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} isn't installed")
    (here / "script").write_text(script_of(shell, capsys))
    done = subprocess.run([shell, "-n", "script"], cwd=here, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_knows_every_command_and_launcher(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = script_of(shell, capsys)
    assert all(word in script for word in (*COMMANDS, *LAUNCHERS))


def test_without_shtab_the_line_to_install_it_is_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"], {}) == 64
    assert "pip install 'musterpoint[cli]'" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("a name [none]", "a name"),
        ("one: or another; more", "one"),
        ("100%% of it", "100 of it"),
        ("word " * 30, ("word " * 13).strip() + "..."),
    ],
)
def test_a_help_in_short(text: str, short: str) -> None:
    assert in_short(text) == short
