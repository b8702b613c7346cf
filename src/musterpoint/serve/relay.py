"""Lets containers reach the server, which listens on loopback: an address of their own network leads there."""

from __future__ import annotations

import contextlib
import socket
import threading

_CHUNK = 1 << 16


class Relay:
    """Listens at ``address``, a port of its own, and passes connections on to ``port`` of this machine's loopback."""

    def __init__(self, address: str, port: int) -> None:
        self._port = port
        self._listening = socket.create_server((address, 0))
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    @property
    def url(self) -> str:
        host, port = self._listening.getsockname()[:2]
        return f"http://{host}:{port}"

    def move(self, port: int) -> None:
        """The server has another port from now on."""
        self._port = port

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(near,), name="relayed", daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        with near:
            try:
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                return
            with far:
                back = threading.Thread(target=_copy, args=(far, near), name="relayed back", daemon=True)
                back.start()
                _copy(near, far)
                back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
