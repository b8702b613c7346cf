#!/usr/bin/env python3
"""What the kernel and the event loop take of a leader's processor for each connection, frame, byte and timer.

Measured with real sockets on this machine: this process is the leader's side, a child is the others'. One line of JSON
comes out, in seconds; ``scripts/simulate`` puts them into its simulation.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from typing import Callable

from musterpoint.base.loop import READ, WRITE, Loop

CONNECTIONS = 400
FRAME = bytes(48)
LARGE = os.urandom(70_000)
ROUNDS = 15
ADDRESS = "127.1.0.1"


def others(port: int) -> None:
    """The child: connects, answers each small frame with one, reads the large ones."""
    socks = {}
    poller = select.epoll()
    for index in range(CONNECTIONS):
        sock = socket.socket()
        sock.bind((f"127.2.{index // 250}.{index % 250 + 1}", 0))
        sock.connect((ADDRESS, port))
        socks[sock.fileno()] = sock
        poller.register(sock.fileno(), select.EPOLLIN)
    while socks:
        for fd, _ in poller.poll():
            try:
                data = socks[fd].recv(1 << 20)
            except ConnectionResetError:
                data = b""
            if not data:
                socks.pop(fd).close()
            elif len(data) == len(FRAME):
                socks[fd].send(data)


def timed(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began


class Leader:
    def __init__(self) -> None:
        self.loop = Loop()
        self.sock = socket.create_server((ADDRESS, 0), backlog=CONNECTIONS)
        self.sock.setblocking(False)
        self.ends: list[socket.socket] = []
        self.got = 0

    def accept(self) -> float:
        """All have connected: what one costs."""

        def take() -> None:
            while True:
                try:
                    end, _ = self.sock.accept()
                except BlockingIOError:
                    return
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.loop.watch(end.fileno(), READ, _nothing)
                self.ends.append(end)

        spent = 0.0
        while len(self.ends) < CONNECTIONS:
            select.select([self.sock], [], [])
            time.sleep(0.05)  # until several wait; only the work counts
            spent += timed(take)
        return spent / CONNECTIONS

    def frames(self) -> tuple[float, float]:
        """What one small frame costs that is sent, and one that comes; the middle of several rounds."""
        send, receive = [], []
        for end in self.ends:
            self.loop.watch(end.fileno(), READ, lambda _ready, end=end: self._read(end))  # type: ignore[misc]
        for _ in range(ROUNDS):
            send.append(timed(lambda: [end.send(FRAME) for end in self.ends]))
            self.got, spent = 0, 0.0
            while self.got < len(self.ends):
                time.sleep(0.002)
                spent += timed(lambda: self.loop.turn(0.01))
            receive.append(spent)
        return sorted(send)[ROUNDS // 2] / len(self.ends), sorted(receive)[ROUNDS // 2] / len(self.ends)

    def _read(self, end: socket.socket) -> None:
        self.got += bool(end.recv(65536))

    def bytes(self) -> float:
        """What a byte costs, where each connection gets many for the first time."""
        rest = {end: memoryview(LARGE) for end in self.ends}

        def push(end: socket.socket) -> None:
            try:
                rest[end] = rest[end][end.send(rest[end]) :]
            except BlockingIOError:
                return
            if not rest[end]:
                del rest[end]
                self.loop.watch(end.fileno(), READ, _nothing)

        def all_at_once() -> None:
            for end in self.ends:
                push(end)
                if end in rest:
                    self.loop.watch(end.fileno(), READ | WRITE, lambda _ready, end=end: push(end))  # type: ignore[misc]

        spent = timed(all_at_once)
        while rest:
            spent += timed(self.loop.turn)
        return spent / len(self.ends) / len(LARGE)

    def timer(self) -> float:
        count = 2000
        spent = timed(lambda: [self.loop.call_later(0.0, _nothing) for _ in range(count)])
        return (spent + timed(lambda: self.loop.turn(0.0))) / count

    def close(self) -> float:
        def end_all() -> None:
            for end in self.ends:
                self.loop.forget(end.fileno())
                end.close()

        return timed(end_all) / len(self.ends)


def _nothing(*_ready: object) -> None:
    """Nothing has to be done."""


def main() -> None:
    leader = Leader()
    if not os.fork():
        others(leader.sock.getsockname()[1])
        os._exit(0)
    accept = leader.accept()
    send, receive = leader.frames()
    byte = leader.bytes()
    timer, close = leader.timer(), leader.close()
    os.wait()
    found = {"accept": accept, "receive": receive, "send": send, "byte": byte, "timer": timer, "close": close}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
