"""The whole roll call, with real hosts on loopback."""

from __future__ import annotations

import socket
import threading
from typing import Any, Callable

import pytest

from musterpoint.base.errors import RollCallError, UsageError
from musterpoint.base.loop import Loop
from musterpoint.base.settings import Settings
from musterpoint.core.channel.peers import AllDone, GroupEnded, StopAll
from musterpoint.core.rollcall.hello import ANOTHER_SECRET, NO_SEAT
from musterpoint.core.rollcall.roll_call import RollCall, Seams, StoppedEarly
from musterpoint.core.rollcall.roster import Offer, Participant

from ....ports import unheld
from ...meeting import EVER, LONG_NOTICE, OFFER, TIMEOUTS, Arrived, all_done, gathered

Start = Callable[..., Any]
SECRET = "an example of a secret"


@pytest.mark.parametrize("moment", ["with the roster", "after it"])
def test_a_stop_that_comes_with_the_roster_is_left_to_the_supervisor(port: int, moment: str) -> None:
    """All that is ready in one turn of the loop is handled, so that a signal may come behind the roster."""
    hosts = ("algo-1", "algo-2")
    taken: list[bool] = []

    def record(name: str, **facts: Any) -> None:
        if name == "rollcall-done" and moment == "with the roster":
            taken.append(roll_call.stop(15))

    settings = Settings(rollcall_port=port, rollcall_timeout=60)
    loop = Loop()
    loop.prepare_posts()
    offer = Offer("job", "script", 1, "0.1")
    participant = Participant(hosts, hosts, "algo-1", offer, settings)
    addresses = dict.fromkeys(hosts, ("127.0.0.1",))
    roll_call = RollCall(loop, participant, lambda text: None, record, unheld(), addresses)
    other = threading.Thread(target=take_part, args=(participant._replace(me="algo-2"), addresses))
    other.start()
    roster, peers = roll_call.run()
    if moment == "after it":
        taken.append(roll_call.stop(15))
    assert (taken, roster.me) == ([False], "algo-1")
    peers.close()
    other.join()
    loop.close()


def take_part(participant: Participant, addresses: dict[str, tuple[str, ...]]) -> None:
    loop = Loop()
    loop.prepare_posts()
    _, peers = RollCall(loop, participant, lambda text: None, lambda name, **facts: None, unheld(), addresses).run()
    peers.close()
    loop.close()


@pytest.mark.parametrize("secret", ["", "hush"])
def test_five_hosts_from_hello_to_bye(start: Start, secret: str) -> None:
    hosts = [start(number, 5, secret=secret) for number in (3, 2, 5, 4)]
    hosts.append(start(1, 5, secret=secret))
    rosters = [host.gathered() for host in hosts]
    assert len({roster._replace(me="") for roster in rosters}) == 1
    first = rosters[0]
    assert [seat.name for seat in first.seats] == [f"algo-{number}" for number in range(1, 6)]
    assert {seat.address for seat in first.seats} == {"127.0.0.1"}
    assert (first.world_size, first.master_address) == (10, "127.0.0.1")
    assert sorted(roster.node_rank for roster in rosters) == [0, 1, 2, 3, 4]
    for host in hosts[1:]:
        host.say("arrive", "ready")
    assert not hosts[-1].has(Arrived)
    hosts[0].say("arrive", "ready")
    for host in hosts:
        assert host.event(Arrived) == Arrived("ready")
        host.say("done", 0)
    for host in hosts:
        host.event(AllDone)
    for host in hosts:
        host.leave()
        assert [type(event) for event in host.events] == [Arrived, GroupEnded, AllDone]


def test_uneven_hosts_and_hosts_outside_the_group(start: Start) -> None:
    group = ("algo-2", "algo-3")
    hosts = [
        start(number, 3, group=group, offer=Offer("job", launcher, slots, "0.1", 4))
        for number, launcher, slots in ((1, "script", 0), (2, "torchrun", 4), (3, "torchrun", 2))
    ]
    rosters = [host.gathered() for host in hosts]
    assert [(seat.slots, seat.grouped, seat.capacity) for seat in rosters[0].seats] == [
        (0, False, 4), (4, True, 4), (2, True, 4)
    ]  # fmt: skip
    assert [(roster.node_rank, roster.first_rank) for roster in rosters] == [(-1, 0), (0, 0), (1, 4)]
    for host in hosts[1:]:
        host.say("done", 0)
    for host in hosts:
        host.event(GroupEnded)
        assert not host.has(AllDone)


