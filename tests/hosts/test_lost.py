"""Hosts that vanish and networks that fail, on network namespaces."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from .conftest import eventually

pytestmark = pytest.mark.netns

PROGRAM = """
import os, sys, time

print("rank", os.environ.get("RANK", os.environ.get("NODE_RANK")), "works", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
print("rank", os.environ.get("RANK", os.environ.get("NODE_RANK")), "is done", flush=True)
"""


def entry_point(local, host: str) -> int:  # type: ignore[no-untyped-def]
    """The pid (as this machine sees it) of a host's first process, which is its PID 1."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            inside = Path(f"/proc/{name}/status").read_text()
        except OSError:
            continue
        ours = f"MUSTER_TEST_TOKEN={local.token}".encode() in environ and f"HOSTNAME={host}".encode() in environ
        numbers = next(line for line in inside.splitlines() if line.startswith("NSpid")).split()[1:]
        if ours and len(numbers) > 1 and numbers[-1] == "1":
            return int(name)
    raise AssertionError(f"{host} has no entry point")


def both_work(local, process) -> None:  # type: ignore[no-untyped-def]
    """Waits until the program runs on both hosts."""
    logs = [local.output / "hosts" / host / "log" for host in ("algo-1", "algo-2")]
    deadline = time.monotonic() + 120
    while not all(log.exists() and "works" in log.read_text() for log in logs):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("launcher", ["ranks", "torchrun"])
@pytest.mark.parametrize("victim", ["algo-1", "algo-2"])
def test_a_killed_host_ends_the_job_with_its_name(local, launcher: str, victim: str) -> None:  # type: ignore[no-untyped-def]
    process = local.start("--hosts", "2", "--backend", "netns", "--launcher", launcher, local.program(PROGRAM), "never")
    both_work(local, process)
    killed = time.monotonic()
    os.kill(entry_point(local, victim), signal.SIGKILL)
    ran = local.finish(process)
    other = "algo-1" if victim == "algo-2" else "algo-2"
    assert ran.outcome(other)["code"] == 76, ran.stderr + ran.stdout
    assert ran.outcome(other)["cause"] == "host"
    assert victim in ran.left(other, "failure")
    assert time.monotonic() - killed < 100, "ten seconds for a redial, and what a loaded machine takes"


def test_a_killed_host_is_a_warning_to_a_script_job(local) -> None:  # type: ignore[no-untyped-def]
    end = local.folder / "end"
    process = local.start("--hosts", "2", "--backend", "netns", "--launcher", "script", local.program(PROGRAM), end)
    both_work(local, process)
    os.kill(entry_point(local, "algo-2"), signal.SIGKILL)
    eventually(lambda: "warning: algo-2 is lost" in (local.output / "hosts" / "algo-1" / "log").read_text())
    end.touch()
    ran = local.finish(process)
    assert ran.outcome("algo-1")["code"] == 0, ran.stderr + ran.stdout
    assert "warning: algo-2 is lost" in ran.log("algo-1")
    assert "is done" in ran.log("algo-1")


@pytest.mark.timeout(240)
def test_a_network_cut_of_a_minute_ends_nothing(local) -> None:  # type: ignore[no-untyped-def]
    """Dropped at the receiver: no reset, no unreachable; TCP alone would be silent for 113 s."""
    end = local.folder / "end"
    process = local.start("--hosts", "2", "--backend", "netns", "--launcher", "ranks", local.program(PROGRAM), end)
    both_work(local, process)
    pid = entry_point(local, "algo-2")
    drop = ["nsenter", "-t", str(pid), "--net", "iptables"]
    rule = ["INPUT", "-i", "eth0", "-j", "DROP"]
    assert os.spawnvp(os.P_WAIT, drop[0], [*drop, "-A", *rule]) == 0
    time.sleep(60)
    assert process.poll() is None
    assert os.spawnvp(os.P_WAIT, drop[0], [*drop, "-D", *rule]) == 0
    logs = [local.output / "hosts" / host / "log" for host in ("algo-1", "algo-2")]
    eventually(lambda: any("is back" in log.read_text() for log in logs))
    end.touch()
    ran = local.finish(process, 200)
    assert ran.code == 0, ran.stderr + ran.stdout
    log = ran.log("algo-1") + ran.log("algo-2")
    assert "no word from" in log
    assert "is back" in log
    assert log.count("is done") == 2
