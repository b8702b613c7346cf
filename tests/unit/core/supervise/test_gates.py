"""The gates of a host's roles: what starts once others are ready, what is said of who waits, and who isn't in time."""

from __future__ import annotations

from typing import Any, cast

import pytest

from musterpoint.base.failure import Failure
from musterpoint.core.channel.topics.ready_roles import NotReady, RoleReady, RoleState
from musterpoint.core.job.model import Readiness
from musterpoint.core.launch.launch_plan import Gate
from musterpoint.core.processes.sidecars import Sidecars
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.gates import SAID_AFTER, Gates, not_ready

from .bench import record_nothing
from .simulated_network import Clock, SimulatedLoop


class Said:
    """The output of a program that has said its line, or not yet."""

    seen = False


class Host:
    """A host with a clock of its own; ``started`` and ``told`` are roles, ``said`` what it printed."""

    def __init__(self, *gates: Gate) -> None:
        self.clock = Clock()
        self.started: list[str] = []
        self.told: list[str] = []
        self.said: list[str] = []
        self.failures: list[Failure] = []
        self.output = Said()
        loop = SimulatedLoop(self.clock)
        context = SupervisorContext(loop, cast(Any, self), Sidecars(loop), self.said.append, record_nothing, "algo-1")
        self.gates = Gates(
            context, cast(Any, self), gates, self.started.append, lambda role: [], self.failures.append
        )  # fmt: skip
        self.gates.begin()

    def look_for(self, text: str, name: str) -> Said:
        """As a pump does."""
        return self.output

    def topic(self, topic: object) -> Host:
        """As the channel does."""
        return self

    def ready(self, role: str) -> None:
        """As the topic does."""
        self.told.append(role)

    def hear(self, *roles: str) -> None:
        for role in roles:
            self.gates.hear(RoleReady(role))

    def until(self, seconds: float) -> None:
        self.clock.run(seconds, lambda: False)


STARTED, LINE = Readiness(), Readiness("line", 0, "up")


def gate(role: str, *after: str, ready: Readiness = STARTED, needed: bool = False) -> Gate:
    return Gate(role, after, ready, "job", needed)


def test_what_waits_for_nobody_starts_at_once_those_beside_first() -> None:
    host = Host(gate("trainer"), gate("reward", needed=True), gate("logger", "trainer"))
    assert host.started == ["reward", "trainer"] and host.told == ["reward"]


def test_a_role_starts_once_when_all_are_ready_that_it_waits_for() -> None:
    host = Host(gate("trainer", "policy", "reward"))
    host.hear("policy")
    assert not host.started
    host.hear("reward", "reward", "other")
    assert host.started == ["trainer"]


def test_nobody_is_told_of_a_role_that_nobody_waits_for() -> None:
    host = Host(gate("trainer"))
    assert host.started == ["trainer"] and not host.told


def test_a_role_is_ready_when_its_program_is() -> None:
    host = Host(gate("policy", ready=LINE, needed=True))
    host.until(5.0)
    assert host.started == ["policy"] and not host.told
    host.output.seen = True
    host.until(6.0)
    assert host.told == ["policy"]


def test_who_waits_says_for_whom_after_a_while_and_then_less_often() -> None:
    host = Host(gate("trainer", "policy", "reward"), gate("logger", "trainer"), gate("slow", ready=LINE, needed=True))
    host.until(SAID_AFTER - 0.1)
    assert not host.said
    host.hear("reward")
    host.until(SAID_AFTER)
    said = [
        "trainer waits for policy to be ready; logger waits for trainer to be ready",
        "slow isn't ready here yet: line 'up'",
    ]
    assert host.said == said
    host.until(4 * SAID_AFTER - 0.1)
    assert host.said == said
    host.until(4 * SAID_AFTER)
    assert host.said == [*said, *said]


def test_nothing_is_said_where_all_run() -> None:
    host = Host(gate("trainer", "policy"))
    host.hear("policy")
    host.until(1000.0)
    assert not host.said and host.gates.sentence == ""


def test_nothing_starts_or_is_said_when_the_gates_are_closed() -> None:
    host = Host(gate("trainer", "policy"), gate("reward", ready=LINE, needed=True))
    host.gates.close()
    host.output.seen = True
    host.hear("policy")
    host.until(1000.0)
    assert host.started == ["reward"] and not host.told and not host.said


@pytest.mark.parametrize("closed", [False, True])
def test_a_role_that_is_not_ready_in_time_is_a_failure_with_a_table_of_all(closed: bool) -> None:
    """Also where this host's own gates are closed: the policy knows whether it still counts."""
    host = Host(gate("trainer", "policy"))
    if closed:
        host.gates.close()
    states = RoleState("trainer", ("algo-1",), ("policy",)), RoleState("policy", ("algo-3",), ())
    host.gates.hear(NotReady("policy", 90.0, (*states, RoleState("reward", (), ()))))
    (failure,) = host.failures
    assert (failure.code, failure.cause, failure.kind, failure.host) == (69, "muster", "infra", "algo-1")
    assert failure.reason.splitlines() == [
        "muster: policy isn't ready after 90 s (--ready-timeout), and trainer waits for it",
        "  trainer: waits for policy",
        "  policy: not ready on algo-3",
        "  reward: ready",
        "exit code 69",
    ]


def test_a_table_names_some_hosts_and_counts_the_others() -> None:
    hosts = tuple(f"h{number}" for number in range(11))
    reason = not_ready(NotReady("a", 1.0, (RoleState("a", hosts, ()), RoleState("b", ("",), ()))), "", "").reason
    assert "a: not ready on h0, h1, h2, h3, h4, h5, h6, h7 and 3 more" in reason
    assert "b: not ready on this host" in reason
