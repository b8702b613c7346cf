"""Who is named when a host falls silent, and that both ends of a cut say the same."""

from __future__ import annotations

from musterpoint.channel.root_cause import of_silence
from musterpoint.failure import Failure, lost_host


def named(*arguments: object) -> Failure:
    host, why, apart_from = of_silence(*arguments)  # type: ignore[arg-type]
    return lost_host(host, why, 0.0, apart_from)


def test_of_two_hosts_both_are_named_in_the_same_words() -> None:
    leader, worker = named("algo-1", "algo-2", 15.0), named("algo-2", "algo-1", 15.0)
    assert leader.reason == worker.reason
    assert leader.reason == (
        "muster: hosts algo-1 and algo-2 lost each other: nothing came through for 15 s: one of them stands still, or "
        "the network between them is cut"
    )
    assert (leader.host, worker.host) == ("algo-2", "algo-1"), "each the one that it can't reach"
    assert (leader.code, leader.cause, leader.kind) == (76, "host", "infra")


def test_who_is_silent_while_others_answer_is_lost() -> None:
    failure = named("algo-1", "algo-2", 15.0, ["algo-3"], [])
    assert failure.host == "algo-2"
    assert (
        failure.reason
        == "muster: host algo-2 was lost: nothing was heard of it for 15 s, while algo-3 went on answering"
    )
    assert "while 2 other hosts went on" in named("algo-1", "algo-2", 15.0, ["algo-3", "algo-4"], ["algo-5"]).reason


def test_who_hears_nobody_is_cut_off_itself() -> None:
    failure = named("algo-1", "algo-2", 15.0, [], ["algo-3"])
    assert failure.host == "algo-1"
    assert failure.reason == "muster: host algo-1 was lost: it has heard none of the other 2 hosts for 15 s"
