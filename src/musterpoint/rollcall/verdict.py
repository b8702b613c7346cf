"""Which failure was the first: pure rules by which the leader finds the cause among what it is told.

A symptom (``kind`` ``peer``: connection reset, a collective that was aborted) is held back a moment, since the cause is
often told a little later, or is a host that can tell nothing any more.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Union

from musterpoint.peers import Failure, lost_host


class Announce(NamedTuple):
    """The verdict, for every host."""

    failure: Failure
    secondary: int


class GiveUp(NamedTuple):
    """``host`` is silent while ranks fail: it is lost."""

    host: str


Action = Union[Announce, GiveUp]


def left_alone(pending: list[Failure], leader: str, why: str) -> Failure | None:
    """A worker's own verdict on its unanswered failures when the leader is lost: a cause among them, else the loss."""
    if not pending:
        return None
    own = next((failure for failure in pending if failure.kind != "peer"), None)
    return own or lost_host(leader, why, time.time())


class Verdict:
    """Takes failures, and how the hosts fare, with the time; says what to do. The first announcement is the last."""

    def __init__(self, hold: float) -> None:
        self._hold = hold
        self._held: Failure | None = None
        self._due = 0.0
        self._told = 0
        self._cut: set[str] = set()
        self._silent: set[str] = set()
        self.fallen: Announce | None = None

    @property
    def due(self) -> float | None:
        """When :meth:`tick` has something to say: not while a host's fate is open, which may be the cause."""
        fates_open = self._cut or self._silent
        return self._due if self._held is not None and self.fallen is None and not fates_open else None

    def failed(self, failure: Failure, now: float) -> list[Action]:
        if self.fallen is not None:
            return []
        self._told += 1
        if failure.kind != "peer":
            return self._announce(failure, self._told - 1)
        if self._held is None:
            self._held = failure
            self._due = now + self._hold
        return [GiveUp(host) for host in sorted(self._silent)]

    def tick(self, now: float, mute: bool = False) -> list[Action]:
        """``mute``: some host has not answered since the symptom, so it may be the cause; it is waited for."""
        due = self.due
        if self._held is None or due is None or now < due:
            return []
        if mute:
            self._due = now + self._hold / 4
            return []
        return self._announce(self._held, self._told - 1)

    def cut(self, host: str) -> None:
        """``host``'s connection ended without a bye; what becomes of it is known in a moment."""
        self._cut.add(host)

    def silent(self, host: str) -> list[Action]:
        self._silent.add(host)
        return [GiveUp(host)] if self._held is not None and self.fallen is None else []

    def back(self, host: str) -> None:
        self._cut.discard(host)
        self._silent.discard(host)

    def lost(self, host: str, why: str) -> list[Action]:
        self.back(host)
        if self._held is None or self.fallen is not None:
            return []
        return self._announce(lost_host(host, why, time.time()), self._told)

    def _announce(self, failure: Failure, secondary: int) -> list[Action]:
        self.fallen = Announce(failure, secondary)
        return [self.fallen]
