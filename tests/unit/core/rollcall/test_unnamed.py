"""The roll call of hosts that the platform counts but doesn't name, with real hosts on loopback."""

from __future__ import annotations

import socket
from typing import Any, Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from musterpoint.base.errors import RollCallError, StoppedEarly, UsageError
from musterpoint.core.channel import wire
from musterpoint.core.channel.peers import PeerLost
from musterpoint.core.job.model import UnnamedHosts
from musterpoint.core.rollcall.hello import EXPANDED, NO_SEAT, PLACE_TAKEN, STARTED_TWICE, TOO_MANY, Hello
from musterpoint.core.rollcall.roster import Offer
from musterpoint.core.rollcall.unnamed_seats import unique_names

from ....ports import free_port
from ...meeting import EVER, LONG_NOTICE, OFFER, TIMEOUTS, Host, all_done, connect, read_to_end

SECRET = "an example of a secret"
SECRETS = pytest.mark.parametrize("secret", ["", SECRET], ids=["no secret", "secret"])
Begin = Callable[..., Host]
ELSEWHERE = {"elsewhere": ("127.0.0.1",)}


@pytest.fixture
def begin(port: int) -> Iterator[Begin]:
    """``begin(name, nnodes, node_rank, **options)`` starts a host that calls itself ``name``."""
    hosts: list[Host] = []

    def begin(name: str, nnodes: int, node_rank: int | None, leader: str = "127.0.0.1", **options: Any) -> Host:
        unnamed = UnnamedHosts(nnodes, node_rank, leader, name=name)
        placeholders = tuple(f"node-{rank}" for rank in range(nnodes))
        options.setdefault("addresses", {})
        hosts.append(Host(name, placeholders, options.pop("port", port), unnamed=unnamed, **options))
        return hosts[-1]

    yield begin
    for host in reversed(hosts):
        host.give_up()


@SECRETS
def test_seats_go_by_node_rank_and_names_come_from_the_hosts(begin: Begin, secret: str) -> None:
    hosts = [begin(name, 3, rank, secret=secret) for name, rank in (("zeta", 2), ("alpha", 0), ("mid", 1))]
    rosters = [host.gathered() for host in hosts]
    assert {roster.seats for roster in rosters} == {rosters[0].seats}
    assert [seat.name for seat in rosters[0].seats] == ["alpha", "mid", "zeta"]
    assert [(roster.me, roster.node_rank) for roster in rosters] == [("zeta", 2), ("alpha", 0), ("mid", 1)]
    assert {roster.master_address for roster in rosters} == {"127.0.0.1"}
    warned = [text for host in hosts for text in host.warnings]
    assert [text.count("set MUSTER_SECRET") for text in warned] == ([] if secret else [1])
    all_done(hosts)


@SECRETS
def test_without_node_ranks_who_has_the_leaders_address_leads(begin: Begin, secret: str) -> None:
    """All of these have it; one of them gets the port, and the others find it taken."""
    hosts = [begin("twin", 3, None, secret=secret) for _ in range(3)]
    rosters = [host.gathered() for host in hosts]
    assert sorted(roster.me for roster in rosters) == ["twin-0", "twin-1", "twin-2"]
    assert {roster.seats for roster in rosters} == {rosters[0].seats}
    assert sorted(roster.node_rank for roster in rosters) == [0, 1, 2]
    assert not any(host.has(PeerLost) for host in hosts)


def clash(newcomer: str, place: int, holder: str) -> str:
    return f"{newcomer} has node rank {place}, which {holder} has, too: give every host its own --node-rank; {EXPANDED}"


DIFFERENT = pytest.mark.parametrize(
    ("place", "nnodes", "said"),
    [
        (1, 3, clash("other (127.0.0.1)", 1, "first (127.0.0.1)")),
        (None, 3, "head has a node rank (--node-rank) and other has none: give one to every host, or to none"),
        (2, 4, "other counts 4 hosts (--nnodes), head counts 3: give all hosts the same number"),
    ],
)


@DIFFERENT
def test_what_does_not_fit_ends_the_roll_call_at_both_ends(
    begin: Begin, place: int | None, nnodes: int, said: str
) -> None:
    leader, first = begin("head", 3, 0, secret=SECRET), begin("first", 3, 1, secret=SECRET)
    leader.wait(lambda: "host-here" in leader.moments)
    # by its name that is a worker's place, since this host has the leader's address as well
    other = begin("other", nnodes, place, secret=SECRET)
    for host in (leader, first, other):
        failure = host.failed()
        assert isinstance(failure, UsageError)
        assert said in str(failure), host.me


