"""Hosts that come late, are stopped or are killed, and networks that are cut: what every other container does then."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .containers import BY_RANKS, MPI, RANKS

WORKS = """
import os, socket

rank = os.environ["RANK"]
print("rank", rank, "of", os.environ["WORLD_SIZE"], "works on", os.environ["SM_CURRENT_HOST"], flush=True)
print("here", socket.gethostname(), "leader", socket.gethostbyname(os.environ["MASTER_ADDR"]), flush=True)
if "WAITS" in os.environ:
    open("/opt/ml/checkpoints/go").readline()
print("rank", rank, "is done", flush=True)
"""


def test_a_container_that_comes_ten_seconds_late_is_waited_for(job: Any) -> None:
    """As on the platform: the containers' own host names are not those of the job."""
    hosts = job("base", WORKS, distribution=RANKS, environment=BY_RANKS, hostname=None)
    hosts.start("algo-1")
    began = time.monotonic()
    hosts["algo-1"].saw("1 of 2 hosts here; waiting for algo-2")
    time.sleep(max(0.0, began + 10 - time.monotonic()))
    assert "works" not in hosts["algo-1"].log
    hosts.start("algo-2")
    assert hosts.ends() == [0, 0]
    for number, host in enumerate(hosts.hosts.values()):
        assert f"rank {number} of 2 works on {host.name}" in host.log
        assert f"here {host.container.id[:12]}" in host.log, "no name of ours for the container"


def test_containers_on_several_networks_meet(job: Any) -> None:
    """A host's own name stands for an address on each of its networks; the other host is on one of them."""
    hosts = job("base", WORKS, distribution=RANKS, environment=BY_RANKS)
    hosts.network_beside("algo-2")
    hosts.start()
    assert hosts.ends() == [0, 0]


def test_a_container_that_is_alone_is_stopped_or_gives_up(job: Any) -> None:
    stopped = job("base", WORKS, distribution=RANKS, environment=BY_RANKS).start("algo-1")["algo-1"]
    patience = {**BY_RANKS, "MUSTER_ROLLCALL_TIMEOUT": "4"}
    alone = job("base", WORKS, distribution=RANKS, environment=patience).start("algo-2")["algo-2"]
    stopped.saw("1 of 2 hosts here; waiting for algo-2")
    stopped.stop()
    assert (stopped.end(), stopped.reason, stopped.outcome["class"]) == (143, "", "stopped")
    assert alone.end() == 69
    assert alone.reason.startswith("muster: "), alone.reason
    assert "algo-1" in alone.reason


SAVES = """
import os, pathlib, signal, sys, time

rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"]

def save(signo, frame):
    time.sleep(2)
    pathlib.Path(os.environ["SM_CHECKPOINT_DIR"], f"checkpoint-{rank}").write_text(str(signo))
    print(f"rank {rank} saved", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print(f"rank {rank} trains", flush=True)
open("/opt/ml/checkpoints/go").readline()
"""


@pytest.mark.parametrize(
    ("target", "settings"),
    [
        ("base", {"distribution": RANKS, "environment": BY_RANKS}),
        ("mpi", {"distribution": MPI, "user": 1000, "read_only": True, "tmpfs": {"/tmp": ""}}),
    ],
    ids=["ranks", "mpirun"],
)
def test_a_stop_of_one_container_saves_checkpoints_on_both(job: Any, target: str, settings: dict[str, Any]) -> None:
    """``docker stop``, on hosts named as by SDK v2's local mode."""
    hosts = job(target, SAVES, hosts=("algo-1-x7k2p", "algo-2-m3q9d"), **settings).start()
    for number, host in enumerate(hosts.hosts.values()):
        host.saw(f"rank {number} trains")
    began = time.monotonic()
    hosts["algo-2-m3q9d"].stop()
    assert hosts.ends() == [143, 143]
    assert time.monotonic() - began < 100, "not the whole grace"
    for number, host in enumerate(hosts.hosts.values()):
        assert (host.ml / "checkpoints" / f"checkpoint-{number}").read_text() == "15"
        assert (host.outcome["class"], host.outcome["host"]) == ("stopped", "algo-2-m3q9d")
        assert host.reason == "", "a stop is no failure"


def installs(job: Any, name: str, hosts: int) -> Any:
    """A job whose host ``name`` installs for ever: pip reads a pipe."""
    environment = {**BY_RANKS, "MUSTER_STOP_GRACE": "40"}
    made = job("base", WORKS, hosts=hosts, distribution=RANKS, environment=environment)
    (made[name].ml / "code" / "requirements.txt").write_text("-r /opt/ml/checkpoints/go")
    return made


