"""The order in which the ranks of a tensor-parallel group run the tasks of their pipelines.

Each of these ranks is in a pipeline of its own, and answers requests as they come. But a layer that they share is a
collective: all of them must come to it for the same microbatch. So the first of them chooses as a single rank would,
and tells the others, which wait until they have the same task. Their pipelines are alike, so it comes.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Sequence

from .messages import Turn


class Turns:
    """This rank's part in that order.

    Args:
        partners: the other ranks of the tensor-parallel group.
        first: whether this one chooses.
        send: sends a message to a rank.
    """

    def __init__(self, partners: Sequence[int], first: bool, send: Callable[[int, Any], None]) -> None:
        self.partners = tuple(partners)
        self.follows = bool(partners) and not first
        self._send = send
        self._told: deque[Turn] = deque()

    def announce(self, step: int, key: tuple[Any, ...]) -> None:
        """This rank has chosen."""
        for partner in self.partners:
            self._send(partner, Turn(step, key))

    def heard(self, turn: Turn) -> None:
        """The first rank has chosen."""
        self._told.append(turn)

    def next(self, step: int) -> tuple[Any, ...] | None:
        """What this rank has to run; None as long as nobody has said."""
        if self._told and self._told[0].step == step:
            return self._told[0].key
        return None

    def taken(self) -> None:
        """It runs."""
        self._told.popleft()