@DIFFERENT
def test_without_a_secret_it_ends_its_own_call_only(begin: Begin, place: int | None, nnodes: int, said: str) -> None:
    """Anybody in the network can say so: the leader's log tells of it, the caller learns nothing of the job."""
    leader, first = begin("head", 3, 0), begin("first", 3, 1)
    leader.wait(lambda: "host-here" in leader.moments)
    failure = str(begin("other", nnodes, place).failed())
    assert not any(word in failure for word in ("first", "head", "--nnodes", "--node-rank", " 3")), failure
    leader.wait(lambda: f"warning: a caller at 127.0.0.1 was refused: {said}" in leader.said)
    begin("second", 3, 2)
    for host in (leader, first):
        assert [seat.name for seat in host.gathered().seats] == ["head", "first", "second"]


STRANGERS = st.builds(
    Hello,
    st.sampled_from(["evil", "head", "first", "node-1"]),
    st.builds(
        Offer, st.sampled_from(["job", "another"]), st.sampled_from(["torchrun", "mpi", ""]), st.integers(0, 9),
        st.just("0.1"), st.integers(0, 9),
    ),
    st.sampled_from(["abc", "def"]),
    nnodes=st.sampled_from([0, 1, 2, 3, 65536]),
    place=st.sampled_from([-1, 0, 2, 7, 65536]),
    nonce=st.sampled_from(["", "abc"]),
)  # fmt: skip


@given(st.lists(STRANGERS, min_size=4, max_size=12))
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_strangers_frame_ends_the_roll_call_or_is_told_anything(strangers: list[Hello]) -> None:
    port = free_port()
    unnamed = [UnnamedHosts(2, rank, "127.0.0.1", name=name) for rank, name in enumerate(("head", "first"))]
    leader = Host("head", ("node-0", "node-1"), port, unnamed=unnamed[0], addresses={})
    hosts = [leader]
    try:
        leader.wait(lambda: leader.said)
        for hello in strangers:
            with connect(port) as sock:
                sock.sendall(hello.pack())
                sock.shutdown(socket.SHUT_WR)
                told = read_to_end(sock)
            assert not any(word in told for word in (b"head", b"slots", b"--n", b"PET_", b"torchrun")), told
        hosts.append(Host("first", ("node-0", "node-1"), port, unnamed=unnamed[1], addresses={}))
        assert [seat.name for seat in leader.gathered().seats] == ["head", "first"]
        assert len(leader.said) < 16
    finally:
        for host in reversed(hosts):
            host.give_up()


def test_a_node_rank_beyond_the_last_is_told_to_all(begin: Begin) -> None:
    leader, other = begin("head", 2, 0, secret=SECRET), begin("other", 2, 2, secret=SECRET)
    assert "other has node rank 2 (--node-rank), and of 2 hosts the last has 1" in str(leader.failed())
    failure = other.failed()
    assert isinstance(failure, UsageError)
    assert str(failure) == "--node-rank is 2, and there are 2 hosts (--nnodes): node ranks go from 0 to 1"


def test_a_node_rank_beyond_the_last_does_not_wait_long_for_a_leader(begin: Begin) -> None:
    assert isinstance(begin("other", 2, 2).failed(), UsageError)


def test_another_job_at_the_same_port_is_told_and_nobody_ends(begin: Begin) -> None:
    leader = begin("head", 2, 0)
    leader.wait(lambda: leader.said)
    other = begin("other", 2, 1, offer=Offer("another", "torchrun", 2, "0.1", 2))
    said = "other belongs to job 'another', head to 'job'"
    assert NO_SEAT in str(other.failed())
    leader.wait(lambda: f"warning: a caller at 127.0.0.1 was refused: {said}" in leader.said)
    begin("first", 2, 1).gathered()
    assert leader.gathered().seats[1].name == "first"


@SECRETS
def test_a_host_too_many_is_refused_and_the_job_goes_on(begin: Begin, secret: str) -> None:
    hosts = [begin("head", 2, 0, secret=secret), begin("first", 2, 1, secret=secret)]
    for host in hosts:
        host.gathered()
    said = clash("late (127.0.0.1)", 1, "first (127.0.0.1)")
    failure = begin("late", 2, 1, secret=secret).failed()
    assert isinstance(failure, UsageError)
    assert (said if secret else PLACE_TAKEN) in str(failure)
    assert "asked-for-a-sign" not in hosts[0].moments
    hosts[0].wait(lambda: f"warning: a caller at 127.0.0.1 was refused: {said}" in hosts[0].said)
    all_done(hosts)


