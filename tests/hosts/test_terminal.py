"""A job on a terminal: the one rank that may reads it, Ctrl-C reaches it, and whoever started us gets it back."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from typing import Sequence

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

    def __init__(self, train, command: Sequence[str] = (), **environ: str) -> None:  # type: ignore[no-untyped-def]
        self.master, slave = os.openpty()
        command = command or [train.python, "-m", "musterpoint.cli.train"]
        self.shell = subprocess.Popen(
            [train.python, "-c", SHELL, *command], cwd="/",
            env={**train.environ, **environ}, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.seen = b""

    def until(self, text: bytes, after: bytes = b"") -> None:
        deadline = time.monotonic() + 500
        while text not in self.seen.partition(after)[2] if after else text not in self.seen:
            assert select.select([self.master], [], [], deadline - time.monotonic())[0], self.seen
            self.seen += os.read(self.master, 4096)

    def type(self, text: bytes) -> None:
        os.write(self.master, text)

    def end(self) -> str:
        """``CODE True`` where the terminal was given back."""
        self.until(b"\r\n", after=b"THE END ")
        self.shell.wait(500)
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


@pytest.mark.lane("suite")
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


ONE_STOPS = """
import os, sys, time
rank, meeting = os.environ["RANK"], sys.argv[1]
answer = 41
breakpoint()
if rank == "1":
    open(meeting, "w").close()
while not os.path.exists(meeting):
    time.sleep(0.05)
print("rank", rank, "went on", flush=True)
"""


@pytest.mark.parametrize(("launcher", "backend"), [("ranks", "netns"), ("torchrun", "process")])
def test_a_debugger_on_one_rank(local, launcher: str, backend: str) -> None:  # type: ignore[no-untyped-def]
    """With ranks that musterpoint starts itself, and with those of a launcher: Ctrl-C is the debugger's, too."""
    words = ("--hosts", "2", "--backend", backend, "--launcher", launcher, "--debug", "1")
    program = local.program(ONE_STOPS)
    screen = Screen(local, local.command(*words, program, local.folder / "went-on"))
    screen.until(b"(Pdb) ")
    screen.type(b"answer + 1\n")
    screen.until(b"42")
    screen.type(b"print('asleep'.upper(), flush=True); time.sleep(600)\n")
    screen.until(b"ASLEEP\r\n")
    screen.type(b"\x03")
    screen.until(b"KeyboardInterrupt")
    screen.type(b"continue\n")
    screen.until(b"rank 1 went on")
    assert screen.end() == "0 True"
    assert b"algo-1 |" in screen.seen.partition(b"rank 0 went on")[0].splitlines()[-1], "only rank 1 has the terminal"
    assert "(Pdb) continue" in (local.output / "terminal.log").read_text()


def test_ctrl_c_stops_a_job_whose_debugged_rank_is_none(local) -> None:  # type: ignore[no-untyped-def]
    program = local.program("import time; print('here', flush=True); time.sleep(600)")
    command = local.command("--backend", "process", "--launcher", "ranks", "--debug", "7", program)
    screen = Screen(local, command)
    screen.until(b"here")
    screen.type(b"\x03")
    assert screen.end() == "130 True"
