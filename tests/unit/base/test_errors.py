"""Every error of ours knows its code, and no two kinds share one."""

from __future__ import annotations

import pytest

from musterpoint.base.errors import (
    CheckError,
    FetchError,
    LauncherError,
    MusterError,
    RollCallError,
    StoppedEarly,
    UsageError,
)

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
