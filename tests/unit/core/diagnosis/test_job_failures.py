"""What goes wrong around the user's programs, and in our own."""

from __future__ import annotations

import errno
import os

import pytest

from musterpoint.base.errors import FetchError, LauncherError, RollCallError, UsageError
from musterpoint.base.failure import Failure, failure_of_error
from musterpoint.core.code.program_files import CodeDirectory
from musterpoint.core.diagnosis import diagnose
from musterpoint.core.diagnosis.evidence import DiagnosisContext, Evidence, JobFacts, ProcessEnd
from musterpoint.core.diagnosis.program_failures import failure_of_rank, failure_of_service_or_launcher
from musterpoint.core.launch.launch_plan import Argument, ProcessPlan
from musterpoint.core.supervise.own_failures import cannot_start, daemon_refused, unplanned_rank, wrong_world

HERE = DiagnosisContext("algo-2", lambda text: text.replace("hush", "***"))
PROCESS = ProcessPlan("rank", "rank 3", (Argument("/code/tool"),), cwd="/gone", rank=3, local_rank=1)


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("number", "step", "words"),
    [
        (errno.ENOENT, "exec", "rank 3 on algo-2: can't execute /code/tool: No such file or directory"),
        (errno.EACCES, "exec", "can't execute /code/tool: Permission denied (is it executable?)"),
        (errno.ENOEXEC, "exec", "can't execute /code/tool: Exec format error (a script needs a first line"),
        (errno.E2BIG, "exec", "can't execute /code/tool: Argument list too long (is a hyperparameter or a variable"),
        (errno.EAGAIN, "fork", "muster: rank 3 on algo-2: no process can be started: Resource temporarily"),
        (errno.EAGAIN, "fork", "--pids-limit"),
        (errno.ENOENT, "chdir", "can't enter the working directory /gone: No such file or directory"),
    ],
)
def test_what_cannot_start(number: int, step: str, words: str) -> None:
    failure = cannot_start(PROCESS, os_error(number), step, HERE)
    assert failure.reason.startswith("muster: ")
    assert words in failure.reason
    code, kind = (72, "infra") if step == "fork" else (64, "user")
    assert (failure.host, failure.code, failure.cause, failure.kind) == ("algo-2", code, "muster", kind)
    assert (failure.rank, failure.local_rank) == (3, 1)


def test_a_secret_in_the_place_of_a_program_is_hidden() -> None:
    context = DiagnosisContext("algo-2", lambda text: text.replace(PROCESS.words[0], "***"))
    assert "can't execute ***: " in cannot_start(PROCESS, os_error(errno.ENOENT), "exec", context).reason


@pytest.mark.parametrize(
    ("status", "registered", "words"),
    [
        (1, 0, "torchrun ended before any of its ranks had come up (exit code 1) on algo-2"),
        (0, 2, "torchrun ended while its ranks were running (exit code 0) on algo-2"),
        (-9, 2, "torchrun ended while its ranks were running (killed by SIGKILL) on algo-2"),
    ],
)
def test_a_launcher_that_ended_too_early(status: int, registered: int, words: str) -> None:
    failure = failure_of_service_or_launcher(ProcessEnd("torchrun", "launcher", status, registered), HERE)
    assert failure.reason == f"muster: {words}"
    assert (failure.code, failure.cause, failure.kind, failure.rank) == (72, "muster", "infra", None)
    assert failure.signal == (9 if status == -9 else None)


def test_a_port_that_was_taken_while_the_launcher_started() -> None:
    said = (
        b"torch.distributed.DistNetworkError: failed to listen. port: 29400, code: -98, name: EADDRINUSE, x\n  more\n"
    )
    failure = failure_of_service_or_launcher(ProcessEnd("torchrun", "launcher", 1, 0, said), HERE)
    assert failure.reason.startswith(
        "muster: port 29400 is in use on algo-2: without --master-port a free one is taken\n"
    )
    assert failure.code == 72


def test_a_server_of_ours_that_ended_too_early() -> None:
    greeting = (
        b"I0000 00:00:1795 21 port.cc:153] oneDNN custom operations are on.\nTo enable the following instructions: A\n"
    )
    failure = failure_of_service_or_launcher(ProcessEnd("ps 1", "service", -9, 0, greeting), HERE)
    assert failure.reason == "muster: ps 1 ended before the job was done (killed by SIGKILL) on algo-2"
    said = failure_of_service_or_launcher(
        ProcessEnd("ps 1", "service", 1, 0, greeting + b"ModuleNotFoundError: tensorflow\n"), HERE
    )
    assert said.reason.splitlines()[1:] == ["its last lines:", "ModuleNotFoundError: tensorflow"]


def test_its_last_words_are_told_without_secrets_and_within_the_limit() -> None:
    tail = "".join(f"line {number}\n" for number in range(500)) + "ValueError: the password is hush\n"
    reason = failure_of_service_or_launcher(
        ProcessEnd("torchrun", "launcher", 1, 0, tail.encode() + b"\xff"), HERE
    ).reason
    assert "its last lines:" in reason
    assert "the password is ***" in reason
    assert "hush" not in reason
    assert "line 1\n" not in reason
    assert len(reason.encode()) <= 900


