"""A channel that keeps what a topic's half says, for tests of one half."""

from __future__ import annotations

from typing import Any, Callable

from musterpoint.core.channel import codec, wire
from musterpoint.core.channel.topic import World


class FakeSide:
    """``events`` and ``sent`` (to whom, what) are what the half said. ``away`` and ``done`` are hosts."""

    leader, loss, unsent = "leader", "it is gone", 0

    def __init__(self, me: str, others: tuple[str, ...] = ()) -> None:
        self.me, self.others = me, others
        self.hosts = self.group = frozenset((me, *others))
        self.events: list[Any] = []
        self.sent: list[tuple[str, Any]] = []
        self.away = self.goodbyes = frozenset[str]()
        self.done: set[str] = set()
        self.is_alone = False

    @property
    def worlds(self) -> tuple[World, ...]:
        return (World("", self.group),)

    def is_away(self, host: str) -> bool:
        return host in self.away

    def is_done(self, host: str) -> bool:
        return host in self.done

    def emit(self, event: Any) -> None:
        self.events.append(event)

    def call_later(self, seconds: float, call: Callable[[], None]) -> object:
        return call()

    def wall(self) -> float:
        return 0.0

    def check(self, message: Any) -> None:
        codec.check_bounds(message, wire.LEADER_LIMIT)

    def broadcast(self, message: Any) -> None:
        self.sent.append(("", message))

    def send(self, host: str, message: Any) -> None:
        self.sent.append((host, message))

    def post(self, message: Any) -> None:
        self.sent.append((self.leader, message))

    def begin_attempt(self, attempt: Any = None) -> bool:
        return True

    def tell_end(self, end: Any) -> None:
        self.broadcast(end)
