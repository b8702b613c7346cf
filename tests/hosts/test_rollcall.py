"""The roll call and its channel between hosts with networks of their own, in real time."""

from __future__ import annotations

import errno
import signal
import time
from typing import Any, Callable, Iterator

import pytest

from .conftest import eventually
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


def test_a_leader_that_comes_late_is_waited_for(network: Callable[..., Network]) -> None:
    net = network(2)
    worker = net.call_the_roll("algo-2")
    refused = "waiting for algo-1: 10.78.0.1 port 7776: connection refused"
    eventually(lambda: refused in [line["text"] for line in worker.heard("said")])
    time.sleep(1.0)
    leader = net.call_the_roll("algo-1")
    wait_all([leader, worker], "mustered")


@pytest.mark.lane("suite")
def test_a_killed_host_is_lost_by_name(network: Callable[..., Network]) -> None:
    net = network(3)
    hosts = [net.call_the_roll(host) for host in net.hosts]
    wait_all(hosts, "mustered")
    for host in ("algo-2", "algo-3"):
        hosts[0].say(f'start ["{host}", 1, ["orted", "--tree-spawn"]]')
    for asked in wait_all(hosts[1:], "StartAsked"):
        assert asked["event"] == [1, ["orted", "--tree-spawn"]]
    hosts[1].say("started [1]")
    assert hosts[0].wait("Started")["event"] == ["algo-2", 1]
    hosts[1].signal(signal.SIGKILL)
    began = time.monotonic()
    for lost in wait_all([hosts[0], hosts[2]], "PeerLost"):
        assert lost["event"][0] == "algo-2"
    assert time.monotonic() - began > 8
    ended = hosts[0].wait("StartEnded")["event"]
    assert ended == ["algo-2", 1, 255, f"host algo-2 was lost: {lost['event'][1]}"]
    assert len(hosts[0].heard("StartEnded")) == 1


@pytest.mark.lane("suite")
def test_a_killed_leader_is_lost_for_everybody(network: Callable[..., Network]) -> None:
    net = network(3)
    hosts = [net.call_the_roll(host) for host in net.hosts]
    wait_all(hosts, "mustered")
    hosts[0].signal(signal.SIGKILL)
    hosts[1].say("failed peer")
    verdict = hosts[1].wait("JobFailed")["event"][0]
    assert (verdict[0], verdict[1], verdict[3]) == ("algo-1", 76, "infra")
    assert hosts[2].wait("PeerLost")["event"][0] == "algo-1"


@pytest.mark.lane("suite")
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


GARBAGE = """
import socket, sys, time
socks = [socket.create_connection(("10.78.0.1", 7776)) for _ in range(150)]
for number, sock in enumerate(socks):
    sock.sendall([b"GET / HTTP/1.1\\r\\n\\r\\n", b"\\0\\0", b"\\0\\0\\0\\1{"][number % 3])
print("sent", flush=True)
time.sleep(300)
"""


@pytest.mark.lane("suite")
def test_strangers_keep_nobody_out(network: Callable[..., Network]) -> None:
    net = network(3)
    leader = net.call_the_roll("algo-1")
    leader.wait("said")
    net.run("algo-3", "-c", GARBAGE).wait("sent")
    hosts = [leader, net.call_the_roll("algo-2"), net.call_the_roll("algo-3")]
    wait_all(hosts, "mustered")


EVIL = r"""
import json, socket, sys

def speak(*messages):
    with socket.create_connection(("10.78.0.1", 7776), 30) as sock:
        for message in messages:
            data = json.dumps(message).encode() if isinstance(message, dict) else message
            try:
                sock.sendall(len(data).to_bytes(4, "big") + data)
            except OSError:
                break
        heard = b""
        try:
            sock.shutdown(socket.SHUT_WR)
            while more := sock.recv(65536):
                heard += more
        except OSError:
            pass
        return heard

hello = {
    "t": "hello", "protocol": 2, "host": "algo-2", "job": "job", "launcher": "torchrun", "slots": 2,
    "version": "\x1b[2J", "room": 2, "ports": [], "incarnation": "abc", "sees": ["6.6.6.6"],
    "dialled": "6.6.6.6", "nonce": "",
}
heard = b""
for nonce in ("", "00"):
    for change in ({"stop": 15}, {"job": "x" * 1000, "stop": 0}, {"host": "algo-1", "stop": 2}, {"protocol": 1}):
        for proof in ("\ud800", "0" * 32, 0, None):
            last = {"t": "proof", "proof": proof} if proof != 0 else {"t": "abandon", "signal": 15}
            heard += speak({**hello, "nonce": nonce, **change}, last, {"t": "leaving"}, {"t": "stopping", "signal": 0})
heard += speak(*[b""] * 1000) + speak(b"[" * 9000) + speak(b'{"t":' + b"1" * 5000 + b"}")
print("job" if b'"job"' in heard or b"torchrun" in heard else "nothing")
print("over", flush=True)
"""


@pytest.mark.parametrize("mustered", [False, True])
@pytest.mark.parametrize("secret", [{}, {"secret": SECRET}], ids=["no secret", "secret"])
def test_who_has_no_seat_decides_and_learns_nothing(
    network: Callable[..., Network], secret: dict[str, str], mustered: bool
) -> None:
    """A host of the network that is none of the job's, before the hosts are here and afterwards."""
    net = network(3)
    hosts = [net.call_the_roll(host, hosts=net.hosts[:2], **secret) for host in net.hosts[: 2 if mustered else 1]]
    if mustered:
        wait_all(hosts, "mustered")
    else:
        hosts[0].wait("said")
    evil = net.run("algo-3", "-c", EVIL)
    evil.wait("over")
    assert [line["what"] for line in evil.lines] == ["nothing", "over"]
    if not mustered:
        hosts.append(net.call_the_roll("algo-2", hosts=net.hosts[:2], **secret))
        for found in wait_all(hosts, "mustered"):
            assert found["master"] == "10.78.0.1"
    for host in hosts:
        host.say("arrive there")
    wait_all(hosts, "Arrived")
    for host in hosts:
        assert not any(host.heard(what) for what in ("StopAll", "JobFailed", "PeerLost", "failed"))
        assert all(line["text"].isprintable() for line in host.heard("said")), host.lines
    for host in hosts:
        host.say("done 0")
    wait_all(hosts, "AllDone")


FAULTS = {
    "no such name at first": {"fault": "nxdomain", "seconds": 2.0},
    "the server is ill at first": {"fault": "servfail", "seconds": 2.0},
    "IPv6 questions get no answer": {"fault": "drop-aaaa"},
    "another address at first": {"fault": "wrong", "seconds": 2.0, "wrong": "10.78.0.200"},
    "no answer at first": {"fault": "drop", "seconds": 2.0},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("faulty", ["algo-1", "algo-2"])
def test_names_that_are_late_or_wrong(network: Callable[..., Network], fault: dict[str, Any], faulty: str) -> None:
    net = network(2)
    net.serve_names(**{faulty.replace("-", "_"): fault})
    hosts = [net.call_the_roll(host, rollcall_check="strict") for host in net.hosts]
    for mustered in wait_all(hosts, "mustered"):
        assert mustered["addresses"] == ["10.78.0.1", "10.78.0.2"]


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
