"""A shell as PID 1 that doesn't exec: its stops are heard, and it is the shell it was."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from .containers import RANKS

SAVES = """
import os, pathlib, signal, sys, time

rank = os.environ["RANK"]

def save(signo, frame):
    time.sleep(1)
    pathlib.Path(os.environ["SM_CHECKPOINT_DIR"], f"checkpoint-{rank}").write_text(str(signo))
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print(f"rank {rank} trains", flush=True)
open("/opt/ml/checkpoints/go").readline()
"""
DRIVER = """#!/bin/bash
echo "starting"
train
code=$?
echo "the driver goes on: $code, $(grep TracerPid /proc/1/status)"
exit $code
"""


@pytest.mark.parametrize("init", [False, True], ids=["a shell", "docker's init"])
def test_a_stop_of_one_container_is_heard_and_both_save(job: Any, init: bool) -> None:
    """The shape of SDK v3's driver, as a user without any privilege; and an init, which needs no watch."""
    script = "/opt/ml/code/sm_train.sh"
    command = "train" if init else ["/bin/bash", "-c", f"chmod +x {script} && {script}"]
    hosts = job(
        "base", SAVES, distribution=RANKS, environment={"MUSTER_LAUNCHER": "ranks"}, files={"sm_train.sh": DRIVER},
        command=command, user=1000, cap_drop=["ALL"], init=init,
    ).start()  # fmt: skip
    for number, host in enumerate(hosts.hosts.values()):
        host.saw(f"rank {number} trains")
        if not init:
            host.saw("which keeps SIGTERM to itself: it is watched, so that a stop reaches the job")
    hosts["algo-2"].stop()
    assert hosts.ends() == [143, 143]
    for number, host in enumerate(hosts.hosts.values()):
        assert (host.ml / "checkpoints" / f"checkpoint-{number}").read_text() == "15"
        assert ("the driver goes on: 143, TracerPid:\t0" in host.log) != init
        assert ("PID 1" in host.log) != init
        assert (host.outcome["class"], host.outcome["host"]) == ("stopped", "algo-2")
        assert host.reason == "", "a stop is no failure"


ENDS = """
import os, pathlib, sys, time

folder = pathlib.Path(os.environ["SM_MODEL_DIR"])
(folder / "ready").touch()
while not (folder / "go").exists():
    time.sleep(0.02)
sys.exit(7)
"""
NO_PTRACE = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["ptrace"], "action": "SCMP_ACT_ERRNO"}]}
VARIANTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "off": ({"environment": {"MUSTER_PID1_WATCH": "off"}}, "no", "a stop will kill the job without a checkpoint; let"),
    "on": ({}, "yes", "it is watched, so that a stop reaches the job"),
    "killed": ({}, "yes", "can't be watched (what watched it has ended with -9): a stop will kill the job"),
    "refused": (
        {"security_opt": [f"seccomp={json.dumps(NO_PTRACE)}"]}, "no",
        "can't be watched (ptrace: Operation not permitted): a stop will kill the job",
    ),
}  # fmt: skip
"""Settings of the container, whether PID 1 is traced, and what is said of it. The last three differ from the first."""


def test_the_shell_is_the_shell_it_was(job: Any) -> None:
    """Job control on a terminal, exit codes, traps, interrupted reads, zombies: as they are without the watch."""
    shell = (Path(__file__).parent / "programs" / "jobs_of_pid1.sh").read_text()
    said = {}
    containers = {}
    for variant, (settings, _, _) in VARIANTS.items():
        command = ["bash", "-m", "/opt/ml/code/start.sh", variant]
        hosts = job("base", ENDS, hosts=1, files={"start.sh": shell}, command=command, tty=True, **settings)
        containers[variant] = hosts["algo-1"]
        containers[variant].container.start()  # a terminal's output is read when it has ended
    for variant, host in containers.items():
        try:
            code = host.container.wait(timeout=300)["StatusCode"]
        except OSError:
            print(host.container.top()["Processes"])
            raise
        finally:
            text = host.container.logs().decode()
            print(f"--- {variant}\n{text}{(host.ml / 'output' / 'train.log').read_text()}")
        said[variant] = code, re.sub(r"(line \d+:) +\d+ ", r"\1 PID ", text)
    assert said["off"][0] == 9
    assert said["off"][1].endswith("== zombies\r\n0\r\ntrain: 7\r\n")
    for variant, (_, traced, words) in VARIANTS.items():
        assert said[variant] == said["off"], variant
        output = containers[variant].ml / "output"
        assert (output / "traced").read_text() == f"traced {traced}\ntraced no\n"
        assert words in (output / "train.log").read_text()
