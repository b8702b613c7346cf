"""Hosts that come late, are stopped or are killed, and networks that are cut: what every other container does then."""

from __future__ import annotations

from typing import Any

import pytest

from .containers import BY_RANKS, RANKS

WORKS = """
import os, socket

rank = os.environ["RANK"]
print("rank", rank, "of", os.environ["WORLD_SIZE"], "works on", os.environ["SM_CURRENT_HOST"], flush=True)
print("here", socket.gethostname(), "leader", socket.gethostbyname(os.environ["MASTER_ADDR"]), flush=True)
if "WAITS" in os.environ:
    open("/opt/ml/checkpoints/go").readline()
print("rank", rank, "is done", flush=True)
"""


def test_containers_on_several_networks_meet(job: Any) -> None:
    """A host's own name stands for an address on each of its networks; the other host is on one of them."""
    hosts = job("base", WORKS, distribution=RANKS, environment=BY_RANKS)
    hosts.network_beside("algo-2")
    hosts.start()
    assert hosts.ends() == [0, 0]


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
