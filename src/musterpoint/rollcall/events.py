"""Hands a supervisor its events, never from within one of its own calls, and keeps them until somebody listens."""

from __future__ import annotations

from typing import Callable

from musterpoint.loop import Loop
from musterpoint.peers import PeerEvent


class Events:
    """The listening half of :class:`musterpoint.peers.Peers`, and what not every kind of peer may say."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: list[PeerEvent] = []
        self._on_event: Callable[[PeerEvent], None] | None = None

    def listen(self, on_event: Callable[[PeerEvent], None]) -> None:
        self._on_event = on_event
        if self._waiting:
            self._loop.call_later(0, self._deliver)

    def start(self, host: str, number: int, words: tuple[str, ...]) -> None:
        raise RuntimeError(f"start request {number} for {host}: only the leader of several hosts asks for starts")

    def started(self, number: int) -> None:
        raise RuntimeError(f"start request {number}: only a worker is asked, so only a worker answers")

    def start_ended(self, number: int, status: int, said: str = "") -> None:
        self.started(number)

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
