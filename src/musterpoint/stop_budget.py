"""How long a stop may take: the time that the platform gives, and what of it the ranks get.

``platform`` is the platform's grace (``Job.grace``), ``stop_grace`` the option of that name. How long ranks get after a
failure, and launchers and services after the last rank, is decided in :mod:`musterpoint.supervise`.
"""

from __future__ import annotations

RESERVE_SHARE, LONGEST_RESERVE = 6.0, 15.0
"""A sixth of the platform's grace, at most 15 s, is kept for the report: 15 s of 120, 5 s of 30."""


def grace(platform: float, stop_grace: float | None) -> float:
    """Seconds between a rank's stop signal and SIGKILL: the option's, or the platform's less what a report takes."""
    return stop_grace if stop_grace is not None else platform - min(LONGEST_RESERVE, platform / RESERVE_SHARE)


def whole_grace(platform: float, stop_grace: float | None) -> float:
    """Seconds between a stop and the platform's SIGKILL: the platform's, or those of which the option is the ranks'
    share.
    """
    if stop_grace is None:
        return platform
    return stop_grace + min(LONGEST_RESERVE, stop_grace / (RESERVE_SHARE - 1))
