"""Jobs that are started again on the hosts that they have, after a failure that another attempt may not see."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, Iterator

import pytest

from .conftest import Ran, eventually
from .network import Network, Process
from .restarted_ranks import SEES, check_alike

pytestmark = pytest.mark.netns

TRAIN = """
import json, os, signal, sys, time
import torch
import torch.distributed as dist

folder, attempt = sys.argv[1], int(os.environ["MUSTER_ATTEMPT"])
plan = json.loads(sys.argv[2])  # by attempt: rank, step, and what it does there
dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.ones(1)
dist.all_reduce(total)
path = os.path.join(folder, "checkpoint")
first = torch.load(path)["step"] + 1 if os.path.exists(path) else 0
facts = {"attempt": attempt, "rank": rank, "world": int(total), "first": first, "port": os.environ["MASTER_PORT"],
         "count": os.environ["TORCHELASTIC_RESTART_COUNT"]}
print("\\n" + json.dumps(facts), flush=True)

def late(signo, frame):
    sys.exit(5)  # fails, too, while the attempt ends

if rank == 0:
    signal.signal(signal.SIGTERM, late)
who, at, what = plan[attempt] if attempt < len(plan) else (-1, -1, "")
for step in range(first, 6):
    if (rank, step) == (who, at):
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("boom")
    dist.all_reduce(total)
    if rank == 0:
        torch.save({"step": step}, path + ".new")
        os.replace(path + ".new", path)
    dist.barrier()
dist.destroy_process_group()
"""


def facts(ran: Ran) -> list[dict[str, Any]]:
    """What each rank printed in each attempt, in their order."""
    lines = [line for host in ("algo-1", "algo-2") for line in ran.log(host).splitlines()]
    found = [json.loads(line[line.index("{") :]) for line in lines if '"attempt"' in line]
    return sorted(found, key=lambda each: (each["attempt"], each["rank"]))


def check_attempts(ran: Ran, firsts: list[int], world: int = 2) -> None:
    """Every attempt had all ranks, went on where the one before was, and met at a port of its own."""
    found = facts(ran)
    assert [each["attempt"] for each in found] == sorted([*range(len(firsts))] * world), ran.stderr + ran.stdout
    assert [each["rank"] for each in found] == [*range(world)] * len(firsts)
    assert {each["world"] for each in found} == {world}
    assert [each["first"] for each in found[::world]] == firsts
    assert all(each["count"] == str(each["attempt"]) for each in found)
    assert len({each["port"] for each in found}) == len(firsts)
    for host in ("algo-1", "algo-2"):
        outcome = ran.outcome(host)
        assert (outcome["attempt"], outcome["attempts"]) == (len(firsts), len(firsts))


@pytest.mark.lane("suite")
def test_a_killed_rank_is_survived(local) -> None:  # type: ignore[no-untyped-def]
    """Another rank fails while the first attempt ends, which changes nothing."""
    plan = [[1, 2, "kill"]]
    ran = local.run(
        "--hosts", "2", "--slots", "1", "--backend", "netns", "--launcher", "ranks", "--max-restarts", "3",
        local.program(TRAIN), local.folder, json.dumps(plan),
    )  # fmt: skip
    assert ran.code == 0, ran.stderr + ran.stdout
    check_attempts(ran, [0, 2])
    for host in ("algo-1", "algo-2"):
        said = "restart 1 of at most 3, on all hosts: rank 1 (local rank 0) on algo-2, killed by SIGKILL"
        assert said in ran.log(host)
    ranks = [path.read_text() for path in sorted((ran.output / "hosts").glob("*/ranks/*")) if "rank" in path.name]
    assert sum(text.count('"attempt"') for text in ranks) == 4, "a rank's file keeps all attempts"


def test_an_exception_under_torchrun(local) -> None:  # type: ignore[no-untyped-def]
    plan = [[1, 2, "raise"], [1, 3, "raise"]]
    ran = local.run(
        "--hosts", "2", "--slots", "1", "--backend", "netns", "--launcher", "torchrun", "--max-restarts", "1",
        "--restart-on", "user", local.program(TRAIN), local.folder, json.dumps(plan),
    )  # fmt: skip
    assert ran.code == 1, ran.stderr + ran.stdout
    check_attempts(ran, [0, 2])
    assert ran.reason.startswith("ValueError: boom")
    assert "in attempt 2, the last: --max-restarts 1 allows no more" in ran.reason


@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_ranks_see_the_same_with_torchruns_agent_and_without(local, rendezvous: str) -> None:  # type: ignore[no-untyped-def]
    """The first attempt's ranks are started by torchrun, the next one's by musterpoint itself."""
    ran = local.run(
        "--hosts", "2", "--slots", "2", "--backend", "netns", "--launcher", "torchrun", "--max-restarts", "1",
        "--restart-on", "user", "--rendezvous", rendezvous, local.program(SEES), local.folder, "--lr", "0.1",
    )  # fmt: skip
    assert ran.code == 0, ran.stderr + ran.stdout
    check_alike(Path(local.folder), 4, frozenset({"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}))


SERVES = """
import json, os, signal, socket, sys

