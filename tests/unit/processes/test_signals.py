"""Signals arrive in the loop, once, and are as they were afterwards."""

from __future__ import annotations

import os
import signal
from typing import Iterator

import pytest

from musterpoint.loop import Loop
from musterpoint.processes.signals import PASSED_ON, STOPPING, Signals


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("signo", [*STOPPING, *PASSED_ON, signal.SIGCHLD])
def test_each_is_heard_once_in_the_loop(loop: Loop, signo: int) -> None:
    heard: list[int] = []
    ears = Signals(loop, heard.append)
    try:
        os.kill(os.getpid(), signo)
        os.kill(os.getpid(), signo)
        assert heard == []
        loop.turn(1)
        loop.turn(0)
    finally:
        ears.close()
    assert heard == [signo]


def test_what_came_before_anybody_listened_is_kept(loop: Loop) -> None:
    heard: list[int] = []
    ears = Signals(loop, lambda signo: None)
    os.kill(os.getpid(), signal.SIGTERM)
    ears.hear = heard.append
    loop.turn(1)
    ears.close()
    assert heard == [signal.SIGTERM]


def test_handlers_are_as_they_were_afterwards(loop: Loop) -> None:
    before = [signal.getsignal(signo) for signo in (*STOPPING, *PASSED_ON)]
    ears = Signals(loop, lambda signo: None)
    assert [signal.getsignal(signo) for signo in (*STOPPING, *PASSED_ON)] != before
    ears.close()
    ears.close()
    assert [signal.getsignal(signo) for signo in (*STOPPING, *PASSED_ON)] == before


def test_nohup_is_respected(loop: Loop) -> None:
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ears = Signals(loop, lambda signo: None)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        ears.close()
    finally:
        signal.signal(signal.SIGHUP, old)
