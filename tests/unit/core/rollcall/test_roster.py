"""Who is here, in rank order; on its way it stays the same, and garbage is a ValueError."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.channel import wire
from musterpoint.core.channel.session import random_token
from musterpoint.core.channel.topic import World
from musterpoint.core.channel.topics.attempts import NextAttempt
from musterpoint.core.job.model import EntryPoint, Job, Role, UnnamedHosts
from musterpoint.core.rollcall.hello import Hello, check_offer, validate
from musterpoint.core.rollcall.roster import Offer, Roster, Seat

SEATS = (
    Seat("algo-1", "10.0.0.1", 4),
    Seat("algo-2", "10.0.0.2", 0, grouped=False),
    Seat("algo-10", "10.0.0.3", 2, ports=(7777, 21000)),
)
ROSTER = Roster("job", "session", SEATS, "10.0.0.1", 7777, "algo-10")


def test_ranks_follow_the_group() -> None:
    assert [seat.name for seat in ROSTER.group] == ["algo-1", "algo-10"]
    assert (ROSTER.world_size, ROSTER.node_rank, ROSTER.first_rank, ROSTER.seat) == (6, 1, 4, SEATS[2])
    outside = ROSTER._replace(me="algo-2")
    assert (outside.node_rank, outside.first_rank) == (-1, 0)


def test_its_summary_says_what_world_it_is() -> None:
    even = ROSTER._replace(seats=(SEATS[0], SEATS[2]._replace(slots=4)))
    assert even.summary("torchrun") == "2 hosts are here: launcher torchrun, 8 ranks (4 each)"
    one = even._replace(seats=tuple(seat._replace(slots=int(seat == even.seats[0])) for seat in even.seats))
    assert one.summary("ray") == f"2 hosts are here: launcher ray, 1 rank (1 on {one.seats[0].name})"
    assert ROSTER.summary("ranks") == (
        "2 hosts are here: launcher ranks, 6 ranks (4 on algo-1, 2 on algo-10); 1 more outside the group"
    )


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ([2, 2, 1, 2], "2 each, but 1 on h3"),
        ([0, 0, 4], "4 on h3"),
        ([1, 2, 3, 4, 5, 6], "1 on h1, 2 on h2, 3 on h3, 4 on h4, and others on 2 more"),
        ([8, 8, 8], "8 each"),
    ],
)
def test_hosts_that_differ_are_named(slots: list[int], words: str) -> None:
    seats = tuple(Seat(f"h{place}", "10.0.0.1", count) for place, count in enumerate(slots, 1))
    assert f" ({words})" in Roster("job", "s", seats, "10.0.0.1", 1, "h1").summary("ranks")


NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=8)
COUNTS = st.integers(0, 65535)
PORTS = st.lists(st.integers(1, 65535), max_size=3).map(tuple)
KEYS = st.just("") | st.from_regex(r"ssh-ed25519 [A-Za-z0-9+/]{1,68}", fullmatch=True)
ROLE = {"role": st.just(""), "role_ports": st.lists(NAMES, max_size=2).map(tuple), "launcher": NAMES}
SEAT = st.builds(Seat, NAMES, NAMES, COUNTS, st.booleans(), NAMES, COUNTS, PORTS, KEYS, **ROLE)
TABLES = st.lists(SEAT, min_size=1, max_size=4, unique_by=lambda seat: seat.name)


@given(TABLES, st.text(max_size=8), NAMES, NAMES, st.integers(1, 65535))
def test_it_survives_the_wire(seats: list[Seat], job: str, session: str, address: str, port: int) -> None:
    roster = Roster(job, session, tuple(seats), address, port, seats[-1].name)
    assert Roster.from_wire(json.loads(json.dumps(roster.to_wire())), seats[-1].name) == roster


WRONG: list[dict[str, Any]] = [
    {"seats": 3}, {"seats": [[]]}, {"master_port": None}, {"seats": []}, {"master_port": "7777"},
    {"master_port": float("inf")}, {"job": 1}, {"session": None}, {"master_address": ["10.0.0.1"]},
    {"seats": [[["algo-10"], "10.0.0.3", 2]]}, {"seats": [["algo-10", "10.0.0.3", "2"]]},
    {"seats": [["algo-10", "10.0.0.3", True]]}, {"seats": [["algo-10", None, 2]]},
    {"seats": [["algo-10", "10.0.0.3", 2, "yes"]]}, {"seats": [["algo-10", "10.0.0.3", 2, True, "", 1, "more"]]},
    {"seats": [["algo-10", "10.0.0.3", 2, True, "", 1, [], "", "policy", [], "ranks", "more"]]},
    {"seats": [["algo-10", "10.0.0.3", 2, True, "", 1, [], "", "policy", [8000], "ranks"]]},
    {"leading_host": 1}, {"leading_port": "7777"},
    *({"seats": [["algo-10", "10.0.0.3", 2, True, "", 1, [], key]]} for key in
      ("ssh-rsa AAAA", "ssh-ed25519 ", "ssh-ed25519 A\nssh-ed25519 B", "ssh-ed25519 A,", "ssh-ed25519 " + "A" * 300)),
    {"seats": [{"name": "algo-10", "address": "10.0.0.3", "slots": 2}]}, {"master_port": 0}, {"master_port": 65536},
    {"seats": [["algo-10", "10.0.0.3", -1]]}, {"seats": [["algo-10", "10.0.0.3", 10**30]]},
    {"seats": [["algo-10", "10.0.0.3", 1, True, "\x1b[2J"]]}, {"master_address": "a\nb"}, {"session": "\ud800"},
    {"seats": [["algo-10", "10.0.0.3", 2], ["algo-10", "10.0.0.4", 2]]},
    {"seats": [["algo-10", "10.0.0.3", 1, True, "", -1]]},
    *({"seats": [["algo-10", "10.0.0.3", 2, True, "", 1, ports]]} for ports in
      ("", {}, None, 7777, [7777.0], [True], [-1], [0], [65536], [70000], [None], [[7777]], ["7777"], [21000] * 65)),
]  # fmt: skip


@pytest.mark.parametrize("change", WRONG, ids=repr)
def test_what_is_no_roster(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="roster"):
        Roster.from_wire({**ROSTER.to_wire(), **change}, "algo-10")


def test_a_million_ports_are_no_seat() -> None:
    seats = [["algo-10", "10.0.0.3", 2, True, "", 1, [21000] * 10**6]]
    with pytest.raises(ValueError, match="the ports of algo-10"):
        Roster.from_wire({**ROSTER.to_wire(), "seats": seats}, "algo-10")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just("algo-10"),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(sorted(ROSTER.to_wire()))


@given(JSON | st.dictionaries(KEYS, JSON).map(lambda change: {**ROSTER.to_wire(), **change}))
def test_garbage_is_a_value_error_and_nothing_else(garbage: Any) -> None:
    try:
        roster = Roster.from_wire(garbage, "algo-10")
    except ValueError:
        return
    assert roster.seat.name == "algo-10"
    assert roster.world_size == sum(seat.slots for seat in roster.group)
    assert 0 <= roster.first_rank <= roster.world_size


OFFER = Offer("job", "torchrun", 2, "0.1")
HELLO = Hello("algo-2", Offer("job", "torchrun", 8, "0.1", 8, (7777, 21000)), "abc", ("10.0.0.1",), "10.0.0.1", "nonce")


def as_sent(frame: bytes) -> dict[str, Any]:
    return wire.unpack(frame[4:])


def test_hosts_that_have_read_other_roles_or_none_are_refused() -> None:
    """A host that can't run its part has read none, and says why."""
    offer = OFFER._replace(roles="abc", role="trainer")
    for roles, said in (("abc", ""), ("abd", "other roles than"), ("", "no roles, unlike")):
        hello = HELLO._replace(offer=offer._replace(roles=roles), nonce="")
        refused = check_offer(hello, "algo-1", offer, False, False)
        assert (said in refused.reason and refused.usage) if refused else not said
    assert (
        check_offer(HELLO._replace(offer=Offer("job", "", 0, "0.1"), nonce=""), "algo-1", offer, False, False) is None
    )


