"""The roll call and its channel between hosts with networks of their own, in real time."""

from __future__ import annotations

import errno
import time
from typing import Any, Callable, Iterator

import pytest

from .network import Network, usable, wait_all

SECRET = "an example of a secret"

pytestmark = [pytest.mark.netns, pytest.mark.skipif(not usable(), reason="can't make network namespaces here")]


@pytest.fixture
def network() -> Iterator[Callable[..., Network]]:
    made: list[Network] = []

    def make(count: int, **options: Any) -> Network:
        made.append(Network(count, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.lane("suite")
@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6 only"])
@pytest.mark.parametrize("check", ["strict", "secret"])
def test_hosts_muster_and_leave_together(network: Callable[..., Network], six: bool, check: str) -> None:
    net = network(3, six=six)
    settings = {"secret": SECRET} if check == "secret" else {"rollcall_check": "strict"}
    hosts = [net.call_the_roll(host, **settings) for host in reversed(net.hosts)]
    addresses = [net.address(host) for host in net.hosts]
    for mustered in wait_all(hosts, "mustered"):
        assert mustered["addresses"] == addresses
        assert mustered["master"] == addresses[0]
    for host in hosts:
        host.say("arrive ready")
        host.say("done 0")
    wait_all(hosts, "AllDone")
    for host in hosts:
        host.say("leave")
    wait_all(hosts, "left")
    assert not any(host.heard("PeerLost") for host in hosts)
    said = [line["text"] for host in hosts for line in host.heard("said")]
    assert not any(text.startswith("warning") for text in said), said


def test_a_cut_of_25_seconds_is_survived(network: Callable[..., Network]) -> None:
    net = network(2)
    hosts = [net.call_the_roll(host) for host in net.hosts]
    wait_all(hosts, "mustered")
    hosts[0].say('start ["algo-2", 1, ["orted"]]')
    hosts[1].wait("StartAsked")
    mend = net.cut("algo-2")
    hosts[0].say('start ["algo-2", 2, ["orted"]]')
    hosts[1].say("started [1]")
    hosts[1].say('start_ended [1, 3, "said"]')
    for host in hosts:
        host.say("arrive there")
    wait_all(hosts, "PeerSilent")
    time.sleep(8.0)
    mend()
    wait_all(hosts, "PeerBack")
    wait_all(hosts, "Arrived")
    assert [asked["event"] for asked in hosts[1].heard("StartAsked")] == [[1, ["orted"]], [2, ["orted"]]]
    assert [started["event"] for started in hosts[0].heard("Started")] == [["algo-2", 1]]
    assert [ended["event"] for ended in hosts[0].heard("StartEnded")] == [["algo-2", 1, 3, "said"]]
    for host in hosts:
        host.say("done 0")
    wait_all(hosts, "AllDone")
    assert not any(host.heard("PeerLost") for host in hosts)


@pytest.mark.lane("suite")
def test_nothing_listens_on_a_worker(network: Callable[..., Network]) -> None:
    net = network(2)
    hosts = [net.call_the_roll(host) for host in net.hosts]
    wait_all(hosts, "mustered")
    code = (
        "import socket, sys\n"
        "for host in sys.argv[1:]:\n"
        "    print(socket.socket().connect_ex((host, 7776)), flush=True)\n"
        "print('over')"
    )
    process = net.run("algo-1", "-W", "ignore", "-c", code, "10.78.0.1", "10.78.0.2")
    process.wait("over")
    assert [line["what"] for line in process.lines[:2]] == ["0", str(errno.ECONNREFUSED)]
