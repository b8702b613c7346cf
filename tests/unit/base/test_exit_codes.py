"""The table of exit codes, against the promised numbers and against real processes."""

from __future__ import annotations

import os
import signal

import pytest

from musterpoint.base import exit_codes

PROMISED = {
    "OK": 0, "USAGE": 64, "ROLLCALL": 69, "INTERNAL": 70, "FETCH": 71, "LAUNCHER": 72, "STALLED": 74,
    "HOST_LOST": 76, "CHECK": 78, "STOPPED": 143,
}  # fmt: skip


def test_the_codes_are_those_promised() -> None:
    assert {name: value for name, value in vars(exit_codes).items() if name.isupper()} == PROMISED


@pytest.mark.parametrize(("ended", "code"), [(0, 0), (7, 7), (255, 255), (-1, 255), (256, 0), (257, 1)])
def test_a_code_as_the_system_sees_it(ended: int, code: int) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(ended & 0xFF)
    _, status = os.waitpid(pid, 0)
    assert exit_codes.of_status(os.waitstatus_to_exitcode(status)) == code


@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_death_by_signal_is_128_and_more(signo: signal.Signals) -> None:
    pid = os.fork()
    if pid == 0:
        signal.signal(signo, signal.SIG_DFL) if signo != signal.SIGKILL else None
        os.kill(os.getpid(), signo)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert exit_codes.of_status(os.waitstatus_to_exitcode(status)) == 128 + signo == exit_codes.of_signal(signo)


@pytest.mark.parametrize(
    ("failure", "stop_signal", "code"), [(0, 0, 0), (7, 0, 7), (7, 15, 143), (0, 15, 143), (0, 2, 130), (7, 2, 130)]
)
def test_a_stop_counts_for_more_than_a_failure(failure: int, stop_signal: int, code: int) -> None:
    assert exit_codes.of_job(failure, stop_signal, exit_codes.STOPPED) == code
