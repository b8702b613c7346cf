from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.code.install import InstallLock
from musterpoint.code.tools import Output, Tools
from musterpoint.errors import StoppedEarly
from musterpoint.loop import Loop

HOLD = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


class Machine:
    def __init__(self, folder: Path) -> None:
        self.loop, self.said, self.environ = Loop(), list[str](), {"TMPDIR": str(folder), "PATH": os.environ["PATH"]}
        self.tools = Tools(self.loop, "algo-1", Output(self.said.append, print, lambda *_: None))

    def lock(self) -> InstallLock:
        return InstallLock(sys.executable, self.environ, self.tools)

    def held(self) -> bool:
        with open(self.lock().path, "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.loop.close()


def test_it_is_held_inside(machine: Machine) -> None:
    with machine.lock():
        assert machine.held()
    assert not machine.held()
    assert machine.said == []
    assert Path(machine.lock().path).stat().st_mode & 0o777 == 0o600


def test_one_python_one_lock(machine: Machine) -> None:
    assert InstallLock("/usr/bin/python3", machine.environ, machine.tools).path != machine.lock().path
    assert Path(machine.lock().path).parent == Path(machine.environ["TMPDIR"])


def test_another_holder_is_waited_for_and_a_stop_ends_the_wait(machine: Machine) -> None:
    Path(machine.lock().path).touch()
    holder = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLD, machine.lock().path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None and holder.stdin is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        machine.loop.call_later(0.3, holder.stdin.close)
        with machine.lock():
            assert machine.held()
            assert machine.said == [f"another process is installing into {sys.executable}: waiting for it"]
            other = Machine(Path(machine.environ["TMPDIR"]))
            other.loop.call_later(0.2, lambda: other.tools.stop(15))
            with pytest.raises(StoppedEarly), other.lock():
                pytest.fail("it was given away twice")
            other.loop.close()
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_where_no_file_can_be_made_there_is_none(machine: Machine, tmp_path: Path) -> None:
    machine.environ["TMPDIR"] = str(tmp_path / "none")
    with machine.lock():
        pass
    machine.environ["TMPDIR"] = str(tmp_path)
    target = tmp_path / "target"
    Path(machine.lock().path).symlink_to(target)
    with machine.lock():
        assert not target.exists(), "a link of somebody else's was followed"
