"""A launcher below another musterpoint: it finds it, gets the roster, hands its plan over and hears the code."""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import Any, Callable, Iterator

import pytest

from musterpoint.base.failure import Failure
from musterpoint.base.loop import Loop
from musterpoint.base.settings import OUTER, SOCKET_TOKEN
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.plan import Argument, LaunchPlan, ProcessPlan
from musterpoint.core.processes.control_socket import Connection, ControlSocket
from musterpoint.core.rollcall.roster import Roster, Seat
from musterpoint.core.supervise.handover import (
    FAILED,
    HELLO,
    OWN_CODES,
    Outer,
    encode,
    encode_roster,
    failure_from,
    plan_from,
)

ROSTER = Roster("job", "session", (Seat("algo-1", "127.0.0.1", 2),), "127.0.0.1", 7777, "algo-1")
PLAN = LaunchPlan(
    "ranks", "algo-1",
    (ProcessPlan("rank", "rank 0", (Argument("python", "runs it"),), (EnvSetting("RANK", "0", "first"),), "/", 0, 0),),
    (EnvSetting("A", "b\n", "why not"),), 1, 1, 0, "/",
)  # fmt: skip


Above = Callable[[Callable[[Connection, str], None]], dict[str, str]]


@pytest.fixture
def above() -> Iterator[Above]:
    """A control socket in a thread of its own, which answers each line with the function it is made with; what a job's
    processes have in their environment.
    """
    loop = Loop()
    loop.prepare_posts()
    desks: list[ControlSocket] = []
    thread = threading.Thread(target=loop.run)

    def make(answer: Callable[[Connection, str], None]) -> dict[str, str]:
        def take_connection(connection: Connection) -> None:
            connection.route_to(lambda words, line: answer(connection, line))

        desks.append(ControlSocket(loop, take_connection))
        thread.start()
        return {OUTER: desks[0].address, SOCKET_TOKEN: desks[0].token}

    yield make
    loop.post(loop.stop)
    thread.join(500)
    desks[0].close()
    loop.close()


def found(environ: dict[str, str]) -> Outer:
    outer = Outer.find(environ)
    assert outer is not None
    return outer


def test_a_plan_survives_the_journey() -> None:
    plan, environ = plan_from(encode({"plan": PLAN.to_wire(), "environ": {"PATH": "/bin"}}))
    assert plan == PLAN
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", "[" * 100_000, '{"environ": {}, "plan": {"launcher": 1}}', '{"environ": 1}']
)
def test_what_is_no_plan_says_so(line: str) -> None:
    with pytest.raises(ValueError, match=r"[Ee]xpect|plan|deep"):
        plan_from(line)


def test_the_whole_handover(above: Above) -> None:
    said: list[str] = []

    def answer(connection: Connection, line: str) -> None:
        said.append(line)
        if line == HELLO:
            connection.send(encode_roster(ROSTER))
        else:
            connection.send("code 7")

    outer = found(above(answer))
    assert outer.offer() == ROSTER
    assert outer.hand_over(PLAN, {"PATH": "/bin"}) == 7
    assert json.loads(said[1])["environ"] == {"PATH": "/bin"}
    outer.close()


def test_an_outer_one_that_takes_no_plans_or_goes_away(above: Above) -> None:
    environ = above(lambda connection, line: connection.close())
    outer = found(environ)
    assert outer.offer() is None
    outer.close()
    outer = found(environ)
    assert outer.hand_over(PLAN, {}) is None
    outer.close()


@pytest.mark.parametrize("token", [None, "", "0" * 32, "\udcff" * 32])
def test_an_outer_one_hears_nobody_without_its_token(above: Above, token: str | None) -> None:
    said: list[str] = []
    environ = above(lambda connection, line: said.append(line))
    del environ[SOCKET_TOKEN]
    outer = found(environ if token is None else {**environ, SOCKET_TOKEN: token})
    assert (outer.offer(), said) == (None, [])
    outer.close()


def test_an_outer_one_that_hangs_up_at_once_is_still_above_us() -> None:
    """Taken for one that is gone, the inner launcher would gather hosts of its own in the middle of a job."""
    with socket.socket(socket.AF_UNIX) as control_socket:
        control_socket.bind(f"\0musterpoint-test-{os.getpid()}-hangs-up")
        control_socket.listen()

        class Environ(dict[str, str]):
            def get(self, name: str, default: Any = None) -> Any:
                if name == SOCKET_TOKEN:  # asked for between the connection and the first word on it
                    control_socket.accept()[0].close()
                return super().get(name, default)

        outer = Outer.find(Environ({OUTER: "@" + control_socket.getsockname()[1:].decode()}))
    assert outer is not None and outer.offer() is None
    outer.close()


@pytest.mark.parametrize("code", sorted(OWN_CODES))
def test_a_failure_is_reported_before_the_launcher_ends(code: int, above: Above) -> None:
    said: list[str] = []

    def answer(connection: Connection, line: str) -> None:
        said.append(line)
        connection.send("heard")

    outer = found(above(answer))
    failure = Failure("algo-1", code, "muster", "user", "muster: no such file\non algo-1", at=1.5)
    outer.report(failure)
    assert [failure_from(line) for line in said] == [failure], "it was heard when this returns"
    outer.close()


WRONG = ["", "{}", "[" * 100_000, "9" * 5_000, encode(Failure("a", 7, "muster", "user", "x")._asdict()),
         encode({**Failure("a", 64, "muster", "user", "x")._asdict(), "reason": 3})]  # fmt: skip


@pytest.mark.parametrize("line", WRONG, ids=range(len(WRONG)))
def test_what_is_no_failure_of_a_launcher_says_so(line: str) -> None:
    with pytest.raises(ValueError):
        failure_from(FAILED + line)


@pytest.mark.parametrize("environ", [{}, {OUTER: ""}, {OUTER: "@musterpoint-of-a-job-that-is-gone"}])
def test_there_is_none(environ: dict[str, str]) -> None:
    assert Outer.find(environ) is None
