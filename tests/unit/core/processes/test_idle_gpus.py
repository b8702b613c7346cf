"""GPUs that no process has opened, from recorded /proc trees and from a process of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.core.processes.idle_gpus import idle, warn_of_idle


def process(root: Path, pid: int, parent: int, *files: str, state: str = "S") -> None:
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} (python) {state} {parent} {pid} {pid} 0\n")
    for number, file in enumerate(("/dev/null", *files)):
        (folder / "fd" / str(number)).symlink_to(file)


@pytest.mark.parametrize(
    ("opened", "said"),
    [
        ({}, ""),
        ({11: (0, 1), 12: (2, 3)}, ""),
        ({11: (0,), 12: (1,)}, "GPUs 2, 3 of 4 not in use: no process of this host has opened them"),
        ({11: (0, 1, 2)}, "GPU 3 of 4 not in use: no process of this host has opened it"),
        ({11: (), 12: ()}, "none of its GPUs is in use: no process"),
    ],
)
def test_what_processes_have_open(opened: dict[int, tuple[int, ...]], said: str, tmp_path: Path) -> None:
    process(tmp_path, 10, 1)
    process(tmp_path, 99, 1, "/dev/nvidia3")  # of another job
    for pid, gpus in opened.items():
        process(tmp_path, pid, 10, "/dev/nvidiactl", *(f"/dev/nvidia{gpu}" for gpu in gpus))
    found = idle((0, 1, 2, 3), str(tmp_path), 10)
    assert said in found and bool(found) == bool(said)
    assert idle((), str(tmp_path), 10) == ""


def test_a_process_that_may_not_be_asked_is_given_the_benefit_of_the_doubt(tmp_path: Path) -> None:
    process(tmp_path, 10, 1)
    process(tmp_path, 11, 10)
    folder = tmp_path / "proc/11/fd"
    for link in folder.iterdir():
        link.unlink()
    folder.rmdir()
    assert "none of its GPUs" in idle((0,), str(tmp_path), 10)  # it has just ended
    folder.write_text("")  # what a listing fails on
    assert idle((0,), str(tmp_path), 10) == ""


def test_processes_of_this_machine() -> None:
    """One that has another file open stands for one that has opened no GPU."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    said: list[str] = []
    try:
        warn_of_idle((4095,), said.append, pid=os.getpid())
    finally:
        child.communicate(b"\n")
    assert len(said) == 1
    assert said[0].startswith("warning: 120 s after the start, none of its GPUs is in use")
