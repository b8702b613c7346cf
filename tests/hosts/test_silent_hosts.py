"""A host that stands still, and a network that is cut, when a job is about to end for that or for another reason."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from .conftest import eventually
from .test_lost import both_work, entry_point

pytestmark = pytest.mark.netns

PROGRAM = """
import os, sys, time

rank = os.environ["RANK"]
print("rank", rank, "works", flush=True)
while rank != sys.argv[1] or not os.path.exists(sys.argv[2]):
    time.sleep(0.1)
raise LookupError("no such shard: 17")
"""

TRAIN = """
import datetime
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
print("rank", dist.get_rank(), "works", flush=True)
while True:
    dist.all_reduce(torch.ones(1))
"""


def cut(local: Any, host: str) -> None:
    """Drops every packet to and from ``host``."""
    tool = ["nsenter", "-t", str(entry_point(local, host)), "--net", "iptables"]
    for rule in (["INPUT", "-i", "eth0", "-j", "DROP"], ["OUTPUT", "-o", "eth0", "-j", "DROP"]):
        assert os.spawnvp(os.P_WAIT, tool[0], [*tool, "-A", *rule]) == 0


def moments(ran: Any, host: str) -> list[str]:
    return [event["event"] for event in ran.events(host)]


@pytest.mark.parametrize("victim", ["algo-1", "algo-2"])
def test_a_frozen_host_does_not_keep_a_failure_waiting(local, victim: str) -> None:  # type: ignore[no-untyped-def]
    go = local.folder / "go"
    other = "algo-1" if victim == "algo-2" else "algo-2"
    process = local.start(
        "--hosts", "2", "--backend", "netns", "--launcher", "ranks", local.program(PROGRAM),
        "0" if other == "algo-1" else "1", go,
    )  # fmt: skip
    both_work(local, process)
    frozen = entry_point(local, victim)
    os.kill(frozen, signal.SIGSTOP)
    try:
        go.touch()
        eventually((local.output / "hosts" / other / "opt/ml/output/timeline.json").exists)
    finally:
        os.kill(frozen, signal.SIGCONT)
    ran = local.finish(process)
    outcome = ran.outcome(other)
    assert (outcome["code"], outcome["host"], outcome["class"]) == (1, other, "user"), ran.log(other)
    assert "leave-due" not in moments(ran, other), "it left because the other one was silent, not at the last moment"


def test_a_cut_does_not_keep_a_stop_waiting(local) -> None:  # type: ignore[no-untyped-def]
    process = local.start("--hosts", "2", "--backend", "netns", "--launcher", "ranks", local.program(PROGRAM), "", "")
    both_work(local, process)
    cut(local, "algo-2")
    process.send_signal(signal.SIGTERM)
    ran = local.finish(process)
    for host in ("algo-1", "algo-2"):
        assert ran.outcome(host)["code"] == 143, ran.log(host)
        assert "leave-due" not in moments(ran, host)


@pytest.mark.parametrize("victim", ["algo-1", "algo-2"])
def test_whoever_is_cut_off_both_hosts_say_the_same(local, victim: str) -> None:  # type: ignore[no-untyped-def]
    process = local.start("--hosts", "2", "--backend", "netns", "--launcher", "ranks", local.program(TRAIN))
    both_work(local, process)
    cut(local, victim)
    ran = local.finish(process)
    told = [ran.outcome(host) for host in ("algo-1", "algo-2")]
    assert [(outcome["code"], outcome["cause"], outcome["retryable"]) for outcome in told] == [(76, "host", True)] * 2
    for outcome in told:
        assert outcome["reason"].startswith("muster: hosts algo-1 and algo-2 lost each other: "), outcome
    assert [outcome["host"] for outcome in told] == ["algo-2", "algo-1"], "each the one that it could not reach"