def test_a_hello_survives_the_wire() -> None:
    assert Hello.from_wire(as_sent(HELLO.pack())) == HELLO


@pytest.mark.parametrize(
    "key", ["host", "job", "launcher", "slots", "version", "room", "ports", "incarnation", "sees", "protocol"]
)
@pytest.mark.parametrize("value", [None, {}, -1])
def test_a_bad_hello_is_a_wire_error(key: str, value: object) -> None:
    with pytest.raises(wire.WireError):
        Hello.from_wire({**as_sent(HELLO.pack()), key: value})


OFFERED: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("ports", {"ports": (7777,)}, [
        "7777", 7777, [7777.0], [True], [-1], [0], [65536], [70000], [None], [[7777]], ["7777"], [21000] * 65,
    ]),
    ("ssh_key", {"ssh_key": "ssh-ed25519 AAAAC3Nz+/="},
     ["ssh-rsa AAAA", "ssh-ed25519 A\ncommand=x", 7, "ssh-ed25519 " + "A" * 300]),
    ("libraries", {"libraries": ("NCCL=2.27.3",)}, ["NCCL", [1], ["x" * 129], ["NCCL=1"] * 17, None]),
    ("place_in_network", {"place": "s0.s4.algo-2"}, ["x" * 513, 7, None]),
]  # fmt: skip
"""A key of the message, what an offer may have there, and what none has."""


