"""Ranks that have raised and live on: they are the cause of what the others fail with meanwhile."""

from __future__ import annotations

import pytest

JOINS = """
import atexit, sys, threading, time, traceback
import torch, torch.distributed as dist

dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)

def leave():
    dist.destroy_process_group()
    time.sleep(SECONDS)

if dist.get_rank() == 1:
    LINGERS
dist.all_reduce(ones)
"""
LINGERS = {
    "in its exit functions": "atexit.register(leave); raise ValueError('bad shard 7')",
    "for a thread": "threading.Thread(target=leave).start(); raise ValueError('bad shard 7')",
    "with a hook of its own": """sys.excepthook = lambda *_: None
    atexit.register(leave)
    raise ValueError('bad shard 7')""",
    "after it printed its exception itself": """atexit.register(leave)
    try:
        raise ValueError('bad shard 7')
    except ValueError:
        traceback.print_exc()
        sys.exit(1)""",
    "in a finally": """
    try:
        raise ValueError('bad shard 7')
    finally:
        leave()""",
}  # fmt: skip


OF_THE_SUITE = {("in its exit functions", 6.0), ("in a finally", 0.3)}


@pytest.mark.torch
@pytest.mark.parametrize(
    ("how", "seconds"),
    [
        pytest.param(how, seconds, marks=[pytest.mark.lane("suite")] if (how, seconds) in OF_THE_SUITE else [])
        for how in LINGERS
        for seconds in (0.3, 6.0)
    ],
)
def test_a_rank_that_raised_and_lingers_is_the_cause(train, how: str, seconds: float) -> None:  # type: ignore[no-untyped-def]
    train.program(JOINS.replace("LINGERS", LINGERS[how]).replace("SECONDS", str(seconds)))
    done = train.run(MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="2", MUSTER_STALL_TIMEOUT="100")
    assert done.returncode == 1, done.stderr
    assert train.reason.startswith("ValueError: bad shard 7\nrank 1 (local rank 1) on algo-1, exit code 1\n")


WAITS = """
import logging, sys, threading, time
threading.Thread(target=time.sleep, args=(300,)).start()
raise ValueError("bad shard")
"""


def test_a_hang_of_ranks_that_have_raised_is_told_as_their_exception(train) -> None:  # type: ignore[no-untyped-def]
    train.program(WAITS)
    done = train.run(MUSTER_LAUNCHER="ranks", MUSTER_SLOTS="2", MUSTER_STALL_TIMEOUT="1")
    assert done.returncode == 1, done.stderr
    first, who, where, *_others = train.reason.split("\n")
    assert (first, who) == ("ValueError: bad shard", "rank 0 (local rank 0) on algo-1, exit code 1")
    assert where.endswith("ranks 0, 1 have raised ValueError and wait for a thread")
