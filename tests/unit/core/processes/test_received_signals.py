"""Signals arrive in the loop, once, and are as they were afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any, Iterator

import pytest

from musterpoint.base.loop import Loop
from musterpoint.core.processes.received_signals import PASSED_ON, STOPPING, Signals, hear_all

CAUGHT = (*STOPPING, *PASSED_ON)


@pytest.fixture
def received() -> list[int]:
    return []


@pytest.fixture
def signals(loop: Loop, received: list[int]) -> Iterator[Signals]:
    with contextlib.closing(Signals(loop, received.append)) as signals:
        yield signals


@pytest.mark.parametrize("signo", [*CAUGHT, signal.SIGCHLD])
def test_each_is_heard_once_in_the_loop(loop: Loop, signals: Signals, received: list[int], signo: int) -> None:
    os.kill(os.getpid(), signo)
    os.kill(os.getpid(), signo)
    assert received == []
    loop.turn(1)
    loop.turn(0)
    assert received == [signo]


def test_what_came_before_anybody_listened_is_kept(loop: Loop, signals: Signals) -> None:
    later: list[int] = []
    os.kill(os.getpid(), signal.SIGTERM)
    signals.route_to(later.append)
    loop.turn(1)
    assert later == [signal.SIGTERM]


def test_what_is_kept_goes_to_the_next_handler_in_the_loop(loop: Loop, signals: Signals, received: list[int]) -> None:
    signals.route_to(signals.keep)
    os.kill(os.getpid(), signal.SIGTERM)
    loop.turn(1)
    signals.route_to(received.append)
    assert received == []
    loop.turn(1)
    signals.route_to(lambda signo: None)
    loop.turn(0)
    assert received == [signal.SIGTERM], "once"


def test_handlers_are_as_they_were_afterwards(loop: Loop) -> None:
    before = [signal.getsignal(signo) for signo in CAUGHT]
    signals = Signals(loop, lambda signo: None)
    assert [signal.getsignal(signo) for signo in CAUGHT] != before
    signals.close()
    signals.close()
    assert [signal.getsignal(signo) for signo in CAUGHT] == before


def test_a_process_that_ends_is_asked_in_vain(loop: Loop) -> None:
    before = {signo: signal.getsignal(signo) for signo in CAUGHT}
    Signals(loop, lambda signo: None).close(ends=True)
    try:
        for signo in before:
            os.kill(os.getpid(), signo)
    finally:
        for signo, old in before.items():
            signal.signal(signo, old)


def test_nohup_is_respected(loop: Loop) -> None:
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signals = Signals(loop, lambda signo: None)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signals.close()
    finally:
        signal.signal(signal.SIGHUP, old)


def test_a_signal_that_came_another_way_is_delivered_alike(signals: Signals, received: list[int]) -> None:
    signals.deliver(signal.SIGTERM)
    assert received == [signal.SIGTERM]


def test_none_is_lost_while_handlers_are_set(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comes as soon as its handler is there, before the next step."""
    received: list[int] = []
    set_handler = signal.signal
    hang_up = set_handler(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup, where it isn't caught

    def set_and_send(signo: int, handler: Any) -> Any:
        before = set_handler(signo, handler)
        if signo in CAUGHT:
            os.kill(os.getpid(), signo)
        return before

    with monkeypatch.context() as patched:
        patched.setattr(signal, "signal", set_and_send)
        signals = Signals(loop, received.append)
    loop.turn(1)
    signals.close()
    set_handler(signal.SIGHUP, hang_up)
    assert sorted(received) == sorted(CAUGHT)


def test_none_is_lost_while_handlers_are_set_back(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """With each step one comes: whoever listened before gets it as soon as its handler is back."""
    heard: list[int] = []
    set_handler, set_fd = signal.signal, signal.set_wakeup_fd
    before = set_handler(signal.SIGUSR1, lambda signo, frame: heard.append(signo))
    read, write = os.pipe()
    os.set_blocking(write, False)
    outer = set_fd(write)
    try:
        signals = Signals(loop, heard.append)
        with monkeypatch.context() as patched:

            def set_and_send(signo: int, handler: Any) -> Any:
                was = set_handler(signo, handler)
                if signo == signal.SIGUSR1:
                    os.kill(os.getpid(), signo)
                return was

            def set_fd_and_send(fd: int, **more: Any) -> int:
                was = set_fd(fd, **more)
                os.kill(os.getpid(), signal.SIGUSR1)
                return was

            patched.setattr(signal, "signal", set_and_send)
            patched.setattr(signal, "set_wakeup_fd", set_fd_and_send)
            signals.close()
        assert heard == [signal.SIGUSR1] * 2
        assert os.read(read, 10) == bytes([signal.SIGUSR1]), "the second, to the listener of before"
    finally:
        set_fd(outer)
        set_handler(signal.SIGUSR1, before)
        os.close(read)
        os.close(write)


@pytest.fixture
def inherited() -> Iterator[None]:
    """Signals as a test has set them, and after it as they were."""
    before = {signo: signal.getsignal(signo) for signo in (*CAUGHT, signal.SIGCHLD, signal.SIGTSTP)}
    yield
    for signo, handler in before.items():
        signal.signal(signo, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@pytest.mark.usefixtures("inherited")
def test_no_signal_stays_blocked() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    hear_all()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


@pytest.mark.usefixtures("inherited")
def test_what_was_ignored_is_heard_but_for_nohup() -> None:
    for signo in (*STOPPING, signal.SIGCHLD, signal.SIGTSTP):
        signal.signal(signo, signal.SIG_IGN)
    hear_all()
    assert {signo: signal.getsignal(signo) for signo in (*STOPPING, signal.SIGCHLD, signal.SIGTSTP)} == {
        signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_IGN,
        signal.SIGQUIT: signal.SIG_DFL, signal.SIGCHLD: signal.SIG_DFL, signal.SIGTSTP: signal.SIG_IGN,
    }  # fmt: skip


@pytest.mark.usefixtures("inherited")
def test_what_is_handled_stays_so() -> None:
    """A command may be called by a program of Python's."""

    def handler(signo: int, frame: Any) -> None:
        raise AssertionError(signo)

    for signo in STOPPING:
        signal.signal(signo, handler)
    hear_all()
    assert {signal.getsignal(signo) for signo in STOPPING} == {handler}
