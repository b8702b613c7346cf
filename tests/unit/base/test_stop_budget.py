"""How long an end may take."""

from __future__ import annotations

import pytest

from musterpoint.base.stop_budget import end_grace, rank_grace, whole_grace


@pytest.mark.parametrize(
    ("platform", "told", "seconds"),
    [(120.0, None, 105.0), (30.0, None, 25.0), (6.0, None, 5.0), (600.0, None, 585.0), (120.0, 7.0, 7.0), (30.0, 0, 0)],
)  # fmt: skip
def test_a_stop_has_the_platforms_time_less_what_a_report_takes(
    platform: float, told: float | None, seconds: float
) -> None:
    assert rank_grace(platform, told) == seconds


@pytest.mark.parametrize(("told", "whole"), [(None, 30.0), (25.0, 30.0), (105.0, 120.0), (300.0, 315.0), (0.0, 0.0)])
def test_a_told_grace_is_the_ranks_share_of_the_platforms(told: float | None, whole: float) -> None:
    assert whole_grace(30.0, told) == whole


@pytest.mark.parametrize(
    ("stopped", "grace", "seconds"), [(True, 105.0, 105.0), (False, 105.0, 30.0), (True, 5.0, 5.0), (False, 5.0, 5.0)]
)
def test_after_a_failure_ranks_get_half_a_minute_at_most(stopped: bool, grace: float, seconds: float) -> None:
    assert end_grace(stopped, grace) == seconds
