"""Log rules on real hosts: a rank that stops printing, a loss that isn't one, a line that is a fault."""

from __future__ import annotations

import json
from typing import Any

TRAIN = """
import os, time
import torch
import torch.distributed as dist

def slow_read():
    time.sleep(300)

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(1000):
    dist.all_reduce(torch.ones(4))
    print(f"step {step} of rank {rank}", flush=True)
    if step == 3 and rank == 3:
        slow_read()
    time.sleep(0.05)
"""

PRINTS = """
import os, time

rank = int(os.environ["RANK"])
for step in range(10**6):
    print(f"step {step} loss {0.5 if rank != 1 or step < 3 else float('nan')}", flush=True)
    time.sleep(0.02)
"""


def test_a_rank_that_stops_printing_is_named_and_where_it_is(local: Any, py_spy: None) -> None:
    local.program(
        json.dumps({"logMonitoringConfiguration": [
            {"name": "begin", "logPattern": ".*step 0", "expectedStartCutOffInSeconds": "240", "ranks": "all"},
            {"name": "steps", "logPattern": "step", "expectedRecurringFrequencyInSeconds": 1},
        ]}),
        "rules.json",
    )  # fmt: skip
    words = "--hosts", "2", "--slots", "2", "--log-rules", "rules.json", "--stop-grace", "1"
    ran = local.run(*words, local.program(TRAIN))
    assert ran.code == 74
    sentence, who = ran.reason.splitlines()
    assert sentence.startswith("muster: stalled: log rule steps: no line of any rank matched step for 1 s: ranks 0–2 ")
    assert "; rank 3 is in slow_read at program.py:7, asleep; the last one was: step 3 of rank" in sentence
    assert who == "rank 3 (local rank 1) on algo-2, exit code 74"
    for host, rank in (("algo-1", 0), ("algo-2", 3)):
        assert ran.outcome(host)["code"] == 74
        assert f"rank {rank}: still" in ran.left(host, f"data/muster/{host}/stacks.txt")


def test_a_loss_that_is_no_number_ends_the_job_on_all_hosts(local: Any) -> None:
    found = {"name": "loss", "logPattern": r".*loss (\S+)", "metricThreshold": 9.5, "operator": "gt",
             "metricEvaluationDataPoints": 3}  # fmt: skip
    words = "--hosts", "2", "--slots", "1", "--backend", "process", "--launcher", "ranks", "--stop-grace", "1"
    ran = local.run(*words, "--log-rules", json.dumps([found]), local.program(PRINTS))
    assert ran.code == 75
    assert ran.reason.splitlines() == [
        "muster: log rule loss: rank 1 printed nan, 3 times in a row: step 5 loss nan",
        "rank 1 (local rank 0) on algo-2, exit code 75",
    ]
    for host in ("algo-1", "algo-2"):
        outcome = ran.outcome(host)
        assert (outcome["code"], outcome["rank"], outcome["host"], outcome["cause"]) == (75, 1, "algo-2", "muster")
