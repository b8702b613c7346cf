"""A stop during the roll call: who, and with which code."""

from __future__ import annotations

from musterpoint.errors import MusterError, StoppedEarly


def test_it_names_the_host_that_was_told() -> None:
    stop = StoppedEarly("algo-3", 15)
    assert isinstance(stop, MusterError)
    assert (stop.host, stop.signal, stop.code) == ("algo-3", 15, 143)
    assert str(stop) == "algo-3 was told to stop (signal 15) during the roll call"
    assert str(StoppedEarly("a", 2, "before it")) == "a was told to stop (signal 2) before it"