@pytest.mark.parametrize(("key", "right", "wrong"), OFFERED)
def test_what_is_offered_survives_the_wire_and_else_is_refused(key: str, right: Any, wrong: list[Any]) -> None:
    told = HELLO._replace(offer=HELLO.offer._replace(**right))
    assert Hello.from_wire(as_sent(told.pack())) == told
    for value in wrong:
        with pytest.raises(wire.WireError, match=key):
            Hello.from_wire({**as_sent(HELLO.pack()), key: value})


def test_a_million_ports_are_no_hello() -> None:
    frames = wire.Frames(wire.HELLO_LIMIT)
    frames.feed(HELLO._replace(offer=HELLO.offer._replace(ports=(21000,) * 10**6)).pack())
    with pytest.raises(wire.WireError, match="at most 16384"):
        frames.next()


def test_a_usual_hello_is_small() -> None:
    assert len(HELLO._replace(nonce=random_token(), incarnation=random_token()).pack()) < 400


def test_of_another_protocol_only_the_number_counts() -> None:
    hello = Hello.from_wire({"t": "hello", "protocol": 99, "host": "algo-2", "new": "field"})
    assert (hello.host, hello.protocol) == ("algo-2", 99)


PLAIN = Hello("algo-2", OFFER, "one")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"secret": True}, "algo-1 has a secret and algo-2 has none (--secret, MUSTER_SECRET)"),
        ({"stop": 15}, ""),
        ({"protocol": 999}, "algo-2 speaks protocol 999, algo-1 protocol"),
        ({"host": "algo-1"}, "algo-1 is the leader itself: two hosts have this name"),
        ({"host": "algo-9"}, "algo-9 is not one of the 3 hosts of job"),
        ({"nonce": "abc"}, "algo-2 has a secret and algo-1 has none (--secret, MUSTER_SECRET)"),
        ({"offer": OFFER._replace(job="other")}, "algo-2 belongs to job 'other', algo-1 to 'job'"),
        ({"offer": OFFER._replace(launcher="mpi")}, "algo-2 would start the launcher mpi, algo-1 torchrun"),
        ({"offer": OFFER._replace(launcher="")}, ""),
        ({"host": "algo-3", "offer": OFFER._replace(launcher="script")}, ""),
    ],
)
def test_what_is_said(changes: dict[str, object], words: str) -> None:
    others, grouped = frozenset({"algo-2", "algo-3"}), frozenset({"algo-1", "algo-2"})
    hello = PLAIN._replace(**{key: value for key, value in changes.items() if key != "secret"})
    said = validate(hello, "algo-1", OFFER, others, grouped, "secret" in changes)
    assert (said.reason if said else "").startswith(words) and bool(said) == bool(words)


@pytest.mark.parametrize("evil", ["\x1b[2J", "a\nmusterpoint: all is well", "\u202e", "x" * 300])
@pytest.mark.parametrize(
    "changes", [{"host": "algo-9"}, {"protocol": 7}, {"nonce": "n"}, {"launcher": ""}, {}], ids=repr
)
def test_nobody_hears_or_reads_the_callers_own_words(changes: dict[str, object], evil: str) -> None:
    offer = OFFER._replace(**({"launcher": evil} if "launcher" in changes else {"job": evil}))
    hello = PLAIN._replace(offer=offer, **{key: value for key, value in changes.items() if key != "launcher"})
    said = validate(hello, "algo-1", OFFER, frozenset({"algo-2"}), frozenset({"algo-2"}), secret=False)
    assert said is not None
    assert evil not in said.answer + said.claim
    assert "job" not in said.answer.replace("this job", "").replace("the job", "")
    assert said.reason.isprintable()
    assert len(said.reason) < 500


