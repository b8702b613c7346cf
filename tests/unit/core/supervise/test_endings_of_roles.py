"""The end of a job with roles: events and ``ends`` as a table, on one host and over several; and random histories."""

from __future__ import annotations

from typing import Callable

import pytest
from hypothesis import HealthCheck, given, seed, settings

from musterpoint.core.job.model import Ends

from ....examples import examples
from .histories import restarting_roles, several_roles
from .rules_of_endings import wrong
from .simulated_hosts import GRACE, READY_WITHIN, Dies, Fails, Fault, History, Job, Part, Rank, Stops, play, told

FOREVER = Rank(after=5000.0)
TRAINS = Rank(after=60.0)
READY = 2.0
PLACES = ["its own host", "beside, on two hosts", "beside, on one host"]
Outcome = tuple[int, str]
WELL = (0, "")


def job(
    place: str, ends: Ends, policy: Rank, *faults: Fault, ready: float | None = READY, trainer: Rank = TRAINS
) -> History:  # fmt: skip
    """A trainer, and a policy that it waits for, in a ``place``; the faults of host 1 are the policy's."""
    beside, count = place != PLACES[0], 1 if place == PLACES[2] else 2
    on = tuple(range(count)) if beside else (0,)
    roles = (
        Part("trainer", on, after=("policy",)),
        Part("policy", on if beside else (1,), ends, ready=ready, beside=beside, rank=policy),
    )
    placed = tuple(
        fault._replace(host=min(fault.host, count - 1), rank="policy" if beside else 0)
        if isinstance(fault, Fails) and fault.host == 1
        else fault._replace(host=min(fault.host, count - 1))
        for fault in faults
    )
    hosts = ((trainer,),) * count if beside else ((trainer,), (policy,))
    return History(hosts, placed, roles=roles)


Event = Callable[[str, Ends], History]
LEFT: Outcome = (1, "policy on algo-")
NOT_READY: Outcome = (69, "muster: policy isn't ready")
EVENTS: dict[str, tuple[Event, dict[Ends, Outcome]]] = {
    "nothing": (lambda place, ends: job(place, ends, TRAINS if ends == "job" else FOREVER), {"job": WELL}),
    "it ends with 0 before it is ready": (
        lambda place, ends: job(place, ends, Rank(after=1.0)), {"job": NOT_READY, "with": LEFT, "never": NOT_READY}),
    "it ends with 0 while the trainer runs": (
        lambda place, ends: job(place, ends, Rank(after=20.0)), {"job": WELL, "with": LEFT, "never": WELL}),
    "it ends with 0 when the trainer does": (lambda place, ends: job(place, ends, Rank(after=61.0)), {"job": WELL}),
    "it never gets ready": (lambda place, ends: job(place, ends, FOREVER, ready=None), {"job": NOT_READY}),
    "it fails before it is ready": (
        lambda place, ends: job(place, ends, FOREVER, Fails(1, 0, 1.0, 7)), {"job": (7, "error 7")}),
    "it fails while the trainer runs": (
        lambda place, ends: job(place, ends, FOREVER, Fails(1, 0, 20.0, 7)), {"job": (7, "error 7")}),
    "it is killed while the trainer runs": (
        lambda place, ends: job(place, ends, FOREVER, Fails(1, 0, 20.0, 137, "oom")), {"job": (137, "error 137")}),
    "the trainer fails": (
        lambda place, ends: job(place, ends, FOREVER, Fails(0, 0, 20.0, 3)), {"job": (3, "error 3 of algo-1")}),
    "the trainer fails, then it does": (
        lambda place, ends: job(place, ends, FOREVER, Fails(0, 0, 20.0, 3), Fails(1, 0, 20.02, 7)),
        {"job": (3, "error 3 of algo-1")}),
    "it fails, then the trainer does": (
        lambda place, ends: job(place, ends, FOREVER, Fails(1, 0, 20.0, 7), Fails(0, 0, 20.02, 3)),
        {"job": (7, "error 7")}),
    "a stop while the trainer waits": (
        lambda place, ends: job(place, ends, FOREVER, Stops(0, 1.0)), {"job": (143, "")}),
    "a stop while all run": (lambda place, ends: job(place, ends, FOREVER, Stops(1, 20.0)), {"job": (143, "")}),
    "two stops": (
        lambda place, ends: job(place, ends, FOREVER, Stops(1, 20.0), Stops(0, 25.0)), {"job": (143, "")}),
    "it fails at a stop": (
        lambda place, ends: job(place, ends, FOREVER, Stops(0, 20.0), Fails(1, 0, 20.05, 7)), {"job": (143, "")}),
    "a stop after it has failed": (
        lambda place, ends: job(place, ends, FOREVER, Fails(1, 0, 20.0, 7), Stops(0, 20.6)), {"job": (7, "error 7")}),
    "it ends with an error when it is told": (
        lambda place, ends: job(place, ends, Rank(after=60.0 if ends == "job" else 5000.0, told=9)), {"job": WELL}),
    "it ignores signals": (
        lambda place, ends: job(place, ends, Rank(after=60.0 if ends == "job" else 5000.0, stops=None)), {"job": WELL}),
}  # fmt: skip
"""What an event leads to, by the ``ends`` of the policy; those that aren't named are as ``job``."""


