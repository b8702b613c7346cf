"""Histories of failures and hosts against the root cause they must lead to."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base import exit_codes
from musterpoint.base.failure import Failure, Kind, Secondary
from musterpoint.base.failure import lost_host as lost
from musterpoint.core.channel.root_cause import (
    Announce,
    AskRaised,
    Decision,
    Hurry,
    RootCauseFinder,
    loss_by_silence,
    root_cause_without_leader,
)

BOOM = Failure("algo-2", 7, "user", "user", "ValueError: boom")
LATER = Failure("algo-4", 3, "user", "user", "KeyError: 'x'")
RESET = Failure("algo-1", 1, "user", "peer", "connection reset by peer")
ABORT = Failure("algo-3", 1, "user", "peer", "NCCL abort")

RAISED = Failure("algo-2", 1, "user", "user", "LookupError: no such shard", 3, 1, at=5.0, ending=True)
ENDED, READ = RAISED._replace(ending=False), RAISED._replace(second_hand=True)
SAME = LATER._replace(reason=RAISED.reason)
CLOSED = Failure("algo-1", 1, "user", "user", "EOFError: Ran out of input", 0, 0, inside="gather", lost_connection=True)
KILLED = Failure("algo-2", 137, "user", "infra", "rank 3 was killed by SIGKILL", 3, 1, signal=9)
GONE = lost("algo-2", "gone")
WHILE_READ = [("failed", READ, 1.0), ("failed", RESET, 1.1), ("tick", 4.0)]


def play(*steps: tuple[object, ...], opaque: str = "") -> list[Decision]:
    """Each step is a method's name and its arguments; on the hosts ``opaque`` programs start ranks by themselves."""
    finder = RootCauseFinder(2.0, 35.0, opaque.split())
    actions: list[Decision] = []
    for name, *arguments in steps:
        actions += until(finder, arguments[0]) if isinstance(arguments[0], float) else []
        actions += getattr(finder, str(name))(*arguments) or []
    return [action for action in actions if not isinstance(action, AskRaised)]


def until(finder: RootCauseFinder, now: float) -> list[Decision]:
    """What is due before ``now``."""
    actions: list[Decision] = []
    while finder.due is not None and finder.due < now:
        actions += finder.tick(finder.due)
    return actions


def test_hosts_are_asked_for_a_rank_that_has_raised_where_nothing_explains_a_symptom() -> None:
    finder = RootCauseFinder(2.0)
    assert finder.failed(RESET, 1.0) == []
    assert finder.due == 2.5
    assert finder.tick(2.5) == [AskRaised()]
    assert finder.due == 3.0
    assert finder.failed(RAISED, 2.9) == [Announce(RAISED, Secondary(lost=1))]


