"""How the wall clocks of hosts differ, as beats tell: a worker's answer has its time, and that of the question."""

from __future__ import annotations

from musterpoint.core.channel.wire import Beat

_KEPT = 60.0
"""Seconds after which a newer comparison counts more than a closer one: clocks drift, and are set."""


def microseconds(seconds: float) -> int:
    return max(0, int(seconds * 1e6))


class ClockDifference:
    """The closest of the last comparisons. ``ahead``: seconds by which the other host's clock is ahead of ours.

    ``uncertainty``: by how much that may be wrong.
    """

    __slots__ = ("_at", "ahead", "uncertainty")

    def __init__(self) -> None:
        self.ahead = 0.0
        self.uncertainty = -1.0
        self._at = 0.0

    @classmethod
    def none(cls) -> ClockDifference:
        """That of our own clock."""
        own = cls()
        own.uncertainty = 0.0
        return own

    @property
    def is_known(self) -> bool:
        return self.uncertainty >= 0

    def compare(self, beat: Beat, now: float) -> None:
        """``beat`` came ``now``, by our clock, as the answer to one of ours."""
        asked, there = beat.asked / 1e6, beat.at / 1e6
        uncertainty = (now - asked) / 2
        if not beat.asked or not 0 <= uncertainty <= _KEPT:
            return  # no answer, or a clock was set meanwhile
        if not self.is_known or uncertainty <= self.uncertainty or not 0 <= now - self._at <= _KEPT:
            self.ahead, self.uncertainty, self._at = there - (asked + now) / 2, uncertainty, now

    def age(self, at: float, now: float) -> float:
        """How long ago it was ``at`` by the other host's clock; 0 where ``at`` is 0, or nothing has been compared."""
        return max(0.0, now - (at - self.ahead)) if at and self.is_known else 0.0