def test_a_stop_anywhere_is_everybody_elses(start: Start) -> None:
    hosts = gathered(start, 3)
    hosts[1].say("stopping", 15)
    for host in (hosts[0], hosts[2]):
        assert host.event(StopAll) == StopAll("algo-2", 15)
    hosts[2].say("stopping", 15)  # its own platform's stop comes a little later: no news
    all_done(hosts, 143)
    assert not hosts[1].has(StopAll)


def test_the_deadline_has_a_table_for_everybody(start: Start) -> None:
    addresses = {"algo-1": ("127.0.0.1",), "algo-2": ("127.0.0.1",), "algo-3": ("127.0.0.9",)}
    leader = start(1, 4, rollcall_timeout=4.0, addresses=addresses | {"algo-4": ()})
    worker = start(2, 4, addresses=addresses)
    for host in (leader, worker):
        error = host.failed()
        assert isinstance(error, RollCallError)
        lines = str(error).splitlines()
        assert lines[0] == "the roll call's 4 s are over, and algo-3, algo-4 are not here (seen from algo-1)"
        assert lines[2] == "algo-3  connect  127.0.0.9: has not called yet"
        assert lines[3].startswith("algo-4  name")
        assert lines[4] == "2 of 4 hosts are here"
    assert any("2 of 4 hosts here; waiting for algo-3 (has not called yet)" in line for line in leader.said)


def test_a_worker_whose_deadline_comes_first_gets_the_table_too(start: Start) -> None:
    leader, worker = start(1, 3), start(2, 3, rollcall_timeout=4.0, timeouts=TIMEOUTS._replace(flush=10.0))
    assert "algo-2 reached its deadline, and algo-3 is not here (seen from algo-1)" in str(worker.failed())
    assert str(leader.failed()) == str(worker.failed())


def test_a_worker_alone_says_what_it_sees(start: Start, port: int) -> None:
    worker = start(2, 2, rollcall_timeout=2.0)
    lines = str(worker.failed()).splitlines()
    assert lines[0] == "the roll call's 2 s are over, and algo-2 has no roster from algo-1"
    assert lines[2] == f"algo-1  connect  127.0.0.1 port {port}: connection refused"


def test_hosts_that_cannot_muster_say_so_at_once(start: Start) -> None:
    leader, worker = start(1, 3), start(2, 3, offer=Offer("other", "torchrun", 2, "0.1"))
    reason = "algo-2 belongs to job 'other', algo-1 to 'job'"
    assert f"refused algo-2: {reason}" in str(worker.failed())
    lines = str(leader.failed()).splitlines()
    assert lines[0] == reason
    assert f"algo-2  hello    127.0.0.1: refused: {reason}" in lines


def test_a_secret_that_only_one_has_is_said_at_both(start: Start) -> None:
    """The worker obeys nobody who doesn't show that it knows the secret, so it tries until its deadline."""
    leader, worker = start(1, 3), start(2, 3, secret=SECRET, rollcall_timeout=3.0)
    lines = str(leader.failed()).splitlines()
    assert lines[0] == "algo-2 has a secret and algo-1 has none (--secret, MUSTER_SECRET)"
    assert isinstance(worker.failed(), RollCallError)
    assert any("does not bear the mark of our secret" in line for line in worker.said)


def test_a_secret_that_only_the_leader_has(start: Start) -> None:
    leader, worker = start(1, 2, secret=SECRET, rollcall_timeout=4.0), start(2, 2)
    assert f"refused algo-2: {ANOTHER_SECRET}" in str(worker.failed())
    row = "refused: somebody there calls itself algo-2 and has no secret (--secret, MUSTER_SECRET)"
    assert f"algo-2  hello    127.0.0.1: {row}" in str(leader.failed()).splitlines()


@pytest.mark.parametrize(("secret", "warned"), [("hush", True), (SECRET, False), ("", False)])
def test_a_short_secret_is_warned_about_once(start: Start, secret: str, warned: bool) -> None:
    hosts = gathered(start, 2, secret=secret)
    said = [line for host in hosts for line in host.said if "token_hex" in line]
    assert len(said) == warned
    assert not any("(--secret) has 4" not in line for line in said)


