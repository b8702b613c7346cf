"""What a launch in another job's program is lent, as it comes over that job's control socket, and what it tells."""

from __future__ import annotations

import json
import os
import socket
import threading
from types import SimpleNamespace
from typing import Any, Callable, Iterator

import pytest

from musterpoint.base import settings
from musterpoint.base.errors import UsageError
from musterpoint.base.failure import Failure, Secondary
from musterpoint.base.loop import Loop
from musterpoint.base.settings import BY_FIELD, OUTER, SOCKET_TOKEN, Settings
from musterpoint.core.job.model import EntryPoint, Job, Paths
from musterpoint.core.processes.control_socket import Connection, ControlSocket
from musterpoint.core.rollcall.roster import Offer, Roster, Seat
from musterpoint.core.runtime import Request
from musterpoint.core.supervise.loan import Lender, Loan, below, lend, report
from musterpoint.core.supervise.state import Outcome

SEATS = (Seat("algo-1", "10.0.0.1", 1), Seat("algo-2", "10.0.0.2", 1), Seat("algo-3", "10.0.0.3", 0, False))
ROSTER = Roster("digits", "5e55", SEATS, "10.0.0.1", 7777, "algo-2", launch_port=7800)
ALONE = Roster("digits", "5e55", SEATS[1:2], "127.0.0.1", 7777, "algo-2", launch_port=7800)
PATHS = Paths("/opt/ml", model="/opt/ml/model", output_data="/d", failure="/f", success="/s", code="/opt/ml/code")
JOB = Job("sagemaker", "digits", ("algo-2",), "algo-2", ("algo-2",), EntryPoint("t.py"), paths=PATHS, grace=120.0)
OPTIONS = Settings(slots=3, stop_signal="USR1", log_dir="/logs", upload="s3://bucket", secret="of this job")
ENVIRON = {"MUSTER_LOCAL": "1", "A": "a"}


def lent(
    options: Settings = OPTIONS, roster: Roster = ROSTER, number: int = 2, running: tuple[int, ...] = ()
) -> dict[str, Any]:
    return lend(JOB, options, ENVIRON, roster, ("hush",), number, running)


Above = Callable[[Callable[[], str]], tuple[dict[str, str], list[str]]]


@pytest.fixture
def above() -> Iterator[Above]:
    """A job above, in a thread of its own: it lends what the function says (nothing: it hangs up), and hears all ends;
    what its processes have in their environment, and what was said to it.
    """
    loop = Loop()
    loop.prepare_posts()
    desks: list[ControlSocket] = []
    said: list[str] = []
    thread = threading.Thread(target=loop.run)

    def make(lends: Callable[[], str]) -> tuple[dict[str, str], list[str]]:
        def heard(connection: Connection, line: str) -> None:
            said.append(line)
            answer = lends() if line.startswith("launch ") else "heard"
            if not line.startswith("event "):
                connection.send(answer) if answer else connection.close()

        desks.append(ControlSocket(loop, lambda one: one.route_to(lambda _words, line: heard(one, line))))
        thread.start()
        return {OUTER: desks[0].address, SOCKET_TOKEN: desks[0].token}, said

    yield make
    loop.post(loop.stop)
    thread.join(500)
    desks[0].close()
    loop.close()


def borrowed(roster: Roster = ROSTER) -> Loan:
    """What comes over a socket."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(json.dumps(lent(roster=roster)).encode() + b"\n")
        lender = Lender(ours)
        loan = lender.borrow()
        assert loan is not None and theirs.recv(100) == f"launch {os.getpid()}\n".encode()
        lender.close()
    return loan


def test_the_hosts_and_what_the_job_was_told_are_lent() -> None:
    loan = borrowed()
    assert loan[:4] == (2, "algo-2", ("algo-1", "algo-2", "algo-3"), ("algo-1", "algo-2"))
    assert loan.in_roll_call(Offer("digits", "ranks", 1, "0"), "t.py")[1] == {
        seat.name: (seat.address,) for seat in SEATS
    }
    secret = loan.options["secret"]
    assert loan.options == {
        "slots": 3, "stop_signal": "USR1", "stop_grace": 90.0, "pid1_watch": "off", "log_dir": "/logs/launch-2",
        "rollcall_port": 7800, "secret": secret, "master_port": 0,
    }  # fmt: skip
    assert len(secret) == 64, "none of the job's own"
    assert (loan.variables, loan.masked) == ({"MUSTER_LOCAL": "1"}, ("hush",))


def test_a_job_of_one_host_lends_no_port_and_each_attempt_another_secret() -> None:
    """None where the job has none itself."""
    assert {"rollcall_port", "secret"} & set(borrowed(ALONE).options) == {"secret"}
    assert "secret" not in lent(Settings(), ALONE)["options"]
    secrets = [lent(roster=ROSTER._replace(attempt=attempt))["options"]["secret"] for attempt in (0, 1, 1)]
    assert secrets[0] != secrets[1] == secrets[2]


def test_a_job_of_several_hosts_takes_one_launch_at_a_time() -> None:
    assert "already on algo-2 (process 77)" in lent(running=(77,))["refused"]
    assert "refused" not in lent(roster=ALONE, running=(77, 78))


@pytest.mark.parametrize(
    ("environ", "given", "slots", "grace"),
    [
        ({}, {}, 3, 90.0),
        ({}, {"slots": 2}, 2, 90.0),
        ({"MUSTER_SLOTS": "2"}, {}, 2, 90.0),
        ({"MUSTER_SLOTS": ""}, {}, 3, 90.0),
        ({"MUSTER_SLOTS": "4"}, {"slots": 2}, 2, 90.0),
        ({}, {"stop_grace": 10.0}, 3, 10.0),
        ({"MUSTER_STOP_GRACE": "10"}, {}, 3, 10.0),
        ({"MUSTER_STOP_GRACE": "500"}, {}, 3, 90.0),
    ],
)
def test_a_launchs_own_options_go_before_the_jobs(
    environ: dict[str, str], given: dict[str, Any], slots: int, grace: float
) -> None:
    """But not for longer than its job has."""
    options = settings.from_environ(environ, borrowed().given(environ, given))
    assert (options.slots, options.stop_grace, options.stop_signal) == (slots, grace, "USR1")


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_restarts", "2"), ("upload", "s3://b/x"), ("checkpoints", "s3://b/x"), ("channel", "train=s3://b/x")],
)
def test_what_only_the_job_can_do_is_refused(field: str, value: str) -> None:
    option = BY_FIELD[field]
    with pytest.raises(UsageError, match=f"^{option.flag} .*: this launch is part of .* set {option.variable} in"):
        borrowed().given({option.variable: value}, {})


def test_a_launch_has_the_jobs_hosts_and_directories_and_its_own_code() -> None:
    """Reports are the job's."""
    loan = borrowed()
    own = Job("plain", "x", ("x",), "x", ("x",), EntryPoint("u.py"), paths=Paths(code="/mine"))
    job = loan.job(own)
    assert (job.hosts, job.group_hosts, job.current_host) == (loan.hosts, loan.group, "algo-2")
    assert job.paths == PATHS._replace(code="/mine", failure="", success="")
    assert job.entry_point == own.entry_point


