"""Whose calls the leader takes, by address, as real hosts on several loopback addresses make them."""

from __future__ import annotations

import socket
import threading
from typing import Any, Callable

import pytest

from musterpoint.core.channel.names import Answer
from musterpoint.core.channel.peers import PeerLost
from musterpoint.core.rollcall.hello import NO_SEAT
from musterpoint.core.rollcall.roster import Offer

from ...meeting import SHORT_SILENCE

Start = Callable[..., Any]
NAMES = {"algo-1": ("127.0.0.1",), "algo-2": ("127.0.0.2",), "algo-3": ("127.0.0.3",)}
ELSEWHERE = {**NAMES, "algo-2": ("127.0.0.9",)}


def test_another_address_is_taken_after_a_while_with_a_warning(start: Start) -> None:
    leader, worker = start(1, 2, addresses=NAMES), start(2, 2, addresses=ELSEWHERE)
    assert leader.gathered().seats[1].address == "127.0.0.9"
    worker.gathered()
    assert leader.said[-1] == (
        "warning: algo-2 calls from 127.0.0.9, but its name resolves to 127.0.0.2 on this host; "
        "nobody else came, so it has the seat"
    )


def test_strict_keeps_it_out(start: Start) -> None:
    leader = start(1, 2, addresses=NAMES, rollcall_check="strict", rollcall_timeout=4.0)
    start(2, 2, addresses=ELSEWHERE)
    lines = str(leader.failed()).splitlines()
    expected = "127.0.0.9: algo-2 calls from 127.0.0.9, but its name resolves to 127.0.0.2 on this host"
    assert lines[2] == f"algo-2  hello    {expected}"


def test_hosts_that_see_another_leader_are_told_of(start: Start) -> None:
    views = {"algo-1": ("127.0.0.1",), "algo-2": ("127.0.0.1",)}
    leader = start(1, 2, addresses={**views, "algo-1": ("203.0.113.1",)}, secret="an example of a secret")
    start(2, 2, addresses={**views, "algo-1": ("127.0.0.1", "203.0.113.7")}, secret="an example of a secret")
    leader.gathered()
    assert leader.warnings == [
        "warning: algo-1 resolves to 203.0.113.1 here, which is none of its addresses",
        "warning: algo-1 resolves to 203.0.113.7 on algo-2, but to 203.0.113.1 on itself",
    ]


def test_a_silent_worker_loses_its_seat_and_gets_it_again(start: Start, cable: Any) -> None:
    leader, worker = start(1, 3, timeouts=SHORT_SILENCE), start(2, 3, port=cable.port, timeouts=SHORT_SILENCE)
    leader.wait(lambda: "host-here" in leader.moments)
    cable.freeze()
    leader.wait(lambda: any("algo-2 (was here, then it fell silent), algo-3 (has not called yet)" in line
                            for line in leader.said))  # fmt: skip
    cable.plug()
    leader.wait(lambda: leader.moments.count("host-here") > 1)
    start(3, 3)
    assert leader.gathered().seats == worker.gathered().seats
    assert not leader.has(PeerLost)


def test_another_version_is_told_of(start: Start) -> None:
    leader = start(1, 2, offer=Offer("job", "torchrun", 1, "0.1"), secret="an example of a secret")
    start(2, 2, offer=Offer("job", "torchrun", 1, "9.9"), secret="an example of a secret")
    leader.gathered()
    assert "warning: algo-2 runs musterpoint 9.9, algo-1 0.1" in leader.said


@pytest.mark.parametrize("known_at_last", [True, False])
def test_a_host_that_calls_before_its_name_is_known_hears_why_it_is_refused(start: Start, known_at_last: bool) -> None:
    """The leader's answer waits for the look-up, which tells that the caller is the host itself, or a stranger."""
    called = threading.Event()

    def lookup(name: str, family: int) -> Answer:
        called.wait(500)
        found = ("127.0.0.2" if known_at_last else "127.0.0.9",) if family == socket.AF_INET else ()
        return Answer(found, "" if found else "no such address")

    leader = start(1, 3, addresses={"algo-1": ("127.0.0.1",), "algo-3": ("127.0.0.3",)}, lookup=lookup)
    worker = start(2, 3, addresses=NAMES, offer=Offer("another", "torchrun", 2, "0.1"))
    leader.wait(lambda: "hello-refused" in leader.moments)
    called.set()
    if known_at_last:
        for host in (leader, worker):
            assert "algo-2 belongs to job 'another', algo-1 to 'job'" in str(host.failed())
    else:
        assert NO_SEAT in str(worker.failed())
        assert leader.error is None


def test_libraries_that_differ_are_told_of(start: Start) -> None:
    offer = Offer("job", "torchrun", 1, "0.1", libraries=("NCCL=2.27.3", "MLNX_OFED=5.4-1.0.3.0"))
    leader = start(1, 4, offer=offer)
    start(2, 4, offer=offer._replace(libraries=("NCCL=2.26.2\n", "MLNX_OFED=5.4-1.0.3.0")))
    start(3, 4, offer=offer)
    start(4, 4, offer=offer._replace(libraries=()))
    leader.gathered()
    told = [line for line in leader.said if "differs" in line]
    assert len(told) == 1
    assert told[0].startswith("warning: NCCL differs between hosts: 2.27.3 on algo-1, algo-3; 2.26.2")
    assert told[0].isprintable()


def test_a_leader_that_nobody_has_reached_suspects_its_own_port(start: Start) -> None:
    """All others are missing: more likely its port is closed than each of them is at fault."""
    lines = str(start(1, 3, rollcall_timeout=0.5).failed()).splitlines()
    assert lines[0] == "the roll call's 0.5 s are over, and none of the other 2 hosts has reached algo-1"
    assert "nobody's call has come to port" in lines[-1]
    assert all(what in lines[-1] for what in ("security group", "network policy", "--rollcall-port"))
