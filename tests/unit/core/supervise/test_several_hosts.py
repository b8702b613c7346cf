"""The end of a job over several hosts: random histories, and the ones that once went wrong, shrunk."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, seed, settings

from ....examples import examples
from .histories import histories, restarting, silent
from .rules_of_endings import wrong
from .simulated_hosts import (
    Breaks,
    Consults,
    Dies,
    Fails,
    Freezes,
    History,
    Keeps,
    Quiets,
    Rank,
    Snaps,
    Stops,
    Unplugs,
    play,
    told,
)

LONG, SHORT, AN_ECHO = (Rank(),), (Rank(after=10.0),), (Rank(echoes=0.01),)
OUTSIDE = History((SHORT, SHORT, LONG), outside=True, outside_stops=True)

Ends = dict[int, tuple[int, str]]
"""Code and reason's beginning, by host; hosts that aren't named end as host 0."""

KNOWN: dict[str, tuple[History, Ends]] = {
    "all is well": (History((LONG, LONG)), {0: (0, "")}),
    "a rank fails": (History((LONG, LONG, AN_ECHO), (Fails(1, 0, 5.0, 7),)), {0: (7, "error 7 of algo-2")}),
    "an echo is told before the stop that led to it": (
        History((LONG, AN_ECHO), (Stops(0, 1.0),), latencies=(0.01, 0.5)), {0: (143, "")}),
    "a failure and a stop cross": (
        History((LONG, LONG, LONG), (Fails(1, 0, 1.0), Stops(2, 1.005))), {0: (1, "error 1 of algo-2")}),
    "two stops with different signals cross": (
        History((LONG, LONG), (Stops(0, 1.0), Stops(1, 1.0, 2))), {0: (143, "")}),
    "a stop crosses the end": (History((SHORT, SHORT), (Stops(1, 10.005),)), {0: (0, "")}),
    "a stop after the root cause": (
        History((LONG, LONG, (Rank(stops=20.0),)), (Fails(1, 0, 1.0), Stops(0, 5.0))), {0: (1, "error 1 of algo-2")}),
    "a failure crosses the end": (History((SHORT, SHORT), (Breaks(1, 10.005),)), {0: (0, "")}),
    "the leader's ranks have failed, others go on": (
        History((LONG, LONG), (Fails(0, 0, 1.0),), finish=True), {0: (1, "error 1 of algo-1")}),
    "an outside host fails and is told to end": (
        OUTSIDE._replace(hosts=(SHORT, SHORT, (Rank(), Rank())), faults=(Fails(2, 0, 5.0, 3),), finish=True),
        {0: (3, "error 3 of algo-3")}),
    "a stop after --outside stop": (
        OUTSIDE._replace(hosts=(SHORT, SHORT, (Rank(stops=3.0),)), faults=(Stops(0, 11.0),)), {0: (143, "")}),
    "a leader that was frozen, and tries of workers to come back that it finds then": (
        History((SHORT, SHORT), (Freezes(0, 11.0, 20.0),), latencies=(0.01, 0.1), starts=(1.0, 0.0)), {0: (0, "")}),
    "a host dies after the others' ranks": (
        History((SHORT, SHORT, LONG), (Dies(2, 20.0),)), {0: (76, "muster: host algo-3 was lost: its connection")}),
    "a host that is asked something dies": (
        History((LONG, LONG, LONG), (Consults(0, 2.0, seconds=900.0), Consults(1, 2.0, seconds=900.0), Dies(2, 5.0))),
        {0: (76, "muster: host algo-3 was lost")}),
    "the leader that was asked something dies": (
        History((LONG, LONG), (Consults(1, 2.0, seconds=900.0), Dies(0, 5.0))),
        {0: (76, "muster: host algo-1 was lost")}),
    "a host that is looked at dies": (
        History((LONG, LONG, LONG), (*(Quiets(host, 2.0) for host in range(3)), Freezes(2, 2.005, 60.0), Dies(2, 5.0))),
        {0: (76, "muster: host algo-3 was lost")}),
    "a host that keeps a checkpoint dies": (
        History((LONG, LONG, LONG), (Keeps(0, 2.0), Keeps(1, 2.0), Dies(2, 5.0))),
        {0: (76, "muster: host algo-3 was lost")}),
    "a stop while a host is silent": (
        History((LONG, LONG, LONG), (Freezes(1, 5.0, 500.0), Stops(2, 30.0))), {0: (143, ""), 1: (143, "")}),
    "a failure that ends nothing leaves a silent host its time": (
        History((SHORT, LONG, SHORT), (Fails(2, 0, 5.0), Freezes(1, 12.0, 40.0)), finish=True),
        {0: (1, "error 1 of algo-3")}),
    "a failure right after a host stood still": (
        History((LONG, LONG), (Freezes(1, 5.0, 13.0), Fails(1, 0, 18.0))), {0: (1, "error 1 of algo-2")}),
    "a failure right after the leader stood still": (
        History((LONG, LONG), (Freezes(0, 5.0, 13.0), Fails(0, 0, 18.0))), {0: (1, "error 1 of algo-1")}),
    "a cut of 90 s": (History((LONG, LONG, LONG), (Unplugs(1, 5.0, 90.0, 23.0),)), {0: (0, "")}),
    "a connection ends again and again": (
        History((LONG, LONG), tuple(Snaps(1, at / 4) for at in range(1, 60))), {0: (0, "")}),
    "a rank fails, and all start again": (
        History((LONG, AN_ECHO), (Fails(1, 0, 5.0, kind="infra"),), restarts=1), {0: (0, "")}),
    "a rank fails once more than the job may start again": (
        History((LONG, LONG), (Fails(1, 0, 5.0, kind="infra"), Fails(0, 0, 20.0, 3, kind="infra")), restarts=1),
        {0: (3, "error 3 of algo-1")}),
    "a program's own error": (History((LONG, LONG), (Fails(1, 0, 5.0),), restarts=1), {0: (1, "error 1 of algo-2")}),
    "an attempt gets no further than the one before": (
        History((LONG, LONG), (Fails(1, 0, 5.0, kind="infra"), Fails(1, 0, 9.0, 2, kind="infra")), restarts=3, saves=0),
        {0: (2, "error 2 of algo-2")}),
    "the leader is stopped while another host's processes leave the kernel": (
        History((LONG, LONG, LONG), (Fails(0, 0, 1.0, kind="infra"), Stops(0, 1.0)), restarts=2,
                drains=(0.0, 0.0, 5.0)), {0: (143, "")}),
    "a stop crosses the beginning of the next attempt": (
        History((LONG, LONG), (Fails(0, 0, 1.0, kind="infra"), Stops(1, 1.145)), restarts=2, latencies=(0.01, 0.02)),
        {0: (143, "")}),
    "a host dies between two attempts": (
        History((LONG, LONG, LONG), (Fails(0, 0, 1.0, kind="infra"), Dies(2, 2.0)), restarts=2, rejoin=5.0,
                drains=(0.0, 3.0, 3.0)), {0: (76, "muster: host algo-3 was lost: it was lost while")}),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_known_history(name: str) -> None:
    history, ends = KNOWN[name]
    job = play(history)
    assert not wrong(job), told(job)
    for host in job.hosts:
        if not host.is_gone:
            code, _, reason = host.outcome
            expected, words = ends.get(host.index, ends[0])
            assert code == expected and reason.startswith(words) and bool(words) == bool(reason), told(job)


@seed(1)
@settings(max_examples=examples(150), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(histories())
def test_any_history(history: History) -> None:
    job = play(history)
    found = wrong(job)
    assert not found, "\n".join([*found, told(job)])


@seed(1)
@settings(max_examples=examples(100), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(restarting())
def test_any_history_of_a_job_that_may_be_started_again(history: History) -> None:
    test_any_history.hypothesis.inner_test(history)  # type: ignore[attr-defined]


@seed(1)
@settings(max_examples=examples(40), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(silent())
def test_ranks_that_stay_quiet_are_looked_at_again_and_again(history: History) -> None:
    job = play(history)
    assert not job.broken and not wrong(job), told(job)


@pytest.mark.parametrize("seconds", [30.0, 60.0, 90.0, 200.0])
@pytest.mark.parametrize("kind", [Unplugs, Freezes])
def test_healthy_hosts_bear_a_long_silence(kind: type, seconds: float) -> None:
    hosts = (Rank(after=400.0),), (Rank(after=400.0),), (Rank(after=400.0),)
    job = play(History(hosts, (kind(1, 5.0, seconds),)))
    assert [host.outcome[0] for host in job.hosts] == [0, 0, 0], told(job)


ROLES = [Rank(after=400.0, echoes=0.01), Rank(after=400.0, echoes=3.0), Rank(after=400.0)]
AFTER_A_BEAT = [0.1, 1.3, 2.6, 3.9, 4.9]


@pytest.mark.parametrize("others", ROLES, ids=["echo", "late-echo", "no-echo"])
@pytest.mark.parametrize("more", [0.0, 5.0, 10.0])
@pytest.mark.parametrize("failing", [0, 1])
def test_a_cut_of_10_s_keeps_no_failure_back(failing: int, more: float, others: Rank) -> None:
    """However it meets the beats, and whenever a rank fails in it; ``more``: until TCP notices that it is over."""
    for since, into in itertools.product(AFTER_A_BEAT, (0.5, 3.0, 6.0, 9.5)):
        hosts = [(others,), (others,), (others,)]
        hosts[failing] = (Rank(after=400.0),)
        cut = 20.0 + since
        job = play(History(tuple(hosts), (Unplugs(1, cut, 10.0, more), Fails(failing, 0, cut + into, 7))))
        ends = {(host.outcome[0], host.outcome[2]) for host in job.hosts}
        assert ends == {(7, f"error 7 of algo-{failing + 1}")}, told(job)


@pytest.mark.parametrize("ahead", [(0.0, 0.0, 0.0, 0.0), (0.0, 3600.0, -3.0, 0.0), (-60.0, 0.004, 0.1, 0.0)])
@pytest.mark.parametrize(("first", "second"), [(1, 0), (0, 1), (1, 2), (2, 1), (2, 0)])
def test_of_two_failures_the_first_is_the_root_cause(first: int, second: int, ahead: tuple[float, ...]) -> None:
    """Whatever the hosts' clocks show, and on whichever host it is known first."""
    faults = Fails(first, 0, 20.0, 3), Fails(second, 0, 20.005, 4)
    job = play(History((LONG, LONG, LONG), faults, latencies=(0.0, 0.008, 0.02, 0.0), ahead=ahead))
    assert {host.outcome[0] for host in job.hosts} == {3}, told(job)


