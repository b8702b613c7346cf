"""Hands a supervisor its events, never from within one of its own calls, and keeps them until somebody listens."""

from __future__ import annotations

from typing import Callable

from musterpoint.loop import Loop
from musterpoint.peers import PeerEvent


class Events:
    """The listening half of :class:`musterpoint.peers.Peers`; each kind of peer builds on it."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: list[PeerEvent] = []
        self._on_event: Callable[[PeerEvent], None] | None = None

    def listen(self, on_event: Callable[[PeerEvent], None]) -> None:
        self._on_event = on_event
        if self._waiting:
            self._loop.call_later(0, self._deliver)

    def _emit(self, event: PeerEvent) -> None:
        self._waiting.append(event)
        if self._on_event is not None and len(self._waiting) == 1:
            self._loop.call_later(0, self._deliver)

    def _deliver(self) -> None:
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            if self._on_event is not None:
                self._on_event(event)

    def _deafen(self) -> None:
        self._on_event = None
        self._waiting = []
