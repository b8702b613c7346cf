"""Where ranks that have no torch meet: who may say a rank's address, and what strangers at that port can do."""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import socket
import struct
import threading
import time
from typing import Any, Callable, Iterator

import pytest

from ...ports import free_port

TOKEN = "the job's"


@pytest.fixture
def meeting(modelparallel: Any) -> Any:
    return importlib.import_module("smdistributed.shared.meeting")


@pytest.fixture
def admission(meeting: Any) -> Any:
    return importlib.import_module("smdistributed.shared.admission")


class Running:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self._found: list[Any] = []
        self._thread = threading.Thread(target=self._run, args=(call, args), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[..., Any], args: Any) -> None:
        try:
            self._found.append(call(*args))
        except Exception as error:
            self._found.append(error)

    def result(self) -> Any:
        self._thread.join(500)
        return self._found[0]


@contextlib.contextmanager
def connected(port: int) -> Iterator[tuple[socket.socket, bytes]]:
    """A connection to rank 0, once it listens, and its greeting."""
    with contextlib.ExitStack() as stack:
        while True:
            try:
                caller = stack.enter_context(socket.create_connection(("127.0.0.1", port), 500))
                break
            except ConnectionRefusedError:
                os.sched_yield()
        yield caller, caller.recv(32, socket.MSG_WAITALL)


def hung_up(stranger: socket.socket) -> bool:
    try:
        return not stranger.recv(1)
    except ConnectionResetError:
        return True


def test_ranks_learn_each_others_addresses_and_strangers_nothing(meeting: Any) -> None:
    port = free_port()
    leader = Running(meeting.meet, 0, 3, "", port, TOKEN)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(port))[0] for _ in range(3)]
        claims = [struct.pack("<IH", rank, 7) for rank in (99, 0, 1)]
        for said in (b"[" * 60_000, b"GET / HTTP/1.1\r\n" * 10, *(claim + bytes(64) for claim in claims)):
            with connected(port) as (stranger, _):
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    stranger.sendall(said)
                assert hung_up(stranger)
        others = [Running(meeting.meet, rank, 3, "127.0.0.1", port, TOKEN) for rank in (1, 2)]
        found = leader.result()
        assert [each.result() for each in others] == [found, found]
        assert len({each.rpartition(":")[2] for each in found}) == 3
        assert all(hung_up(each) for each in silent), "who says nothing isn't waited for"


def test_a_claim_counts_once_and_within_the_range(meeting: Any, admission: Any) -> None:
    port = free_port()
    leader = Running(meeting.meet, 0, 3, "", port, TOKEN)

    def claims(caller: socket.socket, greeting: bytes, rank: int, its_port: int) -> None:
        packed = struct.pack("<IH", rank, its_port)
        caller.sendall(packed + bytes(32) + admission.proof(TOKEN.encode(), b"claim", greeting, packed, bytes(32)))

    for rank, its_port in ((99, 9), (0, 9), (2, 0), (1 << 31, 9)):
        with connected(port) as (caller, greeting):
            claims(caller, greeting, rank, its_port)
            assert hung_up(caller)
    with connected(port) as (one, greeting), connected(port) as (two, other):
        claims(one, greeting, 1, 9)
        claims(two, other, 1, 9)
        (refused, *_), _, _ = select.select([one, two], [], [])
        assert hung_up(refused)
        kept = two if refused is one else one
        gone = Running(meeting.meet, 2, 3, "127.0.0.1", port, TOKEN)
        assert len(kept.recv(32, socket.MSG_WAITALL)) == 32, "the first claim stood, and is answered"
    assert leader.result() == gone.result() and leader.result()[1] == "127.0.0.1:9"


def test_a_rank_whose_connection_broke_comes_again(meeting: Any, admission: Any) -> None:
    port = free_port()
    leader = Running(meeting.meet, 0, 3, "", port, TOKEN)
    with connected(port) as (lost, greeting):
        packed = struct.pack("<IH", 1, 9)
        lost.sendall(packed + bytes(32) + admission.proof(TOKEN.encode(), b"claim", greeting, packed, bytes(32)))
    others = [Running(meeting.meet, rank, 3, "127.0.0.1", port, TOKEN) for rank in (1, 2)]
    found = leader.result()
    assert [each.result() for each in others] == [found, found] and "127.0.0.1:9" not in found


def test_without_the_token_nobody_comes_and_nobody_is_believed(meeting: Any) -> None:
    port = free_port()
    leader = Running(meeting.meet, 0, 2, "", port, TOKEN, 1.0)
    stranger = Running(meeting.meet, 1, 2, "127.0.0.1", port, "another's", 1.0)
    said, other = leader.result(), stranger.result()
    assert isinstance(said, TimeoutError) and "ranks 1 of 2 didn't come" in str(said)
    assert "SMDISTRIBUTED_TOKEN" in str(said) and isinstance(other, TimeoutError)
    with socket.create_server(("127.0.0.1", 0)) as server:  # one that would send ranks elsewhere
        misled = Running(meeting.meet, 1, 2, "127.0.0.1", server.getsockname()[1], TOKEN, 1.0)
        with server.accept()[0] as caller:
            caller.sendall(bytes(32))
            assert len(caller.recv(70, socket.MSG_WAITALL)) == 70
            text = b'["evil:1", "evil:2"]'
            caller.sendall(bytes(32) + struct.pack("<I", len(text)) + text)
            caller.recv(1)
    assert isinstance(misled.result(), TimeoutError)


def test_silent_callers_cost_no_threads(admission: Any) -> None:
    """Neither here nor in the transport of pipelines, which has the same door."""

    def talk(caller: socket.socket) -> Any:
        return (yield 4)

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        door = admission.Admission(server, talk, seconds=500, most=8)
        before = threading.active_count()
        admitted = Running(door.next)
        silent = [stack.enter_context(socket.create_connection(server.getsockname(), 500)) for _ in range(40)]
        assert all(hung_up(each) for each in silent[:32]), "the first ones had said nothing for the longest"
        with socket.create_connection(server.getsockname(), 500) as member:
            member.sendall(b"here")
            assert admitted.result().who == b"here"
        assert threading.active_count() <= before + 1
        admitted.result().connection.close()
        door.end()
    with socket.create_server(("127.0.0.1", 0)) as server:
        door = admission.Admission(server, talk, seconds=0.01)
        with socket.create_connection(server.getsockname(), 500) as slow:
            with pytest.raises(TimeoutError):
                door.next(time.monotonic() + 0.2)
            assert hung_up(slow)
        waits = Running(door.next)
        door.close()
        assert isinstance(waits.result(), OSError)
        door.end()