@pytest.mark.parametrize("host", [0, 1])
def test_a_killed_host_is_named_within_15_s(host: int) -> None:
    job = play(History((LONG, LONG, AN_ECHO), (Dies(host, 5.0),)))
    for other in job.hosts:
        if not other.is_gone:
            assert other.outcome[0] == 76 and other.outcome[1] == f"algo-{host + 1}", told(job)
            assert other.over_at is not None and other.over_at <= 5.0 + 15.0, told(job)


@pytest.mark.parametrize("fault", [Fails(1, 0, 30.0), Stops(1, 30.0)])
def test_a_silent_leader_keeps_nobody_waiting_who_has_a_failure_or_a_stop(fault: Fails | Stops) -> None:
    """Nor whom the end of their ranks reaches. The leader learns what it was when it is thawed."""
    hosts = (Rank(after=600.0),), (Rank(after=600.0),), (Rank(after=600.0, echoes=0.5),)
    job = play(History(hosts, (Freezes(0, 5.0, 200.0), fault)))
    leader, first, echoing = (host.outcome for host in job.hosts)
    assert first == leader and first[0] in (1, 143), told(job)
    assert echoing[0] == 76 and "hosts algo-1 and algo-3 lost each other" in echoing[2], told(job)
    assert all(host.over_at is not None and host.over_at <= 32.0 for host in job.hosts[1:]), told(job)