def check(played: Job, code: int, words: str) -> None:
    assert not wrong(played), told(played)
    for host in played.hosts:
        if not host.is_gone:
            assert host.outcome[0] == code and host.outcome[2].startswith(words), told(played)
            assert bool(words) == bool(host.outcome[2]), told(played)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ends", ["job", "with", "never"])
@pytest.mark.parametrize("event", EVENTS)
def test_what_an_event_leads_to(event: str, ends: Ends, place: str) -> None:
    history, outcomes = EVENTS[event]
    check(play(history(place, ends)), *outcomes.get(ends, outcomes["job"]))


@pytest.mark.parametrize("ends", ["job", "with", "never"])
@pytest.mark.parametrize("fault", [Dies(1, 1.0), Dies(1, 20.0), Dies(1, 20.0, "vanishes"), Dies(1, 20.0, "dark")])
def test_a_lost_host_is_the_jobs_failure_whatever_its_role(fault: Dies, ends: Ends) -> None:
    check(play(job(PLACES[0], ends, FOREVER, fault, trainer=Rank(after=900.0))), 76, "muster: host")


@pytest.mark.parametrize("ends", ["with", "never"])
def test_a_host_that_is_lost_when_the_trainer_is_through_costs_nothing(ends: Ends) -> None:
    played = play(job(PLACES[0], ends, Rank(after=5000.0, stops=20.0), Dies(1, 65.0, "dark")))
    check(played, *WELL)
    assert (played.hosts[0].over_at or 0.0) < 100.0


def told_at(played: Job) -> tuple[float, float]:
    """When the trainer and the policy were told to end."""
    last = played.hosts[-1]
    beside = "policy" in last.signalled
    return played.hosts[0].signalled.get(0, 0.0), last.signalled["policy" if beside else 0]


@pytest.mark.parametrize("place", PLACES)
def test_a_stop_reaches_services_when_the_trainer_has_ended(place: str) -> None:
    saves = Rank(after=60.0, stops=5.0)
    trainer, policy = told_at(play(job(place, "with", FOREVER, Stops(0, 20.0), trainer=saves)))
    assert trainer == 20.0 and 25.0 <= policy <= 25.1


@pytest.mark.parametrize("place", PLACES)
def test_a_stop_reaches_services_at_half_of_its_grace_at_the_latest(place: str) -> None:
    saves = Rank(after=60.0, stops=20.0)
    trainer, policy = told_at(play(job(place, "with", Rank(after=5000.0, stops=8.0), Stops(0, 20.0), trainer=saves)))
    assert trainer == 20.0 and 20.0 + GRACE / 2 <= policy <= 20.1 + GRACE / 2


@pytest.mark.parametrize("place", PLACES)
def test_a_failure_reaches_all_at_once(place: str) -> None:
    played = play(job(place, "with", FOREVER, Fails(0, 0, 20.0, 3)))
    assert told_at(played)[1] <= 20.6


def test_a_service_starts_also_when_the_ranks_of_its_host_have_ended() -> None:
    """Another host's may wait for it."""
    roles = (
        Part("prepares", (0,)),
        Part("policy", (0,), "with", after=("slow",), beside=True, rank=FOREVER),
        Part("slow", (1,), "with", ready=30.0),
        Part("trainer", (2,), after=("policy",)),
    )
    played = play(History(((Rank(after=10.0),), (FOREVER,), (TRAINS,)), roles=roles))
    check(played, *WELL)
    assert played.hosts[2].starts["trainer"] >= 30.0


def test_a_role_that_is_not_ready_ends_the_job_also_when_the_leaders_ranks_have_ended() -> None:
    roles = Part("prepares", (0,)), Part("policy", (1,), "with", ready=None), Part("trainer", (2,), after=("policy",))
    played = play(History(((Rank(after=10.0),), (FOREVER,), (TRAINS,)), roles=roles))
    check(played, 69, "muster: policy isn't ready")
    assert READY_WITHIN <= (played.hosts[0].over_at or 0.0) <= READY_WITHIN + 10.0


def test_with_on_failure_finish_what_runs_goes_on_and_nothing_starts() -> None:
    roles = Part("trainer", (0,)), Part("policy", (1,), "with"), Part("later", (2,), after=("policy", "slow"))
    slow = Part("slow", (1,), "with", ready=30.0, beside=True, rank=FOREVER)
    hosts = (TRAINS,), (FOREVER,), (TRAINS,)
    played = play(History(hosts, (Fails(1, 0, 20.0, 7),), finish=True, roles=(*roles, slow)))
    check(played, 7, "error 7 of algo-2")
    assert "later" not in played.hosts[2].starts and played.hosts[0].ended_at == {0: 60.0}
    assert played.hosts[1].signalled["slow"] >= 60.0


@seed(1)
@settings(max_examples=examples(150), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(several_roles())
def test_any_history_of_a_job_with_roles(history: History) -> None:
    played = play(history)
    found = wrong(played)
    assert not found, "\n".join([*found, told(played)])


@seed(1)
@settings(max_examples=examples(75), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(restarting_roles())
def test_any_history_of_a_job_with_roles_that_may_be_started_again(history: History) -> None:
    test_any_history_of_a_job_with_roles.hypothesis.inner_test(history)  # type: ignore[attr-defined]