def test_by_arrival_a_host_too_many_is_refused(begin: Begin) -> None:
    hosts = [begin(name, 2, None) for name in ("one", "two")]
    for host in hosts:
        host.gathered()
    assert TOO_MANY in str(begin("three", 2, None).failed())
    said = "three is one host too many: all 2 hosts (--nnodes) are here"
    leader = next(host for host in hosts if any("MUSTER_SECRET" in text for text in host.said))
    leader.wait(lambda: any(said in text for text in leader.said))


@SECRETS
@pytest.mark.parametrize("started", [False, True], ids=["before the roster", "after it"])
@pytest.mark.parametrize("name", ["head", "first"])
def test_a_second_start_of_a_host_is_refused_alone(begin: Begin, secret: str, started: bool, name: str) -> None:
    hosts = [begin("head", 3, 0, secret=secret), begin("first", 3, 1, secret=secret)]
    hosts[0].wait(lambda: "host-here" in hosts[0].moments)
    if started:
        hosts.append(begin("second", 3, 2, secret=secret))
        hosts[0].gathered()
    again = begin(name, 3, ("head", "first").index(name), secret=secret)
    failure = str(again.failed())
    if name == "head":  # it finds its port taken
        said = "an earlier start of head leads this job already"
        assert "can't be listened on" in failure
    else:
        held = "another process has the seat of this host: an earlier start of first (127.0.0.1), which answers"
        said = "this job has already started with an earlier start of first (127.0.0.1)" if started else held
        assert (said if secret else STARTED_TWICE) in failure
        assert isinstance(again.error, RollCallError)
    hosts[0].wait(lambda: f"warning: a caller at 127.0.0.1 was refused: {said}" in hosts[0].said)
    if not started:
        hosts.append(begin("second", 3, 2, secret=secret))
    for host in hosts:
        assert [seat.name for seat in host.gathered().seats] == ["head", "first", "second"]
    all_done(hosts)


def test_by_arrival_a_second_start_when_all_are_here_is_refused_alone(begin: Begin, cable: Any) -> None:
    """It claims the seat of the first while the last host comes."""
    times = TIMEOUTS._replace(sign_of_life=EVER)
    leader = begin("head", 3, None, secret=SECRET, timeouts=times)
    leader.wait(lambda: "rollcall-started" in leader.moments and bool(leader.said))
    first = begin("first", 3, None, "elsewhere", port=cable.port, secret=SECRET, addresses=ELSEWHERE)
    leader.wait(lambda: "host-here" in leader.moments)
    cable.freeze()
    again = begin("first", 3, None, secret=SECRET)
    again.wait(lambda: any("waits" in text for text in again.said))
    last = begin("second", 3, None, secret=SECRET)
    leader.wait(lambda: leader.moments.count("host-here") == 2)
    cable.plug()
    assert "first is one host too many: all 3 hosts (--nnodes) are here" in str(again.failed())
    hosts = [leader, first, last]
    for host in hosts:
        assert [seat.name for seat in host.gathered().seats] == ["head", "first", "second"]
    all_done(hosts)


@SECRETS
def test_a_session_goes_on_after_the_connection_ended(begin: Begin, cable: Any, secret: str) -> None:
    leader = begin("head", 2, 0, secret=secret)
    worker = begin("first", 2, 1, "elsewhere", port=cable.port, secret=secret, addresses=ELSEWHERE)
    worker.gathered()
    cable.snap()
    worker.wait(lambda: "session-resumed" in worker.moments)
    all_done((leader, worker))


@SECRETS
@pytest.mark.parametrize("place", [1, None])
def test_a_host_started_anew_gets_its_place_when_the_earlier_one_is_silent(
    begin: Begin, cable: Any, secret: str, place: int | None
) -> None:
    times = TIMEOUTS._replace(sign_of_life=0.3)
    leader = begin("head", 3, None if place is None else 0, secret=secret, timeouts=times)
    leader.wait(lambda: leader.said)
    begin("first", 3, place, "elsewhere", port=cable.port, secret=secret, addresses=ELSEWHERE, timeouts=times)
    leader.wait(lambda: "host-here" in leader.moments)
    cable.freeze()
    again = begin("first", 3, place, secret=secret, timeouts=times)
    leader.wait(lambda: leader.moments.count("host-here") > 1)
    begin("second", 3, place and 2, secret=secret)
    assert [seat.name for seat in again.gathered().seats] == ["head", "first", "second"]


