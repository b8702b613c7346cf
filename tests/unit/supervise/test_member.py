"""A signal for a rank goes to the program, past the shells in front of it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from musterpoint.supervise.ranks import Rank

TOLD = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda signo, frame: sys.exit(7)); "
    "print('ready', flush=True); signal.pause()"
)


@pytest.mark.parametrize("shell", [False, True])
def test_the_program_is_told(shell: bool) -> None:
    program = [sys.executable, "-c", TOLD]
    argv = ["sh", "-c", '"$@"; exit $?', "sh", *program] if shell else program
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    Rank((0, 0), 3, 1, "", process.pid).send(signal.SIGTERM)
    process.communicate(timeout=100)
    assert process.returncode == 7


def test_a_rank_that_is_not_here_yet_is_nobody() -> None:
    before = []
    old = signal.signal(signal.SIGUSR2, lambda signo, frame: before.append(signo))
    Rank((0, 0), 0, 0, "", 0).send(signal.SIGUSR2)  # pid 0 would be our own process group
    signal.signal(signal.SIGUSR2, old)
    assert before == []


def test_one_that_has_ended_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    Rank((0, 0), 0, 0, "", process.pid).send(signal.SIGTERM)
