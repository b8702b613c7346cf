"""One connection: queues, ends, and a say_bye that waits for nobody long."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from musterpoint.base.loop import Loop
from musterpoint.core.channel import wire
from musterpoint.core.channel.connection_log import ConnectionLog
from musterpoint.core.channel.link import Context, Link, LinkOwner, plain_address, say_bye
from musterpoint.core.channel.secret import Seal
from musterpoint.core.channel.timeouts import Timeouts

from ...fixtures import closing_fixture


class Ends:
    """A link and the raw socket at its other end."""

    def __init__(self) -> None:
        self.loop = Loop()
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        near = socket.create_connection(listener.getsockname())
        self.far, _ = listener.accept()
        listener.close()
        self.frames: list[bytes] = []
        self.ends: list[tuple[str, bool]] = []
        self.said: list[str] = []
        self.moments: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None
        context = Context(self.loop, Timeouts(), ConnectionLog(self.said.append, self._record))
        owner = LinkOwner(self.on_frame, lambda _link, why, eof: self.ends.append((why, eof)))
        self.link = Link(context, near, "127.0.0.1", 1000, owner)

    def on_frame(self, _link: Link, payload: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.frames.append(payload)

    def _record(self, event: str, **facts: Any) -> None:
        self.moments.append((event, facts))

    def turn(self, times: int = 3) -> None:
        for _ in range(times):
            self.loop.turn(0.05)

    def until(self, outcomes: list[Any], count: int = 1) -> None:
        while len(outcomes) < count:
            self.loop.turn(60.0)

    def close(self) -> None:
        self.link.close()
        self.far.close()
        self.loop.close()


ends = closing_fixture(Ends)


def test_frames_come_in(ends: Ends) -> None:
    ends.far.sendall(wire.frame(b"one") + wire.frame(b"two")[:3])
    ends.turn()
    ends.far.sendall(wire.frame(b"two")[3:])
    ends.until(ends.frames, 2)
    assert ends.frames == [b"one", b"two"]


def test_the_other_end_closes(ends: Ends) -> None:
    ends.far.close()
    ends.until(ends.ends)
    assert ends.ends == [("it closed the connection", True)]
    ends.link.send(b"into the void")
    ends.turn()
    assert len(ends.ends) == 1


def test_a_reset_is_an_end_too(ends: Ends) -> None:
    ends.link.send(b"x")
    ends.far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    ends.far.close()
    ends.until(ends.ends)
    assert ends.ends == [("connection reset by peer", True)]


def test_too_large_a_frame_ends_it(ends: Ends) -> None:
    ends.far.sendall(wire.frame(b"x" * 1001))
    ends.until(ends.ends)
    assert ends.ends == [("it sent a frame of 1001 bytes where at most 1000 are expected", True)]


def test_a_slow_reader_gets_everything(ends: Ends) -> None:
    data = bytes(range(256)) * 40_000
    ends.link.send(data)
    ends.link.send(b"end")
    assert ends.link.busy
    got = b""
    ends.far.settimeout(500)
    while len(got) < len(data) + 3:
        ends.loop.turn(0)
        got += ends.far.recv(1 << 20)
    assert got == data + b"end"
    ends.turn()
    assert not ends.link.busy


def test_who_never_reads_is_given_up(ends: Ends) -> None:
    for _ in range(9):
        ends.link.send(b"x" * (10 << 20))
    assert ends.ends == [("it does not read what it is sent", False)]


def test_a_bye_flushes_and_waits_for_the_reader(ends: Ends) -> None:
    data = b"x" * (8 << 20)
    got: list[int] = []

    def read() -> None:
        total = 0
        while more := ends.far.recv(1 << 20):
            total += len(more)
        got.append(total)
        ends.far.close()

    ends.link.send(data)
    reader = threading.Thread(target=read)
    reader.start()
    say_bye([ends.link], 10.0)
    reader.join()
    assert got == [len(data)]


def test_a_bye_to_a_dead_peer_is_short(ends: Ends) -> None:
    ends.link.send(b"x" * (32 << 20))
    started = time.monotonic()
    say_bye([ends.link], 0.3)
    assert time.monotonic() - started < 100


@pytest.mark.parametrize(
    "error",
    [
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"), RecursionError("deep"), KeyError("x"), MemoryError(),
        OverflowError("much"), AssertionError(), ValueError("a\x1b[2J\nmusterpoint: all is well"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_whatever_a_frame_leads_to_ends_its_connection_only_and_is_told_of(ends: Ends, error: Exception) -> None:
    ends.error = error
    ends.far.sendall(wire.frame(b"evil") * 9)
    ends.until(ends.ends)
    assert ends.ends == [("what it sent could not be handled", True)]
    (said,) = ends.said
    assert type(error).__name__ in said and "127.0.0.1" in said and "(test_link.py:" in said
    assert said.isprintable()
    ((event, facts),) = ends.moments
    assert (event, facts["address"]) == ("internal-error", "127.0.0.1")


def test_an_error_while_the_end_is_told_ends_nothing_else(ends: Ends) -> None:
    def end(_link: Link, _why: str, _eof: bool) -> None:
        raise KeyError("x")

    ends.link.hand_over(LinkOwner(ends.on_frame, end))
    ends.far.close()
    ends.until(ends.said)
    assert "KeyError" in ends.said[0]


def test_what_breaks_the_protocol_is_told_of_in_plain_text(ends: Ends) -> None:
    ends.error = wire.WireError("a message '\x1b[2J\r\n\u202e' " + "x" * 5000)
    ends.far.sendall(wire.frame(b"evil"))
    ends.until(ends.ends)
    ((why, eof),) = ends.ends
    assert eof and why.isprintable() and len(why) < 400
    assert ends.said[0].isprintable()
    assert ends.moments[0][0] == "protocol-broken"


def test_many_frames_at_once_are_handled_a_few_at_a_time(ends: Ends) -> None:
    """Whoever sends many delays nobody: between two handfuls the loop turns."""
    count = 10_000
    ends.far.sendall(wire.frame(b"") * count)
    ends.until(ends.frames)
    assert 1 <= len(ends.frames) <= 100
    turns = 0
    while len(ends.frames) < count:
        before = len(ends.frames)
        ends.loop.turn(60.0)
        turns += 1
        assert len(ends.frames) - before <= 100
    assert turns >= 100


def test_frames_of_before_go_first_and_the_end_is_told_last(ends: Ends) -> None:
    expected = [b"%d" % number for number in range(1000)]
    ends.far.sendall(b"".join(map(wire.frame, expected)))
    ends.far.close()
    ends.until(ends.ends)
    assert ends.frames == expected


def test_who_is_ignored_is_heard_no_more_and_cut_off_if_it_goes_on(ends: Ends) -> None:
    ends.link.ignore()
    ends.far.sendall(wire.frame(b"x") * 100 + b"\xff" * 100)
    ends.turn()
    assert (ends.frames, ends.ends) == ([], [])
    ends.far.settimeout(500)
    with pytest.raises(OSError):
        while True:
            ends.loop.turn(0)
            ends.far.send(b"x" * 65536)
    assert ends.frames == []
    assert ends.ends == [("it goes on sending", True)]


class Sealed(Ends):
    """Both ends are sealed; ``far_seal`` makes what the raw socket sends."""

    def __init__(self) -> None:
        super().__init__()
        self.link.use_seal(Seal(b"k" * 32, leads=True))
        self.far_seal = Seal(b"k" * 32, leads=False)

    def sealed(self, payload: bytes) -> bytes:
        frame = wire.frame(payload)
        return self.far_seal.close(frame) + payload


sealed = closing_fixture(Sealed)


def test_sealed_frames_of_every_size_arrive(sealed: Sealed) -> None:
    payloads = [b"x" * size for size in (0, 1, 100, 900)]
    sealed.far.sendall(b"".join(map(sealed.sealed, payloads)))
    sealed.until(sealed.frames, len(payloads))
    assert sealed.frames == payloads
    sent = [b"y" * size for size in (0, 1, 5000, 3_000_000, 7, 3_000_000)]
    for payload in sent:
        sealed.link.send(wire.frame(payload))
    frames, got = wire.Frames(wire.LEADER_LIMIT), []
    sealed.far.settimeout(500)
    while len(got) < len(sent):
        sealed.loop.turn(0)
        frames.feed(sealed.far.recv(1 << 20))
        while (data := frames.next()) is not None:
            got.append(sealed.far_seal.open(data))
    assert got == sent


@pytest.mark.parametrize("what", ["plain", "changed", "again", "skipped", "swapped", "reflected", "short"])
def test_what_the_other_end_did_not_send_next_ends_the_connection(sealed: Sealed, what: str) -> None:
    one, two, three = (sealed.sealed(payload) for payload in (b"one", b"two", b"three"))
    sealed.link.send(wire.frame(b"mine"))
    mine = sealed.far.recv(100)
    evil = {
        "plain": wire.frame(b"two"), "changed": two[:-1] + b"0", "again": one, "skipped": three,
        "swapped": three + two, "reflected": mine, "short": wire.frame(b"123"),
    }[what]  # fmt: skip
    sealed.far.sendall(one + evil)
    sealed.until(sealed.ends)
    assert sealed.frames == [b"one"]
    assert sealed.ends == [("it sent a frame that does not bear the mark of our secret", True)]


def test_addresses_are_plain() -> None:
    assert plain_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain_address("fe80::1%eth0") == "fe80::1"
    assert plain_address("fd00::1") == "fd00::1"


def test_a_new_owner_gets_what_comes_and_may_be_sent_more(ends: Ends) -> None:
    large = b"x" * 5000
    got: list[bytes] = []
    ends.link.hand_over(LinkOwner(lambda _link, payload: got.append(payload), lambda *_end: None))
    ends.link.set_limit(5000)
    ends.far.sendall(wire.frame(large))
    ends.until(got)
    assert (got, ends.frames) == ([large], [])
