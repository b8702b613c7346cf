"""The rank stub against a real desk: registration, pipes, signals, statuses, and the end of its supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Iterator

import pytest

from musterpoint.launch.stub_command import through_stub
from musterpoint.loop import Loop
from musterpoint.supervise import tree
from musterpoint.supervise.desk import Desk, Visitor
from musterpoint.supervise.stub import StubText

COMMAND = through_stub(sys.executable, [])


class Counter:
    """The supervisor's side: gives a pipe to the one stub that comes, and keeps what it says."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.desk = Desk(self.loop, self.greet)
        self.text = StubText()
        self.said: list[str] = []
        self.visitor: Visitor | None = None
        self.gone = False
        self.read, self.write = os.pipe()

    def greet(self, visitor: Visitor) -> None:
        self.visitor = visitor
        visitor.on_line = self.line
        visitor.on_gone = self.left

    def line(self, words: list[str], line: str) -> None:
        self.said.append(line)
        if words[0] == "rank" and self.visitor is not None:
            self.visitor.tell("go", (self.write, self.write))

    def left(self) -> None:
        self.gone = True

    def until(self, done: Callable[[], bool]) -> None:
        deadline = self.loop.clock() + 20
        while not done():
            assert self.loop.clock() < deadline, self.said
            self.loop.turn(0.5)

    def heard(self, word: str) -> str:
        self.until(lambda: any(line.startswith(word) for line in self.said))
        return next(line for line in self.said if line.startswith(word))

    def start(self, *program: str, **environ: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ, "MUSTER_STUB": self.text.path, "MUSTER_SOCKET": self.desk.address, "RANK": "5",
            "LOCAL_RANK": "1", "WORLD_SIZE": "8", **environ,
        }  # fmt: skip
        return subprocess.Popen([*COMMAND, *program], env=environment, cwd="/")

    def output(self) -> bytes:
        os.close(self.write)
        self.write = -1
        with open(self.read, "rb") as file:
            return file.read()

    def close(self) -> None:
        self.desk.close()
        self.text.close()
        self.loop.close()


@pytest.fixture
def counter() -> Iterator[Counter]:
    counter = Counter()
    yield counter
    counter.close()


def test_it_registers_runs_and_waits_for_its_release(counter: Counter, tmp_path: Path) -> None:
    program = "import os,sys; print(os.getcwd(), os.environ['PYTHONPATH'], 'MUSTER_STUB' in os.environ); sys.exit(7)"
    stub = counter.start(
        sys.executable, "-c", program, MUSTER_USER_CWD=str(tmp_path), MUSTER_USER_PYTHONPATH="/user/path"
    )
    assert counter.heard("rank") == f"rank 5 1 8 {stub.pid} 0"
    assert counter.heard("ended") == f"ended {7 << 8}"
    assert stub.poll() is None, "it holds its exit"
    assert counter.visitor is not None
    counter.visitor.tell("release")
    assert stub.wait(20) == 7
    assert counter.output() == f"{tmp_path} /user/path False\n".encode()


@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_it_ends_as_its_program_did(counter: Counter, signo: signal.Signals) -> None:
    stub = counter.start(sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(signo)})")
    counter.heard("ended")
    assert counter.visitor is not None
    counter.visitor.tell("release")
    assert stub.wait(20) == -signo


def test_it_swallows_and_reports_the_launchers_signals(counter: Counter) -> None:
    stub = counter.start(sys.executable, "-c", "import sys; sys.stdin.read()")
    counter.heard("started")
    stub.send_signal(signal.SIGTERM)
    assert counter.heard("signal") == f"signal {int(signal.SIGTERM)}"
    program = int(counter.heard("started").split()[1])
    os.kill(program, signal.SIGKILL)  # still there: the signal did not reach it
    assert counter.heard("ended") == f"ended {int(signal.SIGKILL)}"
    assert counter.visitor is not None
    counter.visitor.tell("release")
    stub.wait(20)


def test_its_program_dies_with_the_supervisor(counter: Counter) -> None:
    stub = counter.start(sys.executable, "-c", "import time; time.sleep(60)")
    program = int(counter.heard("started").split()[1])
    counter.desk.close()
    assert stub.wait(20) == 70
    deadline = time.monotonic() + 10
    while (stat := tree.read_stat(program)) is not None and stat.state != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_program_that_is_missing(counter: Counter) -> None:
    stub = counter.start("/nonexistent/program")
    assert counter.heard("ended") == f"ended {127 << 8}"
    assert counter.visitor is not None
    counter.visitor.tell("release")
    assert stub.wait(20) == 127
    assert b"No such file" in counter.output()


def test_it_exits_when_it_is_not_wanted(counter: Counter) -> None:
    stub = counter.start(sys.executable, "-c", "pass")
    counter.visitor = None
    counter.line = lambda words, line: None  # type: ignore[method-assign]
    counter.until(lambda: counter.visitor is not None)
    assert counter.visitor is not None
    counter.visitor.close()
    assert stub.wait(20) == 70