def test_a_host_nobody_asked_for_is_told_and_does_no_harm(start: Start) -> None:
    leader, stranger = start(1, 2), start(3, 3)
    assert f"refused algo-3: {NO_SEAT}" in str(stranger.failed())
    start(2, 2).gathered()
    leader.gathered()


def test_the_ports_that_hosts_offer_are_in_the_roster(start: Start) -> None:
    offers = [Offer("job", "torchrun", 1, "0.1", 1, ports) for ports in ((21001,), (21002, 21003), ())]
    hosts = [start(number + 1, 3, offer=offer) for number, offer in enumerate(offers)]
    for host in hosts:
        assert [seat.ports for seat in host.gathered().seats] == [(21001,), (21002, 21003), ()]


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stop_while_hosts_are_missing(start: Start, stopped: int) -> None:
    hosts = [start(1, 3), start(2, 3)]
    hosts[1].wait(lambda: "seated" in hosts[1].moments)
    hosts[stopped].stop(15)
    for host in hosts:
        assert_stopped(host, f"algo-{stopped + 1}", 15)


def assert_stopped(host: Any, by: str, signal: int) -> None:
    error = host.failed()
    assert isinstance(error, StoppedEarly), error
    assert (error.host, error.signal, error.code) == (by, signal, 143)


@pytest.mark.parametrize("stopped", [1, 2])
def test_a_stop_waits_for_those_who_come_late(start: Start, stopped: int) -> None:
    hosts = {number: start(number, 3, timeouts=LONG_NOTICE) for number in {1, stopped}}
    hosts[stopped].stop(15)
    # a worker may say so before the leader has heard of it, and a host that comes in between completes the roll call
    hosts[1].wait(lambda: any("telling the others" in line for line in hosts[1].said))
    for number in {1, 2, 3} - {*hosts}:
        hosts[number] = start(number, 3)
    for host in hosts.values():
        assert_stopped(host, f"algo-{stopped}", 15)


@pytest.mark.parametrize(("first", "second"), [(15, 15), (2, 0)])
@pytest.mark.parametrize("number", [1, 2])
def test_what_ends_the_wait(start: Start, number: int, first: int, second: int) -> None:
    """A second signal, and Ctrl-C at once."""
    host = start(number, 3, timeouts=LONG_NOTICE)
    host.stop(first)
    if second:
        host.wait(lambda: any("telling the others" in line for line in host.said))
        host.stop(second)
    assert isinstance(host.failed(), StoppedEarly)


@pytest.mark.parametrize("stopped", [1, 2])
@pytest.mark.parametrize("complete", [True, False])
def test_a_stop_before_the_roll_call_is_told_in_it(start: Start, stopped: int, complete: bool) -> None:
    """A host that was told to stop while its code was made ready; none gets a roster, even when all are here."""
    stop = StoppedEarly(f"algo-{stopped}", 15, "while its code was being made ready")
    timeouts = LONG_NOTICE if complete else TIMEOUTS._replace(stop_notice=3.0)
    others = [start(number, 3, timeouts=timeouts) for number in (1, 2, 3)[: 3 if complete else 2] if number != stopped]
    left = start(stopped, 3, stopped=stop, timeouts=timeouts)
    assert left.failed() is stop
    for host in others:
        assert_stopped(host, f"algo-{stopped}", 15)


def test_stops_of_two_hosts_before_the_roll_call_meet(start: Start) -> None:
    """The deadline of the roll call does not count for them."""
    stops = [StoppedEarly(f"algo-{number}", 15) for number in (1, 2)]
    hosts = [
        start(number, 2, stopped=stop, rollcall_timeout=0.01, timeouts=LONG_NOTICE)
        for number, stop in enumerate(stops, 1)
    ]
    assert [host.failed() for host in hosts] == stops


def test_a_stop_before_the_roll_call_that_nobody_hears(start: Start) -> None:
    for number in (1, 2):
        stop = StoppedEarly(f"algo-{number}", 15)
        assert start(number, 3, stopped=stop).failed() is stop


def test_a_stop_before_the_roll_call(port: int) -> None:
    loop = Loop()
    participant = Participant(("a", "b"), ("a",), "a", Offer("j", "", 1, ""), Settings())
    roll_call = RollCall(loop, participant, print, lambda *a, **k: None, unheld())
    with pytest.raises(StoppedEarly):
        roll_call.report_stop(StoppedEarly("a", 2))
    loop.close()