@pytest.mark.parametrize(
    ("failure", "host", "words"),
    [
        (wrong_world(3, 2, 4, HERE), "algo-2", "rank 3 on algo-2 got a world of 2 rank(s), but 4 were planned"),
        (unplanned_rank(3, 2, 2, HERE), "algo-2", "rank 3 (local rank 2) on algo-2, where 2 rank(s) were planned"),
        (daemon_refused("algo-7", "orted is not there, hush\n", HERE), "algo-7", "on algo-7: orted is not there, ***"),
    ],
)
def test_what_a_launcher_or_a_daemon_does_otherwise_than_planned(failure: Failure, host: str, words: str) -> None:
    assert words in failure.reason
    assert (failure.host, failure.code, failure.cause, failure.kind) == (host, 72, "muster", "infra")


@pytest.mark.parametrize(
    ("status", "registered", "kind"), [(1, 2, "peer"), (0, 2, "peer"), (-9, 2, "infra"), (1, 0, "infra")]
)
def test_an_mpirun_that_ends_by_itself_may_be_an_echo(status: int, registered: int, kind: str) -> None:
    """Unless nothing ran yet, or somebody killed it."""
    end = ProcessEnd("mpirun", "launcher", status, registered, mpi=True)
    assert failure_of_service_or_launcher(end, HERE).kind == kind
    assert failure_of_service_or_launcher(end._replace(mpi=False), HERE).kind == "infra"
    assert failure_of_service_or_launcher(end._replace(users=True), HERE).cause == "user"


def test_a_rank_is_explained_with_its_own_words_and_paths_below_the_code() -> None:
    tail = (
        b'Traceback (most recent call last):\n  File "/opt/ml/code/train.py", line 3, in step\n    loss()\n'
        b"RuntimeError: hush is wrong\n"
    )
    context = DiagnosisContext("algo-2", lambda text: text.replace("hush", "***"), CodeDirectory("/opt/ml/code"))
    failure = failure_of_rank(Evidence(5, 1, 1, 10.0, tail=tail), context)
    assert failure.reason.splitlines()[:2] == [
        "RuntimeError: *** is wrong",
        "rank 5 (local rank 1) on algo-2, exit code 1",
    ]
    assert 'File "train.py", line 3, in step' in failure.reason
    assert (failure.cause, failure.code, failure.rank, failure.at) == ("user", 1, 5, 10.0)


OSERROR = (
    b'Traceback (most recent call last):\n  File "t.py", line 3, in save\n    save()\nOSError: no space for hush\n'
)
SILENCED = (
    b"Exception ignored in atexit callback: <bound method finalize._exitfunc>\nTraceback (most recent call last):\n"
    b'  File "train.py", line 9, in save\n    sys.exit(143)\n'
)
WENT = b"torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15\n"


@pytest.mark.parametrize(
    ("wrote", "reason"),
    [
        (b"", None),
        (b"validation error: 0.05\n", None),
        (b'Traceback (most recent call last):\n  File "run.py", line 3, in f\n    f()\n' + WENT, None),
        (OSERROR, "OSError: no space for ***"),
        (SILENCED + b"SystemExit: 143\nrank 1 saved\n", None),
        (SILENCED + b"KeyboardInterrupt: \n", None),
        (OSERROR + SILENCED + b"SystemExit: 143\n", "OSError: no space for ***"),
    ],
)
def test_what_was_left_behind_in_a_stop_failed_only_if_it_raised_something(wrote: bytes, reason: str | None) -> None:
    for tails in ((wrote, b""), (b"", wrote)):
        failure = diagnose(Evidence(0, 0, 1, 1.0, False, *tails, seen="orphans"), HERE)
        assert (failure and failure.reason.partition("\n")[0]) == reason


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [(UsageError, 64, "user"), (RollCallError, 69, "infra"), (FetchError, 71, "infra"), (LauncherError, 72, "user")],
)
def test_our_own_errors(error: type[Exception], code: int, kind: str) -> None:
    failure = failure_of_error(error("--slots=x: expected a number"), "algo-1")
    where = "" if error is RollCallError else "\non algo-1"  # the same failure on every host has the same words
    assert failure.reason == "muster: --slots=x: expected a number" + where
    assert (failure.code, failure.cause, failure.kind) == (code, "muster", kind)


def test_a_bug_of_ours_brings_its_traceback() -> None:
    try:
        {}["seat"]
    except KeyError as error:
        failure = failure_of_error(error, "algo-1")
    assert failure.code == 70
    lead = "muster: internal error, please report it: KeyError: 'seat'\non algo-1, exit code 70\n"
    assert failure.reason.startswith(lead)
    assert "test_job_failures.py" in failure.reason


def test_a_service_that_raised_leads_with_what_it_raised() -> None:
    """A parameter server may end before a rank that has the same error; that it ended says nothing of why."""
    tail = b'Traceback (most recent call last):\n  File "/x/server.py", line 14, in main\n    import tensorflow\n'
    tail += b"ModuleNotFoundError: No module named 'tensorflow'\n"
    here = HERE._replace(job=JobFacts(python="/opt/conda/bin/python"))
    failure = failure_of_service_or_launcher(ProcessEnd("ps 0", "service", 1, 0, tail), here)
    assert failure.reason.splitlines() == [
        "muster: ModuleNotFoundError: No module named 'tensorflow'",
        "ps 0 ended before the job was done (exit code 1) on algo-2",
        "hint: the program's Python is /opt/conda/bin/python (--python names another one)",
    ]
    assert failure.code == 72
