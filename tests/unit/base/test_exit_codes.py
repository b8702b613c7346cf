"""Exit codes, the errors that have them, and what a stop leaves of the platform's grace."""

from __future__ import annotations

import os
import signal

import pytest

from musterpoint.base import exit_codes
from musterpoint.base.errors import (
    CheckError,
    FetchError,
    LauncherError,
    MusterError,
    RollCallError,
    StoppedEarly,
    UsageError,
)
from musterpoint.base.stop_budget import end_grace, rank_grace, whole_grace

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


KINDS = [(MusterError, 70), (UsageError, 64), (RollCallError, 69), (FetchError, 71), (LauncherError, 72),
         (CheckError, 78)]  # fmt: skip


@pytest.mark.parametrize(("kind", "code"), KINDS)
def test_the_code_of_an_error(kind: type[MusterError], code: int) -> None:
    error = kind("a sentence")
    assert (error.code, str(error)) == (code, "a sentence")
    assert isinstance(error, MusterError)


def test_of_a_long_message_the_beginning_and_the_end_are_kept() -> None:
    assert str(UsageError("a" * 9000 + "b" * 9000)) == "a" * 1500 + " [15000 characters left out] " + "b" * 1500


def test_a_stop_names_the_host_that_was_told() -> None:
    stop = StoppedEarly("algo-3", 15)
    assert isinstance(stop, MusterError)
    assert (stop.host, stop.signal, stop.code) == ("algo-3", 15, 143)
    assert str(stop) == "algo-3 was told to stop (signal 15) during the roll call"
    assert str(StoppedEarly("a", 2, "before it")) == "a was told to stop (signal 2) before it"


@pytest.mark.parametrize(
    ("platform", "told", "seconds"),
    [(120.0, None, 105.0), (30.0, None, 25.0), (6.0, None, 5.0), (600.0, None, 585.0), (120.0, 7.0, 7.0), (30.0, 0, 0)],
)  # fmt: skip
def test_a_stop_has_the_platforms_time_less_what_a_report_takes(
    platform: float, told: float | None, seconds: float
) -> None:
    assert rank_grace(platform, told) == seconds


@pytest.mark.parametrize(("told", "whole"), [(None, 30.0), (25.0, 30.0), (105.0, 120.0), (300.0, 315.0), (0.0, 0.0)])
def test_a_told_grace_is_the_ranks_share_of_the_platforms(told: float | None, whole: float) -> None:
    assert whole_grace(30.0, told) == whole


@pytest.mark.parametrize(
    ("stopped", "grace", "seconds"), [(True, 105.0, 105.0), (False, 105.0, 30.0), (True, 5.0, 5.0), (False, 5.0, 5.0)]
)
def test_after_a_failure_ranks_get_half_a_minute_at_most(stopped: bool, grace: float, seconds: float) -> None:
    assert end_grace(stopped, grace) == seconds
