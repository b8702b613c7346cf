"""The init of one host, as the program it is: codes and signals. What it leaves behind is tested with every backend."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.local import process_init


class Init:
    """An init around a Python program, with the other end of its control pipe."""

    def __init__(self, *argv: str, orders: bytes = b"") -> None:
        control, self.control = os.pipe()
        os.write(self.control, orders)
        self.process = subprocess.Popen(
            process_init.command(control, argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, pass_fds=(control,), start_new_session=True,
        )  # fmt: skip
        os.close(control)

    def line(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def order(self, signo: int) -> None:
        os.write(self.control, bytes([signo]))

    def close(self) -> None:
        if self.control >= 0:
            os.close(self.control)
        self.control = -1

    def end(self) -> int:
        self.process.communicate(timeout=500)
        return self.process.returncode


@pytest.fixture
def inits() -> Iterator[list[Init]]:
    made: list[Init] = []
    yield made
    for one in made:
        one.close()
        one.end()


def start(inits: list[Init], code: str) -> Init:
    inits.append(Init(sys.executable, "-c", code))
    return inits[-1]


@pytest.mark.parametrize(
    ("code", "expected"),
    [("raise SystemExit(7)", 7), ("", 0), ("import os; os.kill(os.getpid(), 9)", 137), ("import os; os.abort()", 134)],
)  # fmt: skip
def test_it_ends_with_the_code_of_its_program(inits: list[Init], code: str, expected: int) -> None:
    assert start(inits, code).end() == expected


def test_what_cannot_be_started_is_127_with_a_reason(inits: list[Init], tmp_path: Path) -> None:
    inits.append(Init(str(tmp_path / "nothing")))
    _, err = inits[0].process.communicate(timeout=500)
    assert inits[0].process.returncode == 127
    assert b"nothing: No such file or directory" in err


def test_an_order_that_comes_before_the_entry_point_is_itself_is_not_lost(inits: list[Init]) -> None:
    for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        inits.append(Init("sleep", "600", orders=bytes([signo])))
        assert inits[-1].end() == 128 + signo


def test_a_signal_of_the_terminal_is_not_its_business(inits: list[Init]) -> None:
    one = start(inits, "print('ready', flush=True); input() if False else __import__('time').sleep(600)")
    assert one.line() == b"ready"
    for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        one.process.send_signal(signo)
    one.order(signal.SIGTERM)
    assert one.end() == 143, "only what the control plane says counts"


NOTHING_LEFT = """
import os
from musterpoint.local import process_init

process_init.kill_below = lambda root: os._exit(9)
child = os.fork()
if child == 0:
    os._exit(0)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
process_init._kill_all()
"""


def test_a_host_that_left_nothing_behind_is_not_searched(environ: dict[str, str]) -> None:
    """Each search reads every process of the machine, and so would every host of a job."""
    done = subprocess.run([sys.executable, "-c", NOTHING_LEFT], env=environ, timeout=500, check=False)
    assert done.returncode == 0


def test_descendants_are_found_without_proc() -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild == 0:
            signal.pause()
        os.write(write, f"{grandchild}\n".encode())
        signal.pause()
    grandchild = int(os.read(read, 20))
    below = process_init._below_without_proc()
    assert below.index(child) < below.index(grandchild)
    for pid in (grandchild, child):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(child, 0)
    for fd in (read, write):
        os.close(fd)
