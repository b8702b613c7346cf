"""Completion, asked of the shells themselves: what they put on the line, and what they offer."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.base.kinds import LAUNCHERS
from musterpoint.cli.completion import SHELLS, in_short
from musterpoint.cli.main import COMMANDS, main

pytest.importorskip("shtab")
PATIENCE = 500.0
"""Seconds that a shell gets for a line on a busy machine."""
# what is typed before the TAB → the line after it, and words among what is offered
LINES = [
    ("muster lo", "muster local", ()),
    ("muster local --laun", "muster local --launcher", ()),
    ("muster local --launcher par", "muster local --launcher parameter-server", ()),
    ("muster local --launcher ra", "muster local --launcher ra", ("ranks", "ray")),
    ("muster local --slots 2 --host-s", "muster local --slots 2 --host-slots", ()),
    ("muster plan --backend n", "muster plan --backend netns", ()),
    ("muster local --source-dir fol", "muster local --source-dir folder/", ()),
    ("muster local -f jo", "muster local -f job.toml", ()),
    ("muster local tra", "muster local train.py", ()),
    ("muster torchrun --nproc-per", "muster torchrun --nproc-per-node", ()),
    ("muster torchrun --nproc-per-node 2 tra", "muster torchrun --nproc-per-node 2 train.py", ()),
    ("muster env --format host", "muster env --format hostfile", ()),
    ("muster completion b", "muster completion bash", ()),
    ("muster report fol", "muster report folder/", ()),
    ("muster local --", "muster local --", ("--hosts", "--cpu-fallback", "--mpi-options")),
]


def script_of(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell], {}) == 0
    return capsys.readouterr().out


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    for name in ("train.py", "job.toml"):
        (tmp_path / name).touch()
    return tmp_path


class Terminal:
    """A shell on a pseudo-terminal."""

    def __init__(self, argv: list[str], cwd: Path) -> None:
        self.fd, theirs = pty.openpty()
        environ = {"PATH": os.environ["PATH"], "TERM": "vt100", "HOME": str(cwd), "COLUMNS": "400", "LINES": "200"}
        self.shell = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=environ,
                                      start_new_session=True)  # fmt: skip
        os.close(theirs)

    def type(self, keys: str, until: str) -> str:
        """Types ``keys``; what the shell writes up to ``until``."""
        os.write(self.fd, keys.encode())
        text, end = "", time.monotonic() + PATIENCE
        while until not in text:
            assert select.select([self.fd], [], [], max(0.0, end - time.monotonic()))[0], text
            text += os.read(self.fd, 65536).decode(errors="replace")
        return text

    def close(self) -> None:
        self.shell.kill()
        self.shell.wait()
        os.close(self.fd)


SET_UP = {
    "bash": (["bash", "--norc", "--noprofile", "-i"],
             "for each in 'show-all-if-ambiguous on' 'page-completions off' 'completion-query-items 0'; do "
             "bind \"set $each\"; done"),
    "zsh": (["zsh", "-f", "-i"],
            "autoload -Uz compinit; compinit -u; bindkey -e; "
            "unsetopt prompt_cr prompt_sp zle_bracketed_paste; LISTMAX=0"),
}  # fmt: skip


@pytest.fixture(params=SET_UP)
def terminal(request: pytest.FixtureRequest, here: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} isn't installed")
    argv, settings = SET_UP[request.param]
    (here / ".script").write_text(script_of(request.param, capsys))
    opened = Terminal(argv, here)
    opened.type(f"PS1=; {settings}; eval \"$(cat .script)\"; unset TMOUT; echo RE''ADY\n", "READY\r\n")
    yield opened
    opened.close()


def test_what_a_tab_does(terminal: Terminal) -> None:
    """The completed line is made an argument of ``echo``, with keys that both shells know."""
    for typed, line, offered in LINES:
        written = terminal.type(f"{typed}\t\x01echo '<\x05>' EN''D\r", " END\r\n")
        shown = re.findall(r"<([^<>]*)> END\r\n", written)
        assert [text.rstrip(" /") for text in shown] == [line.rstrip("/")], written  # zsh may take a / away again
        assert all(word in written for word in offered), typed


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_knows_every_command_and_launcher(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = script_of(shell, capsys)
    assert all(word in script for word in (*COMMANDS, *LAUNCHERS))


@pytest.mark.skipif(shutil.which("tcsh") is None, reason="tcsh isn't installed")
def test_tcsh_takes_its_script(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "script").write_text(script_of("tcsh", capsys))
    done = subprocess.run(["tcsh", "-f", "-c", "source script; complete muster"], cwd=here, capture_output=True,
                          text=True, check=True)  # fmt: skip
    assert "c/--launcher=/(auto script torchrun" in done.stdout


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
