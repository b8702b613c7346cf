"""`muster check` on hosts that have something wrong with them: each is named, on every host alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

from .network import SOURCE, Network, usable

pytestmark = [pytest.mark.netns, pytest.mark.skipif(not usable(), reason="needs root and network namespaces")]

PATIENCE = 500.0
START = """
import json, os, subprocess, sys
asked = json.loads(sys.argv[1])
os.environ.update(asked["environ"])
if asked["shm"]:  # in the mount namespace of its own that `ip netns exec` has made
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + asked["shm"], "none", "/dev/shm"], check=True)
os.execv(sys.executable, [sys.executable, "-m", "musterpoint", *sys.argv[2:]])
"""
AHEAD = r"""
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t which, struct timespec *now) {
    int done = syscall(SYS_clock_gettime, which, now);
    if (which == CLOCK_REALTIME) now->tv_sec += 1000;
    return done;
}
"""
"""A library that puts the clock of a program 1,000 s ahead: no namespace has a clock of the day of its own."""
TRAIN = "import os; print('rank', os.environ['RANK'], flush=True)\n"


Started = subprocess.Popen[str]


class Hosts:
    """Commands of musterpoint on the hosts of a network."""

    def __init__(self, count: int) -> None:
        self.network = Network(count)
        self._started: list[Started] = []

    def on(self, host: str, *words: str) -> None:
        """Runs a command on the host."""
        subprocess.run(["ip", "netns", "exec", self.network.netns(host), *words], check=True)

    def start(self, host: str, *words: str, shm: str = "", **environ: str) -> Started:
        names = json.dumps(self.network.hosts)
        variables = {"SM_HOSTS": names, "SM_CURRENT_HOST": host, "OMP_NUM_THREADS": "1", **environ}
        asked = json.dumps({"environ": variables, "shm": shm})
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.network.netns(host), sys.executable, "-c", START, asked, *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )  # fmt: skip
        self._started.append(process)
        return process

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()
        self.network.close()


@pytest.fixture
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    made = Hosts(request.param)
    yield made
    made.end()


def ended(processes: list[Started]) -> tuple[list[int], list[str], list[str]]:
    """Codes, stdouts and stderrs."""
    said = [process.communicate(timeout=PATIENCE) for process in processes]
    return [process.returncode for process in processes], [out for out, _ in said], [err for _, err in said]


def named(document: dict[str, Any], severity: str) -> list[tuple[str, str]]:
    return [(each["code"], each["host"]) for each in document["findings"] if each["severity"] == severity]


@pytest.mark.lane("suite")
@pytest.mark.lane("faults")
@pytest.mark.parametrize("hosts", [3], indirect=True)
def test_every_host_with_something_wrong_is_named(hosts: Hosts, tmp_path: Path) -> None:
    """One has frameworks' ports closed, one has little /dev/shm, one is mute at a port and has a wrong clock."""
    (tmp_path / "ahead.c").write_text(AHEAD)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "ahead.so", tmp_path / "ahead.c"], check=True)
    frameworks = ("-p", "tcp", "--dport", "32768:60999", "--syn")
    hosts.on("algo-2", "iptables", "-A", "INPUT", *frameworks, "-j", "DROP")
    hosts.on("algo-3", "iptables", "-A", "INPUT", "-p", "tcp", "--dport", "7777", "-j", "DROP")
    words = ("check", "--json")
    processes = [
        hosts.start("algo-1", *words, shm="32m"),
        hosts.start("algo-2", *words),
        hosts.start("algo-3", *words, LD_PRELOAD=str(tmp_path / "ahead.so")),
    ]
    codes, outs, errs = ended(processes)
    assert codes == [78] * 3, errs
    document = json.loads(outs[0])
    assert [json.loads(out) for out in outs] == [document] * 3
    assert sorted(named(document, "fail")) == [
        ("clock-skew", "algo-3"), ("port-blocked", "algo-2"), ("shm-small", "algo-1"),
    ]  # fmt: skip
    assert ("port-blocked", "algo-3") in named(document, "warn"), "only the leader needs the master port"


@pytest.mark.lane("suite")
@pytest.mark.parametrize("hosts", [2], indirect=True)
def test_a_check_before_the_launch_ends_all_hosts_for_one_reason(hosts: Hosts, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(TRAIN)
    words = ("launch", "--launcher", "ranks", "--slots", "1", str(program))

    def launch(check: str) -> tuple[list[int], list[str], list[str]]:
        shm = {"algo-2": "32m"}
        return ended([
            hosts.start(host, *words, shm=shm.get(host, ""), MUSTER_CHECK=check) for host in hosts.network.hosts
        ])  # fmt: skip

    codes, outs, errs = launch("fail")
    assert codes == [78, 78], errs
    assert outs == ["", ""], "a rank was started"
    assert all("check fail: shm-small on algo-2: /dev/shm has 32 MiB; expected 1 GiB" in err for err in errs), errs
    assert "error: check: shm-small" in errs[1] and "error: check:" not in errs[0]

    codes, outs, errs = launch("warn")
    assert (codes, outs) == ([0, 0], ["rank 0\n", "rank 1\n"]), errs
    assert "shm-small" in errs[1] and "shm-small" not in errs[0]
