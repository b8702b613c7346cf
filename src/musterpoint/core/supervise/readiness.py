"""When a role's program on this host is ready: it has started, opened a port, answers by HTTP, or has said a line."""

from __future__ import annotations

import http.client
import os
import socket
from threading import Thread
from typing import Callable, Iterable

from musterpoint.base.loop import Loop, Timer
from musterpoint.core.job.model import Readiness
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.pump import Pump
from musterpoint.core.supervise.ranks_met import rows

LOOKS = (*(0.1,) * 20, *(0.25,) * 40, 1.0)
"""Seconds from one look to the next, the last for ever."""
ANSWER_SECONDS = 2.0
"""Seconds that a server may take to answer."""
LOOPBACK = "127.0.0.1"
LISTENS = "0A"
"""The state of a socket that listens (Linux, ``include/net/tcp_states.h``)."""


class ReadyWatch:
    """Calls ``on_ready`` once, when the role's programs here, ``pids``, are ready.

    Made before the programs start: a port that was open before is another one's.
    """

    def __init__(
        self,
        loop: Loop,
        pump: Pump,
        ready: Readiness,
        name: str,
        pids: Callable[[], Iterable[int]],
        on_ready: Callable[[], None],
        proc: str = "/proc",
    ) -> None:
        self._loop, self._ready, self._pids, self._on_ready, self._proc = loop, ready, pids, on_ready, proc
        self._sight = pump.look_for(ready.text, name) if ready.kind == "line" else None
        self._was_open = ready.port > 0 and _answers(LOOPBACK, ready.port)
        self._looks = iter(LOOKS)
        self._asks: Thread | None = None
        self._answered = self.is_over = False
        self._timer: Timer | None = None

    def begin(self) -> None:
        """The programs have been started."""
        if self._ready.kind == "started":
            self._over()
        elif not self.is_over:
            self._timer = self._loop.call_later(next(self._looks, LOOKS[-1]), self._look)

    @property
    def remark(self) -> str:
        """About a port that another process has, for people; else empty."""
        return ", which another process had open before" if self._was_open else ""

    def _look(self) -> None:
        if self._answered or (self._sight is not None and self._sight.seen):
            self._over()
            return
        if self._ready.port and (address := self._address()):
            if self._ready.kind == "port":
                self._over()
                return
            self._ask(address)
        self.begin()

    def _address(self) -> str:
        """The address of the program's port; empty: it hasn't opened it."""
        port = f":{self._ready.port:04X}"
        found = [row for row in rows(self._proc) if row.state == LISTENS and row.local.endswith(port)]
        own = self._sockets() if found else set()
        for row in found:
            if row.inode in own:
                return _address_of(row.local.partition(":")[0])
        # another user's, or of a network namespace of its own: then one that was closed at the start
        unseen = not found or any(row.user != os.getuid() for row in found)
        return LOOPBACK if unseen and not self._was_open and _answers(LOOPBACK, self._ready.port) else ""

    def _sockets(self) -> set[str]:
        """The inodes of the sockets of the role's programs, and of what they started."""
        pids = list(self._pids())
        below = process_tree.descendants_of(pids, self._proc) if pids else {}
        every = {*pids, *(stat.pid for stats in below.values() for stat in stats)}
        return {inode for pid in every for inode in process_tree.socket_inodes(pid, self._proc)}

    def _ask(self, address: str) -> None:
        """Asks the server in a thread: it may take its time. The next look finds the answer."""
        if self._asks is None or not self._asks.is_alive():
            self._asks = Thread(target=self._get, args=(address,), daemon=True)
            self._asks.start()

    def _get(self, address: str) -> None:
        try:
            connection = http.client.HTTPConnection(address, self._ready.port, timeout=ANSWER_SECONDS)
            connection.request("GET", self._ready.text)
            self._answered = 200 <= connection.getresponse().status < 300
            connection.close()
        except (OSError, http.client.HTTPException):
            pass  # not yet

    def _over(self) -> None:
        if not self.is_over:
            self.close()
            self._on_ready()

    def close(self) -> None:
        """Looks no more."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), 0.2):
            return True
    except OSError:
        return False


def _address_of(text: str) -> str:
    """An address of the table, for a connection: the loopback where it is any."""
    packed = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    if not any(packed):
        return LOOPBACK
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