ROLES = Roster(
    "job", "session",
    (Seat("algo-1", "10.0.0.1", 4, role="policy", role_ports=("policy=7801",)),
     Seat("algo-2", "10.0.0.2", 2, role="trainer", role_ports=("reward=7802",)),
     Seat("algo-3", "10.0.0.3", 1, role="trainer", role_ports=("reward=7999",))),
    "10.0.0.2", 7777, "algo-3", leading_host="algo-2", leading_port=7777,
)  # fmt: skip
TRAINER = Role("trainer", ("algo-2", "algo-3"))
OF_ROLES = Job(
    "plain", "job", ("algo-1", "algo-2", "algo-3"), "algo-3", TRAINER.hosts, EntryPoint("train.py"),
    roles=(Role("policy", ("algo-1",), ends="with"), TRAINER, TRAINER._replace(name="reward", beside="trainer")),
    leads="trainer",
)  # fmt: skip


def test_a_role_is_a_world_of_its_own() -> None:
    assert (ROLES.leader, ROLES.world_size, ROLES.node_rank, ROLES.first_rank) == ("algo-2", 3, 1, 2)
    policy = ROLES.seen_by("policy")
    assert (policy.me, policy.master_address, policy.master_port) == ("algo-1", "10.0.0.1", 7801)
    assert (policy.leader, policy.world_size, policy.node_rank, policy.first_rank) == ("algo-2", 4, 0, 0)
    trainer = policy.seen_by("trainer")
    assert (trainer.me, trainer.master_address, trainer.master_port) == ("algo-2", "10.0.0.2", 7777)
    assert ROLES.seen_by("reward") == ROLES.seen_by("") == ROLES  # nobody's own
    assert ROLES.all_ranks == {"algo-1": range(4), "algo-2": range(2), "algo-3": range(2, 3)}


def test_each_role_has_a_port_of_its_first_host() -> None:
    for me in ("algo-1", "algo-2", "algo-3"):
        seen = ROLES._replace(me=me)
        assert [seen.port_of(OF_ROLES, name) for name in ("policy", "trainer", "reward")] == [7801, 7777, 7802]


def test_a_job_with_roles_gets_the_names_that_the_roll_call_learned() -> None:
    labels = {"algo-1": "node-0", "algo-2": "node-1", "algo-3": "node-2"}
    unnamed = OF_ROLES._replace(
        hosts=tuple(labels.values()), group_hosts=("node-1", "node-2"), current_host="node-2",
        roles=tuple(role._replace(hosts=tuple(labels[host] for host in role.hosts)) for role in OF_ROLES.roles),
        unnamed=UnnamedHosts(3, 2, "10.0.0.1"),
    )  # fmt: skip
    assert ROLES.settled(unnamed) == OF_ROLES
    assert ROLES.settled(OF_ROLES) == OF_ROLES
    given = tuple(World(role.name, frozenset(role.hosts), beside=role.beside) for role in unnamed.roles)
    named = {world.name: world.hosts for world in ROLES.worlds(given)}
    assert named == {role.name: frozenset(role.hosts) for role in OF_ROLES.roles}


def test_another_attempt_has_another_port_for_the_role_that_leads_alone() -> None:
    attempt = NextAttempt(1, 8888, ())
    assert ROLES.next(attempt).master_port == 8888
    policy = ROLES.seen_by("policy").next(attempt)
    assert (policy.master_port, policy.port_of(OF_ROLES, "trainer")) == (7801, 8888)


def test_roles_survive_the_wire() -> None:
    assert Roster.from_wire(json.loads(json.dumps(ROLES.to_wire())), "algo-3") == ROLES


def test_the_summary_of_roles_names_their_hosts_and_launchers() -> None:
    seats = tuple(seat._replace(launcher="script" if seat.role == "policy" else "torchrun") for seat in ROLES.seats)
    assert ROLES._replace(seats=seats).summary("torchrun") == (
        "3 hosts are here: policy on algo-1 (script, 4 ranks); trainer on algo-2 to algo-3 (torchrun, 3 ranks)"
    )
