"""Turning a loop until something has happened."""

from __future__ import annotations

from typing import Callable

from musterpoint.base.loop import Loop


def turn_until(loop: Loop, done: Callable[[], bool], seen: object = "") -> None:
    """Turns ``loop`` until ``done()``. ``seen`` is shown if that takes more than a minute."""
    deadline = loop.clock() + 500
    while not done():
        assert loop.clock() < deadline, seen
        loop.turn(0.2)
