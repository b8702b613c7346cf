"""The programs below a rank, as they really run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.base.loop import Loop
from musterpoint.core.processes import process_tree
from musterpoint.core.supervise.programs_below import ProgramsBelow

PYTHON = sys.executable


class Shell:
    """A script that was started, and a watch on it as rank 1 of 2."""

    def __init__(self, folder: Path, text: str) -> None:
        (folder / "run.sh").write_text(text)
        self.loop = Loop()
        environ = {**os.environ, "RANK": "1", "WORLD_SIZE": "2", "PYTHONPATH": ""}
        self.process = subprocess.Popen(["bash", "run.sh"], cwd=folder, env=environ, stdout=subprocess.DEVNULL)
        self.below = ProgramsBelow(self.loop, 2, self.loop.stop)
        self.below.watch(1, self.process.pid)

    def run(self) -> None:
        while self.process.poll() is None:
            self.loop.turn(0.01)


@pytest.fixture
def tells() -> Iterator[bool]:
    """Whether this kernel tells others how a process ended."""
    with subprocess.Popen(["true"]) as process:
        descriptor = os.pidfd_open(process.pid)
    yield process_tree.exit_status(descriptor) == 0
    os.close(descriptor)


def test_every_python_of_a_script_and_how_it_ended(tmp_path: Path, tells: bool) -> None:
    sleeps = f'{PYTHON} -Ic "import time; time.sleep(0.3); raise SystemExit(%d)"'
    shell = Shell(tmp_path, f"{sleeps % 3} | cat\n( {sleeps % 0} & {sleeps % 4} & wait )\n")
    shell.run()
    programs, text = shell.below.ended(1)
    assert text.startswith(PYTHON)
    assert sorted(one.status or 0 for one in programs[1:]) == ([0, 4] if tells else [0, 0])
    assert programs[0].status == (3 if tells else None)
    beside = [len(one.beside) for one in programs]
    assert (beside, [one.runs for one in programs]) == ([1, 2, 2], [False] * 3)


def test_a_program_that_its_parent_takes_at_that_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, read = list[int](), process_tree.read_stat

    def status(descriptor: int) -> int | None:
        asked.append(descriptor)
        return None if len(asked) == 1 else 3

    monkeypatch.setattr(process_tree, "exit_status", status)
    is_there = lambda pid, proc: None if len(asked) == 1 else read(pid, proc) or read(os.getpid(), proc)  # noqa: E731
    monkeypatch.setattr(process_tree, "read_stat", is_there)
    ends = "import time; time.sleep(0.3); raise SystemExit(3)"  # it is seen before
    shell = Shell(tmp_path, f'{PYTHON} -Ic "{ends}" | cat\nsleep 0.3\n')
    shell.run()
    assert [one.status for one in shell.below.ended(1)[0]] == [3]


def test_a_world_of_another_launcher(tmp_path: Path) -> None:
    (tmp_path / "torchrun").write_text(
        "import os, subprocess, sys\n"
        "own = {**os.environ, 'RANK': '0', 'TORCHELASTIC_RUN_ID': 'none'}\n"
        "subprocess.call([sys.executable, '-c', 'import time; time.sleep(600)'], env=own)\n"
    )
    shell = Shell(tmp_path, f"exec {PYTHON} torchrun train.py\n")
    try:
        shell.loop.run()
    finally:
        process_tree.kill_below(shell.process.pid)
        shell.process.wait()
    (world,) = shell.below.worlds.items()
    assert (world[0], world[1].launcher, world[1].size, world[1].ranks) == (1, "torchrun", 2, {0})
    shell.below.close()
