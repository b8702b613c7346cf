"""Ranks that others start, and that never come."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.core.launch.launch_plan import Argument, LaunchPlan, ProcessPlan
from musterpoint.core.supervise.watchers.starts import StartWatch

from ..bench import context_for
from ..test_host_processes import PLAN, Bench

_OWN = ProcessPlan("rank", "rank", (Argument("sleep"), Argument("600")), rank=0, local_rank=0)
_OF_OTHERS = ProcessPlan("rank", "others", (Argument("sleep"),))
OTHERS = LaunchPlan("mpi", "algo-1", (_OWN,), (), 2, 2, 0, "/", of_others=(_OF_OTHERS,))


@pytest.fixture(params=[PLAN, OTHERS])
def bench(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> Iterator[Bench]:
    made = Bench(request.param)
    yield made
    made.close()


def watch(bench: Bench, seconds: float, said: list[str] | None = None) -> StartWatch:
    say = (said if said is not None else []).append
    context = context_for(bench.loop, bench.pump, bench.record, say)
    return StartWatch(context, bench.processes, seconds, bench.events.append)


def test_a_rank_that_is_never_started_is_a_failure_that_names_it_and_who_was_to_start_it(bench: Bench) -> None:
    foreign = bench.processes.plan is PLAN
    watch(bench, 0)
    bench.turn()
    (failure,) = bench.broken
    assert failure.code == 72
    assert ("ranks 0, 1 of algo-1 didn't start" if foreign else "rank 1 of algo-1 didn't start") in failure.reason
    assert ("torchrun" if foreign else "its entry point") + " was to start" in failure.reason


def test_ranks_that_run_or_an_end_are_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bench = Bench()
    for local in range(2):
        stub = bench.call(f"rank {local} {local} 2 {1000000 + local}")
        bench.go(stub)
        bench.say(stub, f"started {2000000 + local}")
    assert bench.processes.ranks.unstarted == []
    watch(bench, 0)
    bench.turn()
    assert bench.broken == []
    bench.close()


def test_it_is_said_before(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("musterpoint.core.supervise.watchers.starts.SAID_AFTER", 0)
    said: list[str] = []
    watching = watch(bench, 1000, said)
    bench.turn()
    assert len(said) == 1
    assert "has not started " in said[0]
    watching.close()