@pytest.mark.parametrize(("frozen", "ends"), [(200.0, 216.0), (900.0, 306.0)])
def test_a_host_whose_ranks_notice_nothing_waits_for_a_silent_leader(frozen: float, ends: float) -> None:
    """It hears of the failure when the leader is thawed, or gives it up after the silence timeout."""
    hosts = (Rank(after=1200.0),), (Rank(after=1200.0),), (Rank(after=1200.0),)
    leader, failed, third = play(History(hosts, (Freezes(0, 5.0, frozen), Fails(1, 0, 30.0)))).hosts
    assert failed.over_at is not None and failed.over_at <= 31.0 and failed.outcome[0] == 1
    assert third.over_at is not None and third.over_at <= ends
    if frozen < 300.0:
        assert third.outcome == leader.outcome == failed.outcome
    else:
        assert third.outcome[0] == 76 and "hosts algo-1 and algo-3 lost each other" in third.outcome[2]


def _over(history: History) -> list[tuple[int, str, float]]:
    job = play(history)
    return [(host.outcome[0], host.outcome[2], host.over_at or 0.0) for host in job.hosts if not host.is_gone]


def test_a_failure_ends_a_job_whose_worker_is_silent() -> None:
    """Its own host at once; the others too, as nobody waits for a silent host then."""
    for code, reason, at in _over(History((LONG, LONG, LONG), (Freezes(1, 5.0, 500.0), Fails(2, 0, 30.0))))[::2]:
        assert (code, reason) == (1, "error 1 of algo-3")
        assert at <= 31.0
