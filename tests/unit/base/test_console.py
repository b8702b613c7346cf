"""Our own lines: how they look, where they go, and that nobody has to read them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.base.console import Console


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("all here", "musterpoint: all here\n"),
        ("two hosts:\nalgo-1\nalgo-2", "musterpoint: two hosts:\n    algo-1\n    algo-2\n"),
        ("", "musterpoint: \n"),
        ("ends with a newline\n", "musterpoint: ends with a newline\n"),
        ("grün", "musterpoint: grün\n"),
        ("not\ud800text", "musterpoint: not\\ud800text\n"),
        ("job \x1b[2J\r:", "musterpoint: job \\x1b[2J\\r:\n"),
        ("a\ttable\n\tof two", "musterpoint: a\ttable\n    \tof two\n"),
    ],
)
def test_a_message_is_one_write_of_whole_lines(text: str, written: str) -> None:
    got: list[bytes] = []
    Console(sink=got.append).say(text)
    assert got == [written.encode()]


def test_every_line_is_masked_also_those_of_others_which_are_as_they_are() -> None:
    got: list[bytes] = []
    console = Console(lambda text: text.replace("hush", "***"), got.append)
    console.say("hush\nand hush")
    console.show("  Collecting hush==1.0 \ud800")
    assert got == [b"musterpoint: ***\n    and ***\n", b"  Collecting ***==1.0 ?\n"]


def test_it_goes_to_stderr_until_somebody_takes_it_over(capfd: pytest.CaptureFixture[str]) -> None:
    console = Console()
    console.say("before")
    got: list[bytes] = []
    console.write_through(got.append)
    console.say("after")
    assert capfd.readouterr() == ("", "musterpoint: before\n")
    assert got == [b"musterpoint: after\n"]


def test_a_closed_stderr_is_no_error(root: Path, environ: dict[str, str]) -> None:
    code = "import os; os.close(2); from musterpoint.base.console import Console; Console().say('x'); print('went on')"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "went on\n")
