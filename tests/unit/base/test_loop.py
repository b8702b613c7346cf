"""The event loop, with both ways of waiting: descriptors, timers, calls from other threads."""

from __future__ import annotations

import os
import select
import socket
import threading
from typing import Iterator

import pytest

from musterpoint.base import loop as module
from musterpoint.base.loop import READ, WRITE, Loop

KINDS = ["_Select", pytest.param("_Epoll", marks=pytest.mark.skipif(not hasattr(select, "epoll"), reason="no epoll"))]


@pytest.fixture(params=KINDS)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    monkeypatch.setattr(module, "_poller", getattr(module, request.param))
    made = Loop()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


def test_a_descriptor_is_reported_for_what_is_asked(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    seen: list[int] = []
    loop.watch(here.fileno(), READ, seen.append)
    loop.turn(0)
    assert seen == []
    there.send(b"x")
    loop.turn(0)
    assert seen == [READ]
    loop.watch(here.fileno(), READ | WRITE, seen.append)
    loop.turn(0)
    loop.watch(here.fileno(), WRITE, seen.append)
    loop.turn(0)
    assert seen == [READ, READ | WRITE, WRITE]
    loop.forget(here.fileno())
    loop.forget(here.fileno())
    loop.turn(0)
    assert len(seen) == 3


def test_a_hang_up_reaches_the_reader(loop: Loop) -> None:
    read, write = os.pipe()
    seen: list[int] = []
    loop.watch(read, READ, seen.append)
    os.close(write)
    loop.turn(1.0)
    assert seen
    assert seen[0] & READ
    loop.forget(read)
    os.close(read)


def test_a_callback_may_forget_another_that_is_ready(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    called: list[int] = []

    def first(_ready: int) -> None:
        for end in pair:
            loop.forget(end.fileno())
        called.append(1)

    for end in pair:
        loop.watch(end.fileno(), WRITE, first)
    loop.turn(0)
    loop.turn(0)
    assert called == [1]


def test_a_closed_descriptor_can_still_be_forgotten(loop: Loop) -> None:
    read, write = os.pipe()
    loop.watch(read, READ, lambda ready: None)
    os.close(read)
    os.close(write)
    loop.forget(read)
    loop.turn(0)


def test_timers_run_in_the_order_of_their_time() -> None:
    now = 100.0
    loop = Loop(lambda: now)
    ran: list[str] = []
    loop.call_later(3, lambda: ran.append("third"))
    loop.call_at(101.0, lambda: ran.append("first"))
    forgotten = loop.call_later(1.5, lambda: ran.append("never"))
    loop.call_later(2, lambda: ran.append("second"))
    forgotten.cancel()
    loop.turn(0)
    assert ran == []
    now = 102.0
    loop.turn(0)
    assert ran == ["first", "second"]
    now = 200.0
    loop.turn(0)
    loop.turn(0)
    assert ran == ["first", "second", "third"]
    loop.close()


def test_what_came_before_a_timer_was_due_goes_first_even_after_a_standstill(
    loop: Loop, pair: tuple[socket.socket, socket.socket]
) -> None:
    here, there = pair
    now = 100.0
    loop.clock = lambda: now
    order: list[str] = []

    def stand_still(_ready: int) -> None:
        nonlocal now
        loop.forget(there.fileno())
        there.send(b"x")
        now = 200.0

    loop.call_at(150.0, lambda: order.append("timer"))
    loop.watch(here.fileno(), READ, lambda _ready: (here.recv(1), order.append("heard"))[1])
    loop.watch(there.fileno(), WRITE, stand_still)
    loop.turn(0)
    assert order == ["heard", "timer"]


def test_a_timer_wakes_the_loop_once_and_not_too_early(loop: Loop) -> None:
    due = loop.clock() + 0.02
    loop.call_at(due, loop.stop)
    turns = 0
    while loop.clock() < due:
        loop.turn()
        turns += 1
    assert turns <= 2, "waking early would spin"


def test_a_cancelled_timer_does_not_wake_it(loop: Loop) -> None:
    loop.call_later(0.01, lambda: None).cancel()
    began = loop.clock()
    loop.turn(0.1)
    assert loop.clock() - began >= 0.09


def test_a_stop_leaves_the_rest_for_the_next_run(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    ran: list[str] = []

    def end(name: str) -> None:
        ran.append(name)
        loop.stop()

    loop.call_at(0.0, lambda: end("a"))
    loop.call_at(1.0, lambda: end("b"))
    loop.watch(pair[0].fileno(), WRITE, lambda ready: (loop.forget(pair[0].fileno()), end("ready"))[0])
    for expected in (["ready"], ["ready", "a"], ["ready", "a", "b"]):
        loop.run()
        assert ran == expected


def test_posts_of_many_threads_all_arrive_each_threads_in_order(loop: Loop) -> None:
    loop.prepare_posts()
    threads, each = 8, 300
    seen: list[tuple[int, int]] = []
    home = threading.get_ident()
    strangers: list[int] = []

    def note(word: tuple[int, int]) -> None:
        seen.append(word)
        if threading.get_ident() != home:
            strangers.append(threading.get_ident())
        if len(seen) == threads * each:
            loop.stop()

    def work(number: int) -> None:
        for index in range(each):
            loop.post(lambda word=(number, index): note(word))  # type: ignore[misc]

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    loop.call_later(20, loop.stop)
    loop.run()
    for worker in workers:
        worker.join()
    assert strangers == []
    for number in range(threads):
        assert [index for owner, index in seen if owner == number] == list(range(each))


def test_a_post_wakes_a_loop_that_waits(loop: Loop) -> None:
    loop.prepare_posts()
    asleep = threading.Timer(0.05, lambda: loop.post(loop.stop))
    asleep.start()
    loop.call_later(20, lambda: pytest.fail("nobody woke it"))
    loop.run()
    asleep.join()


def test_it_gives_its_descriptors_back() -> None:
    before = set(os.listdir("/dev/fd"))
    loop = Loop()
    loop.prepare_posts()
    assert set(os.listdir("/dev/fd")) - before
    loop.close()
    loop.close()
    assert set(os.listdir("/dev/fd")) == before