@pytest.mark.parametrize("name", ["algo-1", "algo-2"], ids=["the leader", "a worker"])
def test_a_stop_of_a_container_that_installs_is_the_others_too(job: Any, name: str) -> None:
    """They wait for it in the roll call, which it attends to tell them."""
    hosts = installs(job, name, 3).start()
    for host in hosts.hosts.values():
        host.saw("waiting for" if host.name != name else "installing requirements.txt with pip")
    hosts[name].stop()
    assert hosts.ends() == [143, 143, 143]
    for host in hosts.hosts.values():
        assert (host.outcome["class"], host.outcome["host"]) == ("stopped", name)
        assert host.reason == ""
        assert f"musterpoint: {name} was told to stop" in host.log


def test_a_container_that_installs_alone_is_stopped(job: Any) -> None:
    host = installs(job, "algo-1", 2).start("algo-1")["algo-1"]
    host.saw("installing requirements.txt with pip")
    host.stop()
    assert (host.end(), host.outcome["class"]) == (143, "stopped")
    assert "while its code was being made ready: telling the others, for 8 s at most" in host.log


@pytest.mark.parametrize(
    ("victim", "done"),
    [("algo-1", ["algo-2"]), ("algo-3", []), ("algo-3", ["algo-1", "algo-2"])],
    ids=["the leader", "a worker", "the last that works"],
)
def test_a_killed_container_ends_the_job_with_its_name(job: Any, victim: str, done: list[str]) -> None:
    """Also where some hosts are done, or all others."""
    hosts = job("base", WORKS, hosts=3, distribution=RANKS, environment={**BY_RANKS, "WAITS": "1"}).start()
    for host in hosts.hosts.values():
        host.saw("leader")
    for name in done:
        hosts[name].go()
        hosts[name].saw("is done")
    began = time.monotonic()
    hosts[victim].container.kill()
    codes = dict(zip(hosts.hosts, hosts.ends()))
    assert codes == {"algo-1": 76, "algo-2": 76, "algo-3": 76, victim: 137}
    assert time.monotonic() - began < 200, "ten seconds for a redial, not the 300 of silence"
    for host in hosts.hosts.values():
        if host.name != victim:
            assert host.reason.startswith(f"muster: host {victim} was lost: "), host.reason
            assert (host.outcome["cause"], host.outcome["host"]) == ("host", victim)
            assert f"musterpoint: host {victim} was lost: " in host.log


def test_a_container_that_is_started_anew_is_no_member_of_the_job(job: Any) -> None:
    """As by a restart policy. Both end, at once."""
    hosts = job("base", WORKS, distribution=RANKS, environment={**BY_RANKS, "WAITS": "1"}).start()
    for host in hosts.hosts.values():
        host.saw("leader")
    began = time.monotonic()
    hosts["algo-2"].container.kill()
    assert hosts["algo-2"].end() == 137
    hosts["algo-2"].container.start()
    assert hosts["algo-1"].end() == 76
    assert hosts["algo-1"].reason == "muster: host algo-2 was lost: it was started anew while the job ran"
    assert hosts["algo-2"].container.wait()["StatusCode"] == 69
    assert "has already started with an earlier start of algo-2" in hosts["algo-2"].reason
    assert time.monotonic() - began < 200


def test_a_container_without_network_is_lost(job: Any) -> None:
    environment = {**BY_RANKS, "WAITS": "1", "MUSTER_SILENCE_TIMEOUT": "20"}
    hosts = job("base", WORKS, distribution=RANKS, environment=environment).start()
    for host in hosts.hosts.values():
        host.saw("leader")
    began = time.monotonic()
    hosts.cut("algo-2")
    assert hosts.ends() == [76, 76]
    assert time.monotonic() - began < 200
    for host, other in (("algo-1", "algo-2"), ("algo-2", "algo-1")):
        assert hosts[host].outcome["host"] == other
        assert other in hosts[host].reason, hosts[host].reason


@pytest.mark.parametrize("host", ["algo-1", "algo-2"], ids=["the leader", "a worker"])
def test_a_container_that_gets_its_network_back_goes_on(job: Any, image: Any, host: str) -> None:
    """At another address and on another interface: somebody else has its old one by then."""
    hosts = job("base", WORKS, distribution=RANKS, environment={**BY_RANKS, "WAITS": "1"}).start()
    members = list(hosts.hosts.values())
    for each in members:
        each.saw("leader")
    hosts.make(image("base"), "", hosts=("another",), command=["sleep", "120"])
    before = hosts[host].addresses
    hosts.cut(host)
    for each in members:
        each.saw("no word from")
    hosts.start("another")
    hosts.mend(host)
    assert before == hosts["another"].addresses != hosts[host].addresses
    for each in members:
        each.saw("is back")
        each.go()
    assert [each.end() for each in members] == [0, 0]
    for each in members:
        assert "is done" in each.log
        assert each.reason == ""