HISTORIES: dict[str, tuple[list[tuple[object, ...]], list[Decision]]] = {
    "the first cause wins": (
        [("failed", BOOM, 1.0), ("failed", LATER, 1.0), ("tick", 9.0)], [Announce(BOOM, Secondary())]),
    "a symptom waits for the cause": (
        [("failed", RESET, 1.0), ("failed", ABORT, 1.5), ("tick", 2.9), ("failed", BOOM, 2.95), ("tick", 9.0)],
        [Announce(BOOM, Secondary(lost=2))]),
    "a symptom alone, within the hold": ([("failed", RESET, 1.0), ("tick", 2.99)], []),
    "a symptom alone, after the hold": ([("failed", RESET, 1.0), ("tick", 3.0)], [Announce(RESET, Secondary())]),
    # a rank that has raised, and has not ended yet
    "it comes before a symptom": (
        [("failed", RAISED, 1.0), ("failed", RESET, 2.0)], [Announce(RAISED, Secondary(lost=1))]),
    "it comes after a symptom": (
        [("failed", RESET, 1.0), ("failed", RAISED, 2.0)], [Announce(RAISED, Secondary(lost=1))]),
    "it comes after a lost connection": (
        [("failed", CLOSED, 1.0), ("failed", RAISED, 2.0)], [Announce(RAISED, Secondary(other=1))]),
    "it never ends": ([("failed", RAISED, 1.0), ("tick", 99.0)], []),
    "it ends": ([("failed", RAISED, 1.0), ("failed", ENDED, 3.0)], [Announce(ENDED, Secondary())]),
    "another fails after it": (
        [("failed", RAISED, 1.0), ("failed", BOOM, 2.0)], [Announce(RAISED, Secondary(other=1))]),
    "another had failed before it": (
        [("failed", RAISED, 1.0), ("failed", BOOM, 2.0, 1.5)], [Announce(BOOM, Secondary())]),
    "another fails alike": ([("failed", RAISED, 1.0), ("failed", SAME, 2.0)], [Announce(SAME, Secondary())]),
    # while the output of a failed rank is read
    "a symptom waits for it": (WHILE_READ, []),
    "it ends then": ([*WHILE_READ, ("failed", ENDED, 4.1)], [Announce(ENDED, Secondary(lost=1))]),
    "nothing comes of it": ([*WHILE_READ, ("tick", 4.5)], [Announce(RESET, Secondary())]),
    # a lost connection of the program's own is a cause if there is no other
    "within the hold": ([("failed", CLOSED, 1.0), ("tick", 2.9)], []),
    "after the hold": ([("failed", CLOSED, 1.0), ("tick", 3.0)], [Announce(CLOSED, Secondary())]),
    "before a symptom": (
        [("failed", CLOSED, 1.0), ("failed", RESET, 1.5), ("tick", 3.0)], [Announce(CLOSED, Secondary(lost=1))]),
    "before a lost host": ([("failed", CLOSED, 1.0), ("lost", "algo-2", GONE)], [Announce(GONE, Secondary(other=1))]),
    # hosts that don't answer, are cut off, lost or silent
    "a host that does not answer is waited for": (
        [("failed", RESET, 1.0), ("tick", 3.0, True), ("tick", 3.4, False)], []),
    "a host that answers again": (
        [("failed", RESET, 1.0), ("tick", 3.0, True), ("tick", 3.5, False)], [Announce(RESET, Secondary())]),
    "a host that is cut off is waited for": ([("cut", "algo-2"), ("failed", RESET, 1.0), ("tick", 9.0)], []),
    "a host that is back": (
        [("failed", RESET, 1.0), ("cut", "algo-2"), ("tick", 9.0), ("back", "algo-2"), ("tick", 9.1)],
        [Announce(RESET, Secondary())]),
    "a host that is lost is the cause": (
        [("cut", "algo-2"), ("failed", RESET, 1.0), ("failed", ABORT, 2.0), ("lost", "algo-2", GONE)],
        [Announce(GONE, Secondary(lost=2))]),
    "a lost host without a failure": ([("cut", "algo-2"), ("lost", "algo-2", GONE), ("tick", 99.0)], []),
    "a silent host is given up when ranks fail": ([("silent", "algo-2"), ("failed", RESET, 1.0)], [Hurry("algo-2")]),
    "a host that falls silent then": ([("failed", RESET, 1.0), ("silent", "algo-2")], [Hurry("algo-2")]),
    "a silent host does not hold up a cause": (
        [("silent", "algo-3"), ("failed", BOOM, 1.0)], [Announce(BOOM, Secondary())]),
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_history(name: str) -> None:
    steps, expected = HISTORIES[name]
    assert play(*steps) == expected


def test_what_a_lost_host_is() -> None:
    assert Failure("algo-2", exit_codes.HOST_LOST, "host", "infra", "muster: host algo-2 was lost: gone") == GONE
    assert ENDED.is_same_as(RAISED)


def first_of(*reports: tuple[Failure, float, float]) -> tuple[str, Secondary] | None:
    """The host whose failure is announced. Each report is a failure, when it came, and how old it was."""
    finder = RootCauseFinder(2.0, order=0.05)
    for failure, now, age in reports:
        until(finder, now)
        finder.failed(failure, now, age)
    until(finder, reports[0][1] + 9.0)
    return (finder.announced.failure.host, finder.announced.secondary) if finder.announced else None


def test_of_causes_that_come_together_the_one_that_happened_first_is_announced() -> None:
    alone = Secondary(other=1)
    assert first_of((BOOM, 1.0, 0.004), (LATER, 1.01, 0.02)) == ("algo-4", alone)
    assert first_of((BOOM, 1.0, 0.02), (LATER, 1.01, 0.004)) == ("algo-2", alone)
    assert first_of((BOOM, 1.0, 0.0), (LATER, 1.06, 9.0)) == ("algo-2", Secondary())
    assert first_of((BOOM, 1.0, 0.0), (RESET, 1.01, 9.0), (LATER, 1.02, 1.0)) == ("algo-4", Secondary(lost=1, other=1))


def test_a_cause_that_waits_for_another_is_due_soon() -> None:
    finder = RootCauseFinder(2.0, order=0.05)
    assert not finder.failed(BOOM, 1.0)
    assert not finder.lost("algo-3", GONE)
    assert finder.due == 1.05
    assert not finder.tick(1.04)
    assert finder.tick(1.05) == [Announce(BOOM, Secondary())]
    assert finder.due is None


@pytest.mark.parametrize("age", [0.0, 1.0])
def test_a_lost_connection_of_the_programs_own_gives_way_to_a_rank_that_ended_without_a_word(age: float) -> None:
    """That one is seen only when it has ended, on a busy machine late; the other told of its exception at once."""
    beside = Secondary(other=1)
    assert first_of((CLOSED, 1.0, 0.9), (KILLED, 1.8, age)) == ("algo-2", beside)
    assert first_of((KILLED, 1.0, age), (CLOSED, 1.04, 9.0)) == ("algo-2", beside)


def test_a_rank_that_raised_for_a_lost_connection_of_anothers_program_comes_after_it() -> None:
    later = LATER._replace(inside="step")
    assert first_of((CLOSED, 1.0, 0.3), (later, 1.2, 0.1)) == ("algo-1", Secondary(other=1))
    assert first_of((CLOSED, 1.0, 0.1), (later, 1.2, 0.9)) == ("algo-4", Secondary(other=1))


KINDS: list[Kind] = ["user", "oom", "infra", "peer"]
REPORTS = st.lists(st.tuples(st.sampled_from(KINDS), st.floats(-1e9, 1e12), st.floats(0, 3)), min_size=1, max_size=6)


@given(REPORTS, st.randoms(use_true_random=False))
def test_clocks_of_hosts_decide_nothing(reports: list[tuple[Kind, float, float]], random: Random) -> None:
    """The leader's own clock and the kinds do: with any other clocks on the hosts the same failure is the cause."""

    def cause(times: list[float]) -> Failure:
        finder, now = RootCauseFinder(2.0), 100.0
        for number, ((kind, _, pause), at) in enumerate(zip(reports, times, strict=True)):
            now += pause
            until(finder, now)
            finder.failed(Failure(f"algo-{number}", 1, "user", kind, "it failed", at=at), now)
        until(finder, now + 60)
        assert finder.announced is not None
        return finder.announced.failure._replace(at=0.0)

    times = [at for _, at, _ in reports]
    found = cause(times)
    random.shuffle(times)
    assert cause(times) == found == cause([0.0] * len(times))


@pytest.mark.parametrize(("pause", "announced"), [(1.5, BOOM), (1.99, BOOM), (2.0, RESET)])
def test_symptoms_that_come_one_by_one_are_waited_for(pause: float, announced: Failure) -> None:
    """On a slow machine the rank that failed may be the last to end; the hold is that between two symptoms."""
    steps: list[tuple[object, ...]] = []
    for number, failure in enumerate((RESET, ABORT, ABORT, BOOM)):
        steps += [("tick", 1.0 + number * pause), ("failed", failure, 1.0 + number * pause)]
    told = play(*steps)
    assert [each.failure for each in told if isinstance(each, Announce)] == [announced]


def test_symptoms_without_end_are_waited_for_until_four_holds() -> None:
    steps: list[tuple[object, ...]] = []
    for second in range(1, 20):
        steps += [("failed", ABORT, float(second)), ("tick", second + 0.01)]
    assert play(*steps[:16]) == []
    assert len(play(*steps)) == 1


def test_a_cut_host_that_falls_silent_when_the_hold_is_over_is_given_up_first() -> None:
    told = play(
        ("cut", "algo-2"), ("failed", RESET, 1.0), ("silent", "algo-2"), ("tick", 9.0), ("lost", "algo-2", GONE)
    )
    assert [type(action) for action in told] == [Hurry, Announce]
    assert told[1].failure.host == "algo-2"  # type: ignore[union-attr]


BOTH = "algo-1 algo-2"
TABLE = Failure("algo-2", 7, "user", "user", "its torchrun says: rank 3 ended with 7", second_hand=True)

# what happens where each host runs a launcher of the user's own -> who is announced, None: nobody yet
OPAQUE: list[tuple[str, list[tuple[object, ...]], Failure | None]] = [
    ("the other host is still ending", [("failed", RESET, 1.0), ("tick", 30.0)], None),
    ("its cause comes late", [("failed", RESET, 1.0), ("tick", 9.0), ("failed", BOOM, 9.5)], BOOM),
    ("it never ends", [("failed", RESET, 1.0), ("tick", 36.0)], RESET),
    ("it ends well", [("failed", RESET, 1.0), ("done", "algo-2"), ("tick", 3.0)], RESET),
    ("it ended well before", [("done", "algo-2"), ("failed", RESET, 1.0), ("tick", 3.0)], RESET),
    ("it is lost", [("failed", RESET, 1.0), ("lost", "algo-2", GONE)], GONE),
    ("it was lost before", [("lost", "algo-2", GONE), ("failed", RESET, 1.0)], GONE),
    ("it was lost before a cause", [("lost", "algo-2", GONE), ("failed", LATER, 1.0)], LATER),
    ("what it tells at second hand is more", [("failed", RESET, 1.0), ("failed", TABLE, 7.0), ("tick", 7.1)], TABLE),
    ("in whatever order", [("failed", TABLE, 1.0), ("failed", RESET, 7.0), ("tick", 7.1)], TABLE),
    ("second hand waits, too", [("failed", TABLE, 1.0), ("tick", 4.0)], None),
    ("both have only echoes", [("failed", RESET, 1.0), ("failed", ABORT._replace(host="algo-2"), 9.0), ("tick", 9.0)],
     RESET),
]  # fmt: skip


@pytest.mark.parametrize(("name", "steps", "first"), OPAQUE, ids=[row[0] for row in OPAQUE])
def test_programs_that_start_ranks_by_themselves(
    name: str, steps: list[tuple[object, ...]], first: Failure | None
) -> None:
    announced = [action.failure for action in play(*steps, opaque=BOTH) if isinstance(action, Announce)]
    assert announced == ([first] if first else [])


def test_when_there_is_something_due() -> None:
    finder = RootCauseFinder(2.0)
    assert finder.due is None
    finder.failed(RESET, 1.0)
    assert finder.due == 2.5
    finder.tick(2.5)
    assert finder.due == 3.0
    finder.cut("algo-2")
    assert finder.due is None
    finder.back("algo-2")
    finder.tick(3.0)
    assert finder.due is None


def test_a_worker_without_its_leader() -> None:
    gone = lost("algo-1", "gone")
    assert root_cause_without_leader([], gone) is None
    assert root_cause_without_leader([RESET, BOOM], gone) == BOOM
    assert root_cause_without_leader([RESET], gone) == gone


def named(*arguments: object) -> Failure:
    host, why, apart_from = loss_by_silence(*arguments)  # type: ignore[arg-type]
    return lost(host, why, 0.0, apart_from)


def test_who_is_silent_while_others_answer_is_lost() -> None:
    assert named("algo-1", "algo-2", 15.0, ["algo-3"], []).host == "algo-2"
    assert "while 2 other hosts went on" in named("algo-1", "algo-2", 15.0, ["algo-3", "algo-4"], ["algo-5"]).reason


def test_who_hears_nobody_is_cut_off_itself() -> None:
    assert named("algo-1", "algo-2", 15.0, [], ["algo-3"]).host == "algo-1"