def test_what_the_job_had_planned_for_its_ranks_is_nobodys_for_a_launch() -> None:
    environ = {"RANK": "3", "MASTER_PORT": "7777", "A": "mine", "MUSTER_PLANNED": "RANK,MASTER_PORT"}
    assert borrowed().environ(environ) == {"A": "mine", "MUSTER_PLANNED": "RANK,MASTER_PORT", "MUSTER_LOCAL": "1"}


# -- the other end --


def test_a_job_above_that_hangs_up_lends_nothing() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    assert Lender(ours).borrow() is None


def test_the_job_above_hears_of_processes_and_of_the_end(above: Above) -> None:
    """And of a launch that comes to nothing; its timeline has no events of other kinds."""
    environ, said = above(str)
    lender = Lender.find(environ)
    assert lender is not None
    lender.tell("rank-ended", {"rank": 1, "path": {1}})
    lender.tell("hosts-met", {})
    failure = Failure("algo-2", 7, "user", "user", "ValueError: boom\nrank 1", 1)
    lender.ended(Outcome(7, failure, secondary=Secondary(same=1), warnings=("half",)))
    assert report(failure, environ)
    event, ended, alone = said
    assert json.loads(event.removeprefix("event ")) == ["rank-ended", {"rank": 1, "path": "{1}"}]
    told, nothing = (json.loads(line.removeprefix("ended ")) for line in (ended, alone))
    assert Failure.from_wire(nothing["failure"]) == failure
    assert (told["pid"], told["warnings"]) == (os.getpid(), ["half"])
    assert Failure.from_wire(told["failure"]).reason == "ValueError: boom\nrank 1\n1 other rank failed the same way"


REQUEST = Request({"SAGEMAKER_BASE_DIR": "/nonexistent"}, {"slots": 2}, "train.py")


def launched(request: Request) -> int:
    """An entry point, which ends with 3 below a job and with 5 where there is none."""

    def runtime_of(request: Request) -> Any:
        return SimpleNamespace(request=request, timeline=SimpleNamespace(pass_on=print), loop=Loop())

    def run(runtime: Any, end: Callable[[Any, Outcome], None]) -> int:
        loan = runtime.request.loan
        assert loan is None or runtime.request.given["slots"] == 2
        end(runtime, Outcome(0))
        return 5 if loan is None else 3

    return below(request, runtime_of, run, lambda _runtime, _outcome: None)


@pytest.mark.parametrize("environ", [{}, {OUTER: ""}, {OUTER: "@musterpoint-of-a-job-that-is-gone"}])
def test_nobody_above(environ: dict[str, str]) -> None:
    assert Lender.find(environ) is None
    assert launched(REQUEST._replace(environ=environ)) == 5
    assert not report(Failure("", 64, "muster", "user", "muster: no such file"), environ)


@pytest.mark.parametrize(
    ("lends", "given", "code", "says"),
    [
        (lambda: json.dumps(lent()), {}, 3, ""),
        (lambda: json.dumps(lent(running=(77,))), {}, 64, "runs already on algo-2"),
        (lambda: json.dumps(lent()), {"max_restarts": 2}, 64, "part of another musterpoint's job"),
        (lambda: "", {}, 143, "it lends nothing, and nothing starts"),
    ],
    ids=["lends", "refuses", "an option of the job's", "ends"],
)
def test_how_a_launch_ends_by_what_it_is_lent(
    above: Above, capfd: pytest.CaptureFixture[str], lends: Callable[[], str], given: dict[str, Any], code: int,
    says: str,
) -> None:  # fmt: skip
    environ, said = above(lends)
    assert launched(REQUEST._replace(environ=environ, given={"slots": 2, **given})) == code
    assert says in capfd.readouterr().err
    told = [json.loads(line.removeprefix("ended ")) for line in said[1:]]
    assert [one["failure"] and one["failure"]["code"] for one in told] == {3: [None], 64: [64], 143: []}[code]
    assert all(one["failure"] is None or says in one["failure"]["reason"] for one in told)
