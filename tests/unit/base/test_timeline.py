"""What is recorded comes out in order, whoever recorded it."""

from __future__ import annotations

import json
import threading
import time
from datetime import datetime

import pytest

from musterpoint.base.timeline import MOST_OF_A_NAME, Timeline


def test_events_in_order_with_their_facts() -> None:
    timeline = Timeline("algo-1")
    before = time.time()
    timeline.add("started", version="1")
    timeline.add("rank-ended", rank=3, status=-9)
    first, second = timeline.to_json()
    assert list(first) == ["host", "at", "time", "event", "version"]
    told = datetime.fromisoformat(first["time"].replace("Z", "+00:00"))
    assert told.timestamp() == pytest.approx(first["at"], abs=1e-5)
    assert (first["host"], first["event"], first["version"]) == ("algo-1", "started", "1")
    assert (second["event"], second["rank"], second["status"]) == ("rank-ended", 3, -9)
    assert before - 0.001 <= first["at"] <= second["at"] <= time.time() + 0.001
    assert json.loads(json.dumps([first, second])) == [first, second]


def test_a_host_that_is_named_late_is_that_of_every_event_also_of_one_about_another() -> None:
    timeline = Timeline()
    timeline.add("host-lost", host="algo-2", why="connection refused")
    timeline.set_host("algo-1")
    (row,) = timeline.to_json()
    assert (row["host"], row["of"], row["why"]) == ("algo-1", "algo-2", "connection refused")


def test_any_thread_may_add() -> None:
    timeline = Timeline()
    threads = [threading.Thread(target=lambda: [timeline.add("e") for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(timeline.to_json()) == 2000


def test_what_happens_without_end_is_kept_up_to_a_number_and_then_counted() -> None:
    timeline = Timeline("algo-1")
    for number in range(MOST_OF_A_NAME + 7):
        timeline.add("registered", rank=number)
    timeline.add("over", code=0)
    *many, last = timeline.to_json()
    assert (len(many), many[-1]["rank"], many[-1]["left_out"]) == (MOST_OF_A_NAME, MOST_OF_A_NAME - 1, 7)
    assert "left_out" not in many[-2]
    assert (last["event"], last["code"]) == ("over", 0)
