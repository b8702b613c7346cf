"""How long an end may take: after a stop what the platform gives, after a failure less.

Launchers and services get a moment more, after the last rank: see :mod:`musterpoint.core.supervise.policy`.
"""

from __future__ import annotations

RESERVE_SHARE, LONGEST_RESERVE = 6.0, 15.0
"""A sixth of the platform's grace, at most 15 s, is kept for the report: 15 s of 120, 5 s of 30."""
FAILURE_GRACE = 30.0
"""What ranks get to end by themselves when another failed: torchrun's figure, less where the platform gives less."""
UPLOAD_RESERVE = 3.0
"""Seconds of a stop's grace that no upload gets: the last report has them."""
LONGEST_UPLOAD, SHORTEST_UPLOAD = 1800.0, 1.0
"""Seconds that the last upload may take where no stop limits it; and what it gets however late it is."""
UPLOAD_OVERTIME = 2.0
"""Seconds that what uploads gets beyond its time to end by itself."""


def rank_grace(platform: float, stop_grace: float | None) -> float:
    """Seconds between a rank's stop signal and SIGKILL.

    ``platform``: seconds that the platform gives (``Job.grace``). ``stop_grace``: the option of that name, which wins.
    """
    if stop_grace is not None:
        return stop_grace
    return platform - min(LONGEST_RESERVE, platform / RESERVE_SHARE)


def whole_grace(platform: float, stop_grace: float | None) -> float:
    """Seconds between a stop and the platform's SIGKILL. Where the option is given, the ranks' share is that."""
    if stop_grace is None:
        return platform
    return stop_grace + min(LONGEST_RESERVE, stop_grace / (RESERVE_SHARE - 1))


def upload_time(left: float | None) -> float:
    """Seconds that the last upload may take. ``left``: what a stop leaves; None: there was no stop."""
    return LONGEST_UPLOAD if left is None else max(SHORTEST_UPLOAD, min(LONGEST_UPLOAD, left - UPLOAD_RESERVE))


def end_grace(stopped: bool, grace: float) -> float:
    """Seconds between the signal to end and SIGKILL. ``grace``: what :func:`rank_grace` gives."""
    return grace if stopped else min(grace, FAILURE_GRACE)