@pytest.mark.parametrize("secret", ["", SECRET])
def test_a_restarted_host_takes_its_seat_again(start: Start, cable: Any, secret: str) -> None:
    """When the earlier one doesn't answer."""
    leader = start(1, 3, secret=secret, timeouts=TIMEOUTS._replace(sign_of_life=0.3))
    start(2, 3, port=cable.port, secret=secret)
    leader.wait(lambda: "host-here" in leader.moments)
    cable.freeze()
    late = start(2, 3, secret=secret)
    leader.wait(lambda: leader.moments.count("host-here") == 2)
    start(3, 3, secret=secret)
    assert late.gathered().seats == leader.gathered().seats


@pytest.mark.parametrize("secret", ["", SECRET])
@pytest.mark.parametrize(
    ("offer", "said"),
    [
        (OFFER, "refused algo-2: another process has the seat of this host: an earlier start of algo-2 (127.0.0.1)"),
        (OFFER._replace(launcher="ranks"), "refused algo-2: algo-2 would start the launcher ranks, algo-1 torchrun"),
    ],
    ids=["the same command", "another launcher"],
)
def test_a_second_start_gets_no_seat_while_the_first_answers(
    start: Start, secret: str, offer: Offer, said: str
) -> None:
    leader = start(1, 3, secret=secret, timeouts=TIMEOUTS._replace(sign_of_life=EVER))
    early = start(2, 3, secret=secret)
    leader.wait(lambda: "host-here" in leader.moments)
    assert said in str(start(2, 3, secret=secret, offer=offer).failed())
    start(3, 3, secret=secret)
    assert early.gathered().seats == leader.gathered().seats


@pytest.mark.parametrize("secret", ["", SECRET])
def test_of_two_starts_before_the_leader_one_has_the_seat(start: Start, secret: str) -> None:
    starts = [start(2, 3, secret=secret) for _ in range(2)]
    leader = start(1, 3, secret=secret)
    leader.wait(lambda: any(host.error for host in starts))
    start(3, 3, secret=secret)
    (seated,) = (host for host in starts if not host.error)
    assert seated.gathered().seats == leader.gathered().seats


def test_no_port_for_the_framework_ends_it_for_everybody(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_roll_call: RollCall) -> int:
        raise UsageError("--master-port 5000 is taken on algo-1")

    monkeypatch.setattr(RollCall, "_master_port", refuse)
    for host in [start(number, 2) for number in (1, 2)]:
        assert "--master-port 5000 is taken on algo-1" in str(host.failed())


def test_the_port_is_taken(start: Start) -> None:
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        error = start(1, 2, port=port).failed()
    assert isinstance(error, UsageError)
    assert f"--rollcall-port {port} can't be listened on by algo-1 (address already in use)" in str(error)


def run_alone(hosts: tuple[str, ...], settings: Settings, me: str = "algo-1", **seams: Any) -> Any:
    loop = Loop()
    offer = Offer("job", "torchrun", 2, "0.1", ports=(21001,))
    participant = Participant(hosts, hosts[:2], me, offer, settings)
    ports = unheld(seams.pop("port_is_free", None))
    roll_call = RollCall(loop, participant, print, lambda *a, **k: None, ports, seams=Seams(**seams))
    try:
        roster, peers = roll_call.run()
        peers.close()
        return roster
    finally:
        loop.close()


def test_one_host_listens_on_nothing(port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("", port))
        taken.listen()
        roster = run_alone(("algo-1",), Settings(rollcall_port=port))
    assert (roster.world_size, roster.master_address, roster.node_rank) == (2, "127.0.0.1", 0)


def test_any_free_port_is_no_port_to_meet_at() -> None:
    with pytest.raises(UsageError, match="--rollcall-port 0"):
        run_alone(("algo-1", "algo-2"), Settings(rollcall_port=0))


@pytest.mark.parametrize(("wanted", "expected"), [(None, 7777), (5000, 5000)], ids=["default", "given"])
def test_the_master_port(wanted: int | None, expected: int) -> None:
    roster = run_alone(("algo-1",), Settings(master_port=wanted), port_is_free=lambda port: port == expected)
    assert roster.master_port == expected
