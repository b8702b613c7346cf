"""``train`` on a terminal: the one rank reads it, Ctrl-C reaches it, and whoever started us gets it back."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="job control as Linux has it")


SHELL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
code = os.waitstatus_to_exitcode(os.waitpid(job, 0)[1])
print("THE END", code, os.tcgetpgrp(0) == job, flush=True)
"""
"""A shell's part, in a session of its own: a foreground job, then what has become of the terminal."""


class Screen:
    """What a person at the terminal sees and types."""

    def __init__(self, train, **environ: str) -> None:  # type: ignore[no-untyped-def]
        self.master, slave = os.openpty()
        self.shell = subprocess.Popen(
            [train.python, "-c", SHELL, train.python, "-m", "musterpoint.cli.train"], cwd="/",
            env={**train.environ, **environ}, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.seen = b""

    def until(self, text: bytes, after: bytes = b"") -> None:
        deadline = time.monotonic() + 120
        while text not in self.seen.partition(after)[2] if after else text not in self.seen:
            assert select.select([self.master], [], [], deadline - time.monotonic())[0], self.seen
            self.seen += os.read(self.master, 4096)

    def type(self, text: bytes) -> None:
        os.write(self.master, text)

    def end(self) -> str:
        """``CODE True`` where the terminal was given back."""
        self.until(b"\r\n", after=b"THE END ")
        self.shell.wait(60)
        os.close(self.master)
        return self.seen.partition(b"THE END ")[2].decode().strip()


def test_the_debugger(train) -> None:  # type: ignore[no-untyped-def]
    train.program("answer = 41\nbreakpoint()\nprint('after', answer)\n")
    screen = Screen(train)
    screen.until(b"(Pdb) ")
    screen.type(b"answer + 1\n")
    screen.until(b"42")
    screen.type(b"continue\n")
    screen.until(b"after 41")
    assert screen.end() == "0 True"


CATCHES = """
import sys, time
try:
    print("go", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    sys.exit(int(sys.stdin.readline()))
"""


def test_ctrl_c_is_the_one_ranks_own(train) -> None:  # type: ignore[no-untyped-def]
    train.program(CATCHES)
    screen = Screen(train)
    screen.until(b"go")
    screen.type(b"\x03")
    screen.type(b"3\n")
    assert screen.end() == "3 True"


READS = """
import sys, time
print(repr(sys.stdin.read()), flush=True)
time.sleep(600)
"""


def test_several_ranks_read_nothing_and_are_interrupted_together(train) -> None:  # type: ignore[no-untyped-def]
    train.program(READS)
    screen = Screen(train, MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="2")
    screen.until(b"''\r\n''")
    screen.type(b"\x03")
    assert screen.end() == "130 True"