config, attempt = json.loads(os.environ["TF_CONFIG"]), int(os.environ["MUSTER_ATTEMPT"])
addresses, task = config["cluster"]["worker"], config["task"]["index"]
host, port = addresses[0].rsplit(":", 1)
if task == 0:
    with socket.create_server(("", int(port))) as server:
        other, _ = server.accept()
    other.recv(100)
else:
    while True:
        try:
            other = socket.create_connection((host, int(port)))
            break
        except ConnectionRefusedError:
            pass
    other.sendall(b"task 1")
facts = {"attempt": attempt, "rank": task, "world": len(addresses), "first": attempt, "port": attempt,
         "count": os.environ["TORCHELASTIC_RESTART_COUNT"]}
print("\\n" + json.dumps(facts), flush=True)
if task == 1 and attempt == 0:
    os.kill(os.getpid(), signal.SIGSEGV)
if attempt == 1:  # each waits for the other
    other.recv(100)
other.sendall(b"bye") if task else other.recv(100)
"""


def test_a_stall_is_survived_and_servers_get_their_ports_again(local) -> None:  # type: ignore[no-untyped-def]
    """The first host's server listens in each attempt where TF_CONFIG says."""
    ran = local.run(
        "--hosts", "2", "--backend", "netns", "--launcher", "tensorflow", "--max-restarts", "2", "--stall-timeout", "2",
        local.program(SERVES),
    )  # fmt: skip
    assert ran.code == 0, ran.stderr + ran.stdout
    check_attempts(ran, [0, 1, 2])
    assert "restart 1 of at most 2, on all hosts: Fatal Python error: Segmentation fault" in ran.log("algo-1")
    assert "restart 2 of at most 2, on all hosts: stalled: no output of any rank for 2 s" in ran.log("algo-2")


WAITS = """
import os, sys, time

attempt = int(os.environ["MUSTER_ATTEMPT"])
print("rank", os.environ["RANK"], "attempt", attempt, os.environ["MASTER_PORT"], flush=True)
while True:
    time.sleep(0.1)
"""

HOST = """
import json, os, runpy, sys

folder, host, hosts, *sys.argv[1:] = sys.argv[1:]
os.environ.update(SM_HOSTS=hosts, SM_CURRENT_HOST=host, SAGEMAKER_BASE_DIR=os.path.join(folder, host))
os.makedirs(os.path.join(folder, host, "output"), exist_ok=True)
os.dup2(1, 2)
runpy.run_module("musterpoint", run_name="__main__")
"""


class Hosts:
    """``muster launch`` on network namespaces, each of which the platform can start again."""

    def __init__(self, count: int, folder: Path, program: str, *options: str) -> None:
        self.network, self.folder, self.options = Network(count), folder, options
        (folder / "program.py").write_text(program)

    def start(self, host: str) -> Process:
        return self.network.run(
            host, "-c", HOST, str(self.folder), host, json.dumps(self.network.hosts), "launch", "--launcher", "ranks",
            "--slots", "1", "--max-restarts", "2", "--rejoin-timeout", "100", *self.options,
            str(self.folder / "program.py"),
        )  # fmt: skip

    def outcome(self, host: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / host / "output" / "outcome.json").read_text())
        return found


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(3, tmp_path, WAITS)
    yield made
    made.network.close()


def said(process: Process, text: str) -> None:
    """Waits until a host has printed a line with ``text``."""
    eventually(lambda: any(text in line["what"] for line in process.lines))


@pytest.mark.lane("suite")
def test_a_host_that_the_platform_starts_anew_takes_its_old_seat(hosts: Hosts) -> None:
    """Its entry point is killed, twice; the second time the platform stops the job instead."""
    leader, lost, other = (hosts.start(host) for host in hosts.network.hosts)
    for rank, process in enumerate((leader, lost, other)):
        said(process, f"rank {rank} attempt 0 7777")
    lost.signal(signal.SIGKILL)
    said(leader, "waiting up to 100 s for algo-2 to come back (--rejoin-timeout)")
    again = hosts.start("algo-2")
    for rank, process in enumerate((leader, again, other)):
        said(process, f"rank {rank} attempt 1 7778")
    said(leader, "restart 1 of at most 2, on all hosts: host algo-2 was lost: its connection was closed")
    again.signal(signal.SIGKILL)
    eventually(lambda: sum("waiting up to 100 s" in line["what"] for line in leader.lines) == 2)
    other.signal(signal.SIGTERM)
    for process, host in ((leader, "algo-1"), (other, "algo-3")):
        assert process.code() == 143, (process.lines, process.stderr)
        outcome = hosts.outcome(host)
        assert (outcome["class"], outcome["host"], outcome["attempts"]) == ("stopped", "algo-3", 2)
