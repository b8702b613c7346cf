from __future__ import annotations

from musterpoint.rollcall.points import Points


def nobody(_host: str) -> bool:
    return False


def test_a_point_is_reached_once_all_of_the_group_are_there() -> None:
    points = Points(["algo-1", "algo-2"])
    points.arrive("algo-1", "ready")
    points.arrive("algo-3", "ready")  # outside the group: welcome, but not waited for
    points.arrive("algo-1", "other")
    assert points.complete(nobody) == []
    points.arrive("algo-2", "ready")
    assert points.complete(nobody) == ["ready"]
    assert points.complete(nobody) == []


def test_who_is_through_is_not_waited_for() -> None:
    points = Points(["algo-1", "algo-2"])
    points.arrive("algo-1", "ready")
    assert points.complete("algo-2".__eq__) == ["ready"]
