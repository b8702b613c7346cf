"""The tracer on an ordinary process: what it hears, and that all else is as without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.core.processes import process_tree
from musterpoint.embedded.programs import pid1_tracer

from ...fixtures import closing_fixture

pytestmark = [pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ptrace of Linux")]

TARGET = """
import os, signal, sys, threading, time

def told(signo, frame):
    print("caught", signal.Signals(signo).name, flush=True)

signal.signal(signal.SIGUSR1, told)
signal.signal(signal.SIGCONT, told)
mine = {signal.SIGUSR1, signal.SIGCONT}
# Python runs handlers in its main thread, so that is the one to be woken
signal.pthread_sigmask(signal.SIG_BLOCK, {*mine, signal.SIGTERM})
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
signal.pthread_sigmask(signal.SIG_UNBLOCK, {*mine, signal.SIGTERM})
print("ready", flush=True)
sys.stdin.readline()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # for a thread to come
child = os.fork()
if child == 0:
    os._exit(3)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)

def open_to_it():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    print("late", flush=True)
    time.sleep(60)

threading.Thread(target=open_to_it, daemon=True).start()
time.sleep(60)
"""


class Traced:
    """A program and its tracer."""

    def __init__(self) -> None:
        self.target = subprocess.Popen(
            [sys.executable, "-c", TARGET], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.hear("ready")
        self.tracer = subprocess.Popen(
            [sys.executable, "-I", "-S", pid1_tracer.__file__, str(self.target.pid)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.traced("watching")

    def hear(self, line: str) -> None:
        assert self.target.stdout
        assert self.target.stdout.readline().strip() == line

    def traced(self, line: str) -> None:
        assert self.tracer.stdout
        assert self.tracer.stdout.readline().strip() == line

    def wait(self) -> int:
        """The next change of the program that its parent sees."""
        return os.waitpid(self.target.pid, os.WUNTRACED | os.WCONTINUED)[1]

    @property
    def by(self) -> int:
        text = Path(f"/proc/{self.target.pid}/status").read_text()
        return int(text.partition("TracerPid:")[2].split()[0])

    def close(self) -> None:
        for process in (self.tracer, self.target):
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe
                pipe.close()


traced = closing_fixture(Traced)


def test_signals_stops_and_threads(traced: Traced) -> None:
    pid = traced.target.pid
    assert traced.by == traced.tracer.pid
    os.kill(pid, signal.SIGUSR1)
    traced.hear("caught SIGUSR1")

    os.kill(pid, signal.SIGSTOP)
    stopped = traced.wait()
    assert os.WIFSTOPPED(stopped) and os.WSTOPSIG(stopped) == signal.SIGSTOP
    os.kill(pid, signal.SIGUSR1)
    os.kill(pid, signal.SIGCONT)
    assert os.WIFCONTINUED(traced.wait())
    assert traced.target.stdout
    said = {traced.target.stdout.readline().strip() for _ in range(2)}
    assert said == {"caught SIGUSR1", "caught SIGCONT"}

    assert traced.target.stdin
    traced.target.stdin.write("\n")
    traced.target.stdin.flush()
    traced.hear("child 3")
    traced.hear("late")
    os.kill(pid, signal.SIGTERM)
    traced.traced("TERM")
    assert traced.target.wait() == -signal.SIGTERM, "passed on: this program isn't PID 1, and dies of it"
    assert traced.tracer.wait() == 0


@pytest.mark.parametrize("how", ["dismissed", "killed", "killed while it is stopped"])
def test_when_it_ends_nothing_changes(traced: Traced, how: str) -> None:
    pid = traced.target.pid
    if how.endswith("stopped"):
        os.kill(pid, signal.SIGSTOP)
        assert os.WIFSTOPPED(traced.wait())
    if how == "dismissed":
        assert traced.tracer.stdin
        traced.tracer.stdin.close()
        assert traced.tracer.wait() == 0
    else:
        traced.tracer.kill()
        traced.tracer.wait()
    assert traced.by == 0
    if how.endswith("stopped"):
        while (found := process_tree.read_stat(pid)) and found.state == "R":
            os.sched_yield()  # on its way back into the stop
        assert found and found.state == "T"
        os.kill(pid, signal.SIGCONT)
        assert os.WIFCONTINUED(traced.wait())
        traced.hear("caught SIGCONT")
    os.kill(pid, signal.SIGUSR1)
    traced.hear("caught SIGUSR1")


def test_only_one_can_trace(traced: Traced) -> None:
    second = subprocess.run(
        [sys.executable, "-I", "-S", pid1_tracer.__file__, str(traced.target.pid)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (second.returncode, second.stdout) == (0, "refused 1\n")
    assert traced.by == traced.tracer.pid
