"""How long a stop may take: the platform's time, and what of it is the ranks'."""

from __future__ import annotations

RESERVE_SHARE, LONGEST_RESERVE = 6.0, 15.0
"""Of the platform's grace, this share (at most so many seconds) is kept to report in: 15 s of 120, 5 s of 30."""


def grace(platform: float, told: float | None) -> float:
    """Seconds between a rank's stop signal and SIGKILL: as told, or the platform's grace less what a report takes."""
    return told if told is not None else platform - min(LONGEST_RESERVE, platform / RESERVE_SHARE)


def whole_grace(platform: float, told: float | None) -> float:
    """Seconds between a stop and the platform's SIGKILL: the platform's grace, or that of which ``told`` is the ranks'
    share.
    """
    return platform if told is None else told + min(LONGEST_RESERVE, told / (RESERVE_SHARE - 1))
