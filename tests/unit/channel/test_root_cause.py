"""Histories of failures and hosts against the verdict they must lead to."""

from __future__ import annotations

import pytest

from musterpoint import exit_codes
from musterpoint.channel.root_cause import Action, Announce, GiveUp, RootCause, left_alone
from musterpoint.failure import Failure, Secondary
from musterpoint.failure import lost_host as lost

BOOM = Failure("algo-2", 7, "user", "user", "ValueError: boom")
LATER = Failure("algo-4", 3, "user", "user", "KeyError: 'x'")
RESET = Failure("algo-1", 1, "user", "peer", "connection reset by peer")
ABORT = Failure("algo-3", 1, "user", "peer", "NCCL abort")

GONE = lost("algo-2", "gone")


def play(*steps: tuple[object, ...], opaque: str = "") -> list[Action]:
    """Each step is a method's name and its arguments; on the hosts ``opaque`` programs start ranks by themselves."""
    verdict = RootCause(2.0, 35.0, opaque.split())
    actions: list[Action] = []
    for name, *arguments in steps:
        actions += getattr(verdict, str(name))(*arguments) or []
    return actions


def test_a_cause_is_announced_at_once() -> None:
    assert play(("failed", BOOM, 1.0)) == [Announce(BOOM, Secondary())]


def test_the_first_cause_wins() -> None:
    assert play(("failed", BOOM, 1.0), ("failed", LATER, 1.0), ("tick", 9.0)) == [Announce(BOOM, Secondary())]


def test_a_symptom_waits_for_the_cause() -> None:
    history = [("failed", RESET, 1.0), ("failed", ABORT, 1.5), ("tick", 2.9), ("failed", BOOM, 2.95), ("tick", 9.0)]
    assert play(*history) == [Announce(BOOM, Secondary(lost=2))]


def test_a_symptom_alone_is_announced_after_the_hold() -> None:
    assert play(("failed", RESET, 1.0), ("tick", 2.99)) == []
    assert play(("failed", RESET, 1.0), ("failed", ABORT, 1.5), ("tick", 3.0)) == [Announce(RESET, Secondary(lost=1))]


def test_a_host_that_does_not_answer_is_waited_for() -> None:
    assert play(("failed", RESET, 1.0), ("tick", 3.0, True), ("tick", 3.4, False)) == []
    assert play(("failed", RESET, 1.0), ("tick", 3.0, True), ("tick", 3.5, False)) == [Announce(RESET, Secondary())]


def test_a_host_that_is_cut_off_is_waited_for() -> None:
    assert play(("cut", "algo-2"), ("failed", RESET, 1.0), ("tick", 9.0)) == []
    assert play(("failed", RESET, 1.0), ("cut", "algo-2"), ("tick", 9.0), ("back", "algo-2"), ("tick", 9.1)) == [
        Announce(RESET, Secondary())
    ]


def test_a_host_that_is_lost_is_the_cause() -> None:
    (announced,) = play(("cut", "algo-2"), ("failed", RESET, 1.0), ("failed", ABORT, 2.0), ("lost", "algo-2", GONE))
    assert isinstance(announced, Announce)
    assert announced.failure._replace(at=0.0) == Failure(
        "algo-2", exit_codes.HOST_LOST, "host", "infra", "muster: host algo-2 was lost: gone"
    )
    assert announced.secondary == Secondary(lost=2)


def test_a_lost_host_without_a_failure_is_no_verdict() -> None:
    assert play(("cut", "algo-2"), ("lost", "algo-2", GONE), ("tick", 99.0)) == []


@pytest.mark.parametrize("silent_first", [True, False])
def test_a_silent_host_is_given_up_when_ranks_fail(silent_first: bool) -> None:
    steps = [("silent", "algo-2"), ("failed", RESET, 1.0)]
    assert play(*(steps if silent_first else reversed(steps))) == [GiveUp("algo-2")]


def test_a_cut_host_that_falls_silent_when_the_hold_is_over_is_given_up_first() -> None:
    told = play(
        ("cut", "algo-2"), ("failed", RESET, 1.0), ("silent", "algo-2"), ("tick", 9.0), ("lost", "algo-2", GONE)
    )
    assert [type(action) for action in told] == [GiveUp, Announce]
    assert told[1].failure.host == "algo-2"  # type: ignore[union-attr]


def test_a_silent_host_does_not_hold_up_a_cause() -> None:
    assert play(("silent", "algo-3"), ("failed", BOOM, 1.0)) == [Announce(BOOM, Secondary())]


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
    verdict = RootCause(2.0)
    assert verdict.due is None
    verdict.failed(RESET, 1.0)
    assert verdict.due == 3.0
    verdict.cut("algo-2")
    assert verdict.due is None
    verdict.back("algo-2")
    verdict.tick(3.0)
    assert verdict.due is None


def test_a_worker_without_its_leader() -> None:
    gone = lost("algo-1", "gone")
    assert left_alone([], gone) is None
    assert left_alone([RESET, BOOM], gone) == BOOM
    assert left_alone([RESET], gone) == gone
