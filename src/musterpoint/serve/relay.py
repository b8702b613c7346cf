"""A job's own way to the server: hosts reach it wherever they are, and wait where it is being started anew."""

from __future__ import annotations

import contextlib
import socket
import threading

_CHUNK = 1 << 16


class Relay:
    """Listens at ``address``, a port of its own, and passes connections on to ``port`` of this machine's loopback."""

    def __init__(self, address: str, port: int) -> None:
        self._port = port
        self._moved = threading.Event()
        self._closed = False
        self._listening = socket.create_server((address, 0))
        self.port = int(self._listening.getsockname()[1])
        self.url = f"http://{address}:{self.port}"
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def move(self, port: int) -> None:
        """A server has been started anew, at ``port``."""
        self._port = port
        self._moved.set()

    def close(self) -> None:
        self._closed = True
        self._moved.set()
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
            far = self._reach()
            if far is None:
                return
            with far:
                back = threading.Thread(target=_copy, args=(far, near), name="relayed back", daemon=True)
                back.start()
                _copy(near, far)
                back.join()

    def _reach(self) -> socket.socket | None:
        """A connection to the server, once there is one; None: nobody needs it any more."""
        while not self._closed:
            self._moved.clear()
            try:
                return socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                if not self._closed:
                    self._moved.wait()
        return None


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
