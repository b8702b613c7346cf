"""What the entry points of one host say to each other.

Lines are JSON objects. The one that leads begins with ``{"nonce", "local_rank"}``. The others say ``{"rank",
"local_rank", "world_size", "lost", "nonce", "proof"}``, with stdout and stderr as ancillary data, then ``{"signal"}``;
``lost`` are local ranks of those that led before and have ended. Then the one that leads says ``{"start": {"argv",
"set", "unset"}}``, ``{"kill": true}`` for the rank, ``{"end": code}`` or ``{"refused": why}``, each with ``"key"``.
Proof and key show that both know the token of this host's entry points.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Mapping, Sequence

from musterpoint.core.channel.secret import prove as proof_and_key

_LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of a line; the longest one has a rank's argv and variables, which the kernel bounds at 6 MiB."""
_MOST_DESCRIPTORS = 2


def prove(token: str, said: Mapping[str, Any], theirs: str) -> tuple[str, str]:
    """How an entry point that has ``said`` this answers the nonce ``theirs``, and the key that shows who leads."""
    words = " ".join(str(said.get(name)) for name in ("rank", "local_rank", "world_size", "nonce"))
    proof, key = proof_and_key(token, words.encode("utf-8", "surrogatepass"), theirs)
    return proof, key.hex()


class Lines:
    """JSON objects over a socket, both ways."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.descriptors: list[int] = []
        self.nonce = self.key = ""
        self._buffer = b""

    def receive(self) -> list[dict[str, Any]] | None:
        """What has come; None at the end. Descriptors are added to :attr:`descriptors`.

        Raises:
            ValueError: something else than such a line came.
        """
        try:
            data, descriptors, _flags, _address = socket.recv_fds(self.sock, 65536, 8)
        except BlockingIOError:
            return []
        except OSError:
            return None
        self.descriptors += descriptors
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > _LONGEST_LINE or len(self.descriptors) > _MOST_DESCRIPTORS:
            raise ValueError("expected shorter lines, and two descriptors")
        try:
            found = [json.loads(line) for line in lines]
        except RecursionError:
            raise ValueError("expected a plain object") from None
        if not all(isinstance(value, dict) for value in found):
            raise ValueError("expected an object")
        return found if data else None

    def send(self, value: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Sends ``value``; nothing happens where the other end is gone."""
        self.sock.settimeout(5.0)
        try:
            data = json.dumps({**value, "key": self.key} if self.key else value).encode() + b"\n"
            sent = socket.send_fds(self.sock, [data], descriptors) if descriptors else 0
            self.sock.sendall(data[sent:])
        except OSError:
            pass
        self.sock.setblocking(False)

    def close(self) -> None:
        for fd in self.descriptors:
            os.close(fd)
        self.descriptors = []
        self.sock.close()