def hello(**changed: Any) -> bytes:
    message = wire.unpack(Hello("evil", OFFER, "abc", nnodes=2, place=1).pack()[wire.HEAD :])
    return wire.pack("hello", **{name: value for name, value in {**message, **changed}.items() if name != "t"})


HOSTILE = [
    hello(place=-2), hello(place=2**60), hello(place="1"), hello(place=None), hello(nnodes=0), hello(nnodes=-1),
    hello(nnodes=True), hello(nnodes=[]), hello(host="node rank 1"), hello(host="\x1b[2J"), hello(protocol=1),
    hello(incarnation=""),
    wire.pack("resume", protocol=wire.PROTOCOL, host="node-1", session="s", token="t", got=0, nonce=""),
]  # fmt: skip


@pytest.mark.parametrize("started", [False, True], ids=["before the roster", "after it"])
def test_hostile_hellos_take_no_seat_and_end_nothing(begin: Begin, started: bool) -> None:
    leader = begin("head", 2, 0)
    leader.wait(lambda: leader.said)
    hosts = [leader, *([begin("first", 2, 1)] if started else [])]
    if started:
        leader.gathered()
    for number, message in enumerate(HOSTILE):
        with connect(leader.port) as sock:
            sock.sendall(message)
            sock.shutdown(socket.SHUT_WR)
            read_to_end(sock)
        assert leader.error is None, number
    if not started:
        hosts.append(begin("first", 2, 1))
    assert [seat.name for seat in leader.gathered().seats] == ["head", "first"]
    assert "internal-error" not in leader.moments
    assert all(text.isprintable() for text in leader.said)
    for host in hosts:
        host.gathered()
    all_done(hosts)


@pytest.mark.parametrize("seat", [0, 2, -1, "1", None])
def test_a_welcome_without_a_seat_is_passed_by(begin: Begin, port: int, seat: Any) -> None:
    """What leads there is no leader of this job; the worker calls again, and the real one has come meanwhile."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        worker = begin("first", 2, 1)
        with listener.accept()[0] as sock:
            sock.sendall(wire.pack("welcome", host="head", job="job", token="t", answer="a", seat=seat))
            read_to_end(sock)
    leader = begin("head", 2, 0)
    assert worker.gathered().seats == leader.gathered().seats


def test_a_stop_before_the_roster_names_the_host(begin: Begin) -> None:
    leader = begin("head", 3, 0, timeouts=LONG_NOTICE)
    first = begin("first", 3, 1, timeouts=LONG_NOTICE)
    leader.wait(lambda: "host-here" in leader.moments)
    first.stop(15)
    leader.wait(lambda: any("telling the others" in text for text in leader.said))
    late = begin("late", 3, 2, timeouts=LONG_NOTICE)
    for host in (leader, first, late):
        failure = host.failed()
        assert isinstance(failure, StoppedEarly)
        assert failure.host == "first", host.me


def test_a_leader_that_nobody_reaches_is_named_with_its_option(begin: Begin) -> None:
    worker = begin(
        "first", 2, 1, leader="head.example", addresses={"head.example": ("127.0.0.1",)}, rollcall_timeout=1.0
    )
    lines = str(worker.failed()).splitlines()
    assert lines[0] == "the roll call's 1 s are over, and first has no roster from head.example"
    assert lines[2].startswith("head.example  connect  127.0.0.1 port ")
    assert lines[-2].endswith("as --rollcall-leader says on first: it is the host with node rank 0")
    assert "of head.example" in lines[-1] and "--rollcall-port" in lines[-1]


def test_a_leaders_name_that_stays_unknown(begin: Begin) -> None:
    host = begin(
        "first", 2, None, leader="nowhere.invalid", rollcall_timeout=1.0, timeouts=TIMEOUTS._replace(progress=0.2)
    )
    failure = host.failed()
    assert isinstance(failure, RollCallError)
    said = str(failure)
    assert said.startswith("the roll call's 1 s are over, and the leader's name (--rollcall-leader) is not known here")
    assert "nowhere.invalid: the name does not resolve" in said


@pytest.mark.parametrize(
    ("said", "unique"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", "b"], ["a-0", "a-1", "b"]),
        (["A", "a"], ["A-0", "a-1"]),
        (["a", "a", "a-1"], ["a-0", "a-1-1", "a-1"]),
    ],
)
def test_names_that_are_alike_get_their_places(said: list[str], unique: list[str]) -> None:
    assert unique_names(said) == tuple(unique)
