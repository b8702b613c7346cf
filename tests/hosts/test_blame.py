"""Which of several failures is the first, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

# every rank is there before any of them fails, and none ends because it is told to
TOGETHER = """
import argparse, os, signal, sys, time

rank, meeting = os.environ["RANK"], sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN)

def meet(name):
    open(os.path.join(meeting, name + rank), "w").close()
    while len([one for one in os.listdir(meeting) if one.startswith(name)]) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.02)

meet("here")
"""


def meeting(local) -> Path:  # type: ignore[no-untyped-def]
    place: Path = local.folder / "meeting"
    place.mkdir()
    return place


SOUNDS_LIKE_AN_ECHO = """
if rank == "0":
    raise RuntimeError("the feature store's TCPStore said: connection reset by peer")
time.sleep(1)
raise ValueError("batch 7 is empty")
"""


@pytest.mark.parametrize("launcher", ["ranks", "torchrun"])
def test_what_the_program_raises_itself_is_no_echo(local, launcher: str) -> None:  # type: ignore[no-untyped-def]
    program = local.program(TOGETHER + SOUNDS_LIKE_AN_ECHO)
    ran = local.run("--hosts", "2", "--backend", "process", "--launcher", launcher, program, meeting(local))
    assert ran.code == 1, ran.stderr
    for host in ("algo-1", "algo-2"):
        outcome = ran.outcome(host)
        assert outcome["reason"].startswith("RuntimeError: the feature store's TCPStore said: connection reset by ")
        found = {key: outcome[key] for key in ("host", "rank", "class", "retryable")}
        assert found == {"host": "algo-1", "rank": 0, "class": "user", "retryable": False}
        assert outcome["reason"].endswith("\n1 other rank failed with another error"), ran.log(host)


ALIKE = """
parser = argparse.ArgumentParser(prog="train.py")
parser.add_argument("meeting")
parser.parse_args()
"""


@pytest.mark.parametrize("launcher", ["ranks", "torchrun"])
def test_the_same_mistake_on_every_rank_is_one(local, launcher: str) -> None:  # type: ignore[no-untyped-def]
    ran = local.run(
        "--hosts", "2", "--slots", "2", "--backend", "process", "--launcher", launcher, local.program(TOGETHER + ALIKE),
        meeting(local), "--optimiser", "adam",
    )  # fmt: skip
    assert ran.code == 2, ran.stderr
    assert ran.reason.startswith("train.py: error: unrecognized arguments: --optimiser adam\n")
    assert ran.reason.endswith("\n3 other ranks failed the same way"), ran.reason
    assert ran.outcome("algo-1")["class"] == "user"


SAVES = """
import os, signal, time

def save(*_):
    raise OSError("no space left for the checkpoint of rank " + os.environ["RANK"])

signal.signal(signal.SIGTERM, save)
print("works", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("launcher", ["script", "ranks", "torchrun"])
def test_a_save_that_fails_in_a_stop_is_named(local, launcher: str) -> None:  # type: ignore[no-untyped-def]
    program = local.program(SAVES.replace('os.environ["RANK"]', 'os.environ.get("RANK", "0")'))
    ran = local.stop("--hosts", "1", "--backend", "process", "--launcher", launcher, program, when="works", lines=1)
    assert ran.code == 143, ran.stderr
    outcome = ran.outcome("algo-1")
    assert (outcome["code"], outcome["class"], outcome["cause"]) == (143, "stopped", "platform")
    assert outcome["reason"].startswith(
        "stopped by the platform on algo-1; while it was stopping:\n"
        "OSError: no space left for the checkpoint of rank 0\n"
        "rank 0 (local rank 0) on algo-1, exit code 1\n"
    )
    said = "rank 0 failed while it was stopping: OSError: no space left for the checkpoint of rank 0"
    assert f"musterpoint: warning: {said}" in ran.log("algo-1")
