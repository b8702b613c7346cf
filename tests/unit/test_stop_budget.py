"""How much of the platform's time for a stop is the ranks'."""

from __future__ import annotations

import pytest

from musterpoint.stop_budget import grace, whole_grace


@pytest.mark.parametrize(
    ("platform", "told", "seconds"),
    [(120.0, None, 105.0), (30.0, None, 25.0), (6.0, None, 5.0), (600.0, None, 585.0), (120.0, 7.0, 7.0), (30.0, 0, 0)],
)  # fmt: skip
def test_a_stop_has_the_platforms_time_less_what_a_report_takes(
    platform: float, told: float | None, seconds: float
) -> None:
    assert grace(platform, told) == seconds


@pytest.mark.parametrize(("told", "whole"), [(None, 30.0), (25.0, 30.0), (105.0, 120.0), (300.0, 315.0), (0.0, 0.0)])
def test_a_told_grace_is_the_ranks_share_of_the_platforms(told: float | None, whole: float) -> None:
    assert whole_grace(30.0, told) == whole
