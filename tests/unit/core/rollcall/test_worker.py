"""A worker on its way to the leader: strangers, silence, and a leader that isn't the one it looks for."""

from __future__ import annotations

import socket
import threading
from typing import Any, Callable, Iterator

import pytest

from musterpoint.core.channel import wire

from ...meeting import TIMEOUTS

Start = Callable[..., Any]
WRONG_FIRST = {"algo-1": ("127.0.0.7", "127.0.0.1"), "algo-2": ("127.0.0.1",)}
OTHER_WELCOME = wire.pack("welcome", host="algo-1", job="another", token="t", answer="a")


@pytest.fixture
def stranger(cable: Any) -> Iterator[Callable[[bytes], None]]:
    """Listens at 127.0.0.7 and the cable's port, answers callers with the same bytes; closes if they are empty."""
    listener = socket.socket()
    listener.bind(("127.0.0.7", cable.port))
    kept: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def answer(reply: bytes) -> None:
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                kept.append(sock)
                if reply:
                    sock.sendall(reply)
                else:
                    sock.close()

        threads.append(threading.Thread(target=serve))
        threads[0].start()

    yield answer
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    listener.close()
    for thread in threads:
        thread.join()
    for sock in kept:
        sock.close()


@pytest.mark.parametrize(
    "reply",
    [
        b"", b"SSH-2.0-OpenSSH\r\n", OTHER_WELCOME, wire.pack_beat(0), wire.pack("roster"),
        wire.pack("challenge", nonce="n", proof="p"), wire.pack_large("roster", roster={}),
    ],
    ids=["closes", "ssh", "another job", "only beats", "a roster too soon", "a challenge", "a zip"],
)  # fmt: skip
def test_a_stranger_at_the_first_address_is_passed_by(start: Start, stranger: Any, cable: Any, reply: bytes) -> None:
    stranger(reply)
    leader = start(1, 2)
    worker = start(2, 2, addresses=WRONG_FIRST, port=cable.port, timeouts=TIMEOUTS._replace(hello=1.0))
    assert worker.gathered().seats == leader.gathered().seats


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 400 Bad Request\r\n"])
def test_another_program_on_the_port_of_the_roll_call_is_told(
    start: Start, stranger: Any, cable: Any, reply: bytes
) -> None:
    stranger(reply)
    only = {"algo-1": WRONG_FIRST["algo-1"][:1], "algo-2": ("127.0.0.1",)}
    worker = start(2, 2, addresses=only, port=cable.port, rollcall_timeout=1.0)
    text = str(worker.failed())
    assert f"; another program may listen on port {cable.port} there" in text and "--rollcall-port gives" in text


def test_a_leader_that_does_not_know_the_secret_is_passed_by(start: Start, stranger: Any, cable: Any) -> None:
    stranger(wire.pack("challenge", nonce="n") + wire.pack("welcome", host="algo-1", job="job", token="t", answer="a"))
    leader = start(1, 2, secret="an example of a secret")
    worker = start(2, 2, addresses=WRONG_FIRST, secret="an example of a secret", port=cable.port)
    assert worker.gathered().seats == leader.gathered().seats


def test_what_a_worker_says_while_it_waits(start: Start, port: int) -> None:
    worker = start(2, 3)
    worker.wait(lambda: worker.said)
    assert worker.said[:1] == [f"waiting for algo-1: 127.0.0.1 port {port}: connection refused"]
    start(1, 3)
    worker.wait(lambda: "waiting for the other hosts; algo-1 is here and knows who is missing" in worker.said)


def test_an_own_name_that_is_not_ours_is_told(start: Start) -> None:
    addresses = {"algo-1": ("127.0.0.1",), "algo-2": ("203.0.113.2",)}
    start(1, 2, addresses=addresses, secret="an example of a secret")
    worker = start(2, 2, addresses=addresses, secret="an example of a secret")
    worker.gathered()
    assert worker.warnings == ["warning: algo-2 resolves to 203.0.113.2 here, which is none of its addresses"]


def test_an_unreachable_leader_is_at_the_stage_of_its_name(start: Start) -> None:
    worker = start(2, 2, addresses={"algo-1": (), "algo-2": ("127.0.0.1",)}, rollcall_timeout=0.5)
    assert "algo-1  name" in str(worker.failed())
