"""Connections that are passed on, and how they end."""

from __future__ import annotations

import asyncio
import functools
import gc
import select
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from musterpoint.local import way_out

Ends = tuple[socket.socket, socket.socket]


def passing(listening: socket.socket, port: int, loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_until_complete(way_out.listen(listening, functools.partial(way_out.join, "127.0.0.1", port)))
    loop.run_forever()
    for task in (left := asyncio.all_tasks(loop)):
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.fixture
def target() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        yield listening


@pytest.fixture
def way(target: socket.socket) -> Iterator[tuple[str, int]]:
    """An address whose connections are passed on to ``target``."""
    listening, loop = socket.create_server(("127.0.0.1", 0)), asyncio.new_event_loop()
    address = listening.getsockname()
    thread = threading.Thread(target=passing, args=(listening, target.getsockname()[1], loop))
    thread.start()
    yield address
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    listening.close()


@pytest.fixture
def ends(target: socket.socket, way: tuple[str, int]) -> Iterator[Ends]:
    near = socket.create_connection(way, 60)
    far = target.accept()[0]
    far.settimeout(60)
    with near, far:
        yield near, far


def reset(end: socket.socket, other: socket.socket) -> None:
    """Returns when the other has noticed."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
    noticed = select.poll()
    noticed.register(other, select.POLLERR)
    assert noticed.poll(20000)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("half_closed", ["", "here", "there"])
def test_a_reset_arrives_at_the_other_end(ends: Ends, which: int, half_closed: str) -> None:
    """Also from one, or at one, that has nothing more to send."""
    here, there = ends[which], ends[1 - which]
    if half_closed:
        first, second = (here, there) if half_closed == "here" else (there, here)
        first.shutdown(socket.SHUT_WR)
        assert second.recv(1) == b""
    reset(here, there)


def test_a_reset_before_the_other_end_is_there_arrives_there(target: socket.socket) -> None:
    """The first end has been closed by the time that both are looked at."""
    address = target.getsockname()

    async def passed_on() -> None:
        reader, writer = await asyncio.open_connection(*address)
        writer.transport.abort()
        await asyncio.sleep(0)
        await way_out.join(*address, reader, writer)

    asyncio.run(passed_on())
    with target.accept()[0], target.accept()[0] as far, pytest.raises(ConnectionResetError):
        far.recv(1)


@pytest.mark.parametrize("which", [0, 1])
def test_a_reset_arrives_at_one_that_reads_nothing(ends: Ends, which: int) -> None:
    here, there = ends[which], ends[1 - which]
    here.settimeout(0.5)
    with pytest.raises(TimeoutError):
        while True:
            here.send(bytes(1 << 16))
    reset(here, there)


@pytest.mark.parametrize("which", [0, 1])
def test_an_end_of_one_direction_is_no_end_of_the_other(ends: Ends, which: int) -> None:
    here, there = ends[which], ends[1 - which]
    here.sendall(b"asks")
    here.shutdown(socket.SHUT_WR)
    with there.makefile("rb") as file:
        assert file.read() == b"asks"
    gc.collect()
    there.sendall(b"answers")
    assert here.recv(100) == b"answers"
    there.close()
    assert here.recv(100) == b""


def test_where_nobody_answers_a_connection_is_reset(target: socket.socket, way: tuple[str, int]) -> None:
    target.close()
    with pytest.raises(ConnectionResetError), socket.create_connection(way, 60) as near:
        near.recv(1)
