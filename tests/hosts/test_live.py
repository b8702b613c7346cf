"""``muster local`` on a terminal: the hosts' lines below the log while the job runs, and nothing of them afterwards."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any, Callable

import pyte
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="terminals as Linux has them")

WAITS = """
import os, sys, time
print("\\x1b[31mred\\x1b[0m", os.environ["RANK"], flush=True)
here = sys.argv[1]
while not os.path.exists(os.path.join(here, "go-" + os.environ["RANK"])):
    time.sleep(0.05)
print("done", os.environ["RANK"], flush=True)
"""
PATIENCE = 500.0


class Screen:
    """A terminal's screen, on which ``muster local`` runs."""

    def __init__(self, local: Any, *words: str, columns: int = 100, rows: int = 24) -> None:
        self.drawn = 0
        self.fd, terminal = os.openpty()
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.resize(columns, rows)
        self.process = subprocess.Popen(
            [local.python, "-m", "musterpoint", "local", "--backend", "process", *words], cwd=local.folder,
            env={**local.environ, "TERM": "xterm-256color"}, stdin=subprocess.DEVNULL, stdout=terminal,
            stderr=terminal, start_new_session=True,
        )  # fmt: skip
        os.close(terminal)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def until(self, there: Callable[[list[str]], bool]) -> list[str]:
        """The screen's lines, once they are as wanted."""
        end = time.monotonic() + PATIENCE
        while not there(self.lines):
            assert self._feed(end), self.lines
        return self.lines

    def _feed(self, end: float) -> bool:
        assert select.select([self.fd], [], [], max(0.0, end - time.monotonic()))[0], self.lines
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # nobody has the terminal open any more
            return False
        self._stream.feed(data)
        self.drawn += bool(data)
        return bool(data)

    def end(self) -> int:
        """What is left when the job has ended; its exit code."""
        while self._feed(time.monotonic() + PATIENCE):
            pass
        os.close(self.fd)
        return self.process.wait(PATIENCE)


def shown(lines: list[str]) -> list[str]:
    """The lines that aren't empty, and two at least."""
    return ["", "", *filter(None, lines)]


@pytest.mark.lane("suite")
def test_lines_of_hosts_while_they_run(local: Any, tmp_path: Path) -> None:
    program = local.program(WAITS)
    screen = Screen(
        local, "--hosts", "2", "--launcher", "ranks", "--output", str(local.output), str(program), str(tmp_path)
    )
    running = screen.until(
        lambda lines: (
            all("running  1 of 1 ranks alive  last output" in line for line in shown(lines)[-2:])
            and sum("| red" in line for line in shown(lines)[:-2]) == 2
        )
    )
    assert [line.split()[0] for line in shown(running)[-2:]] == ["algo-1", "algo-2"]
    log = [line for line in running if "| red" in line]
    assert sorted(log) == ["algo-1 | red 0", "algo-2 | red 1"]
    row = running.index("algo-1 | red 0")
    assert screen.screen.buffer[row][len("algo-1 | ")].fg == "red"

    screen.resize(100, 16)
    drawn = screen.drawn
    resized = screen.until(lambda lines: screen.drawn > drawn and all("running" in line for line in shown(lines)[-2:]))
    assert len(resized) == 16
    assert not any("running" in line for line in shown(resized)[:-2])

    (tmp_path / "go-0").touch()
    screen.until(lambda lines: shown(lines)[-2].split()[1:2] == ["waiting"] or "waits for algo-2" in "".join(lines))
    (tmp_path / "go-1").touch()
    assert screen.end() == 0
    left = screen.lines
    assert "algo-2 | done 1" in left
    assert not any(line.startswith("algo-") and "|" not in line for line in left), "the lines are gone"
    assert screen.screen.margins is None or screen.screen.margins.bottom == 15
    assert not list(local.output.rglob(".events"))


def test_ctrl_c_gives_the_terminal_back(local: Any, tmp_path: Path) -> None:
    program = local.program(WAITS)
    screen = Screen(local, "--launcher", "ranks", "--output", str(local.output), str(program), str(tmp_path))
    screen.until(lambda lines: "running" in shown(lines)[-1])
    assert screen.screen.cursor.hidden
    screen.process.send_signal(signal.SIGINT)
    assert screen.end() == 128 + signal.SIGINT
    assert not screen.screen.cursor.hidden
    assert not any(line.startswith("algo-1") for line in screen.lines), "its line is gone"
