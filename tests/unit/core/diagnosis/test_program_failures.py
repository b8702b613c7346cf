"""What the end of a user's program means: exact codes, the class, the order of the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.base.failure import MOST_REASON, Failure
from musterpoint.base.masking import Masker
from musterpoint.core.code.program_files import CodeDirectory
from musterpoint.core.diagnosis import diagnose, program_output
from musterpoint.core.diagnosis.evidence import DiagnosisContext, Evidence, ProcessEnd
from musterpoint.core.diagnosis.program_failures import failure_of_rank, failure_of_service

HERE = DiagnosisContext("algo-3", files=CodeDirectory("/opt/ml/code"))
TAILS = Path(__file__).parent / "tails"


def end(status: int | None, tail: bytes = b"", oom: bool = False) -> Evidence:
    return Evidence(5, 1, status, 1234.5, oom=oom, tail=tail)


def of(name: str, status: int | None = 1, oom: bool = False) -> Failure:
    return failure_of_rank(end(status, (TAILS / f"{name}.txt").read_bytes(), oom), HERE)


def test_the_layout() -> None:
    failure = of("cuda_oom")
    assert failure.reason.split("\n") == [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
        "GPU 1 has a total capacity of 15.77 GiB of which 1.21 GiB is free.",
        "rank 5 (local rank 1) on algo-3, exit code 1",
        "hint: try a smaller batch per rank, or PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where much is "
        "reserved but unallocated",
        '  File "train.py", line 61, in main',
        "    loss.backward()",
        '  File "train.py", line 88, in <module>',
        "    main()",
    ]
    assert failure[:4] == ("algo-3", 1, "user", "oom")
    assert (failure.rank, failure.local_rank, failure.signal, failure.at) == (5, 1, None, 1234.5)


@pytest.mark.parametrize(
    ("name", "lead"), [("gloo_exit", "Fatal Python error: Aborted\nrank 5 "), ("gloo_exit_bare", "rank 5 ")]
)
def test_an_abort_when_the_program_was_through_says_what_to_do(name: str, lead: str) -> None:
    reason = of(name, -6).reason
    assert reason.startswith(lead)
    assert "hint: the program was through; torch's gloo threads" in reason
    assert "hint" not in of(name, 1).reason
    raised = b'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: x\n'
    assert "hint" not in failure_of_rank(end(-6, raised + (TAILS / f"{name}.txt").read_bytes()), HERE).reason


ENDS = [
    (7, False, "exit code 7", 7, None),
    (256 - 1, False, "exit code 255", 255, None),
    (-9, False, "killed by SIGKILL (exit code 137)", 137, 9),
    (-9, True, "killed by the kernel's out-of-memory killer (OOM; exit code 137)", 137, 9),
    (137, True, "killed by the kernel's out-of-memory killer (OOM; exit code 137)", 137, None),
    (-11, False, "killed by SIGSEGV (exit code 139)", 139, 11),
    (-6, False, "killed by SIGABRT (exit code 134)", 134, 6),
    (-64, False, "killed by SIGRTMAX (exit code 192)", 192, 64),
    (None, False, "ended unseen (exit code 1)", 1, None),
]


@pytest.mark.parametrize(("status", "oom", "text", "code", "signal"), ENDS)
def test_codes_and_signals(status: int | None, oom: bool, text: str, code: int, signal: int | None) -> None:
    failure = failure_of_rank(end(status, oom=oom), DiagnosisContext("algo-2"))
    assert failure.reason == f"rank 5 (local rank 1) on algo-2, {text}"
    assert (failure.code, failure.signal) == (code, signal)


@pytest.mark.parametrize(
    ("name", "status", "code", "kind", "lead"),
    [
        ("segfault", -11, 139, "user", "Fatal Python error: Segmentation fault\nrank 5 (local rank 1) on algo-3, kill"),
        ("launcher", 1, 7, "user", "ValueError: bad batch at step 3\nrank 5 (local rank 1) on algo-3, exit code 7"),
        ("launcher", 9, 9, "user", "ValueError: bad batch at step 3\nrank 5 (local rank 1) on algo-3, exit code 9"),
        ("launcher_kill", 1, 137, "infra", "subprocess.CalledProcessError"),
        ("torchrun_exit", 1, 7, "user",
         "the program's own torchrun says: its rank 1 ended with exit code 7\nrank 1 (local rank 1) on algo-3, exit"),
        ("gloo_closed", 1, 1, "peer", "RuntimeError: [/__w/pytorch"),
        ("killedworker", 1, 1, "oom", "RuntimeError: DataLoader worker (pid 13385) is killed by signal: Killed."),
        ("quiet", 7, 7, "user", "rank 5 (local rank 1) on algo-3, exit code 7\nits last line: epoch 3 accuracy 0.91"),
        ("silent", 7, 7, "user", "rank 5 (local rank 1) on algo-3, exit code 7"),
        ("missing", 127, 127, "user", "missing.sh: line 3: torchrunn: command not found\nrank 5"),
    ],
)  # fmt: skip
def test_real_ends(name: str, status: int, code: int, kind: str, lead: str) -> None:
    failure = of(name, status, oom=name == "killedworker")
    assert failure.reason.startswith(lead)
    assert (failure.code, failure.kind) == (code, kind)


def test_a_child_that_the_oom_killer_took_is_told_behind_who() -> None:
    lines = of("killedworker", 1, oom=True).reason.split("\n")
    assert lines[1:3] == [
        "rank 5 (local rank 1) on algo-3, exit code 1",
        "the kernel's out-of-memory killer (OOM) ended a process there meanwhile",
    ]


def test_what_a_rank_had_printed_when_it_was_told_to_end() -> None:
    """It counts where the first failure is the same; what it printed last is none."""
    raised = b'Traceback (most recent call last):\n  File "t.py", line 2, in <module>\n    main()\nValueError: bad lr\n'
    usage = b"usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lrr\n"
    for tail, first in (
        (raised, "ValueError: bad lr"),
        (usage, "train.py: error: unrecognized arguments: --lrr"),
        (b"step 1\nstep 2\n", None),
        (b"", None),
    ):
        failure = diagnose(end(-15, tail)._replace(seen="cut short"), HERE)
        assert (failure and failure.reason.partition("\n")[0]) == first


@pytest.mark.parametrize(
    ("text", "function", "ends"), [("", "<module>", True), ("", "up", False), ("step 1\n", "<module>", False)]
)
def test_a_rank_that_still_runs_has_raised_only_what_nothing_caught(text: str, function: str, ends: bool) -> None:
    head = "Traceback (most recent call last):\n"
    tail = f'{head}  File "t.py", line 2, in {function}\n    1 / 0\nZeroDivisionError: division by zero\n{text}'
    assert (diagnose(end(1, tail.encode())._replace(seen="raising"), HERE) is not None) == ends


def test_stdout_is_read_where_stderr_says_nothing() -> None:
    only_out = Evidence(0, 0, 3, 0.0, tail=b"", stdout_tail=b"ERROR: no data in /opt/ml/input\n")
    assert failure_of_rank(only_out, DiagnosisContext("algo-1")).reason.startswith(
        "ERROR: no data in /opt/ml/input\nrank 0"
    )


def test_known_secrets_are_hidden() -> None:
    tail = b'  File "/c/t.py", line 1, in f\n    login("hunter2222")\nValueError: hunter2222 was refused\n'
    mask = Masker({"DB_PASSWORD": "hunter2222"}).mask_user
    reason = failure_of_rank(end(1, tail), DiagnosisContext("algo-1", mask)).reason
    assert "hunter2222" not in reason
    assert reason.count("***") == 2


def test_a_long_message_leaves_room_for_who_and_where() -> None:
    tail = b'  File "/c/t.py", line 1, in f\n    g()\nValueError: ' + "é".encode() * 5000
    reason = failure_of_rank(end(1, tail), DiagnosisContext("algo-1", files=CodeDirectory("/c"))).reason
    assert len(reason.encode()) <= MOST_REASON
    first, who, *frames = reason.split("\n")
    assert first.startswith("ValueError: éé")
    assert first.endswith("…")
    assert who == "rank 5 (local rank 1) on algo-1, exit code 1"
    assert frames == ['  File "t.py", line 1, in f', "    g()"]


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ('  File "t.py", line 1, in f\n    pickle.load(other)\nEOFError: Ran out of input\n', True),
        ('  File "t.py", line 1, in f\n    pipe.recv()\n'
         '  File "/usr/lib/python3.11/multiprocessing/connection.py", line 399, in _recv\n    raise EOFError\n'
         "EOFError\n", True),
        ('  File "t.py", line 1, in f\n    sock.recv(8)\nConnectionResetError: [Errno 104] reset by peer\n', True),
        ('  File "t.py", line 1, in f\n    raise EOFError("the shard is too short")\n'
         "EOFError: the shard is too short\n", False),
        ('  File "t.py", line 1, in f\n    read(other)\nEOFErrorInShard: 3\n', False),
    ],
)  # fmt: skip
def test_a_connection_that_ended_may_be_anothers_fault(text: str, lost: bool) -> None:
    """Its class is the user's all the same: the same is said of a file that is too short."""
    failure = failure_of_rank(end(1, b"Traceback (most recent call last):\n" + text.encode()), HERE)
    assert (failure.lost_connection, failure.kind, failure.is_symptom) == (lost, "user", False)


def of_mpi(
    name: str, status: int | None, given_up: bool = False, hydra: bool = False, aborted: bool = False
) -> Failure:
    tail = (TAILS / f"{name}.txt").read_bytes()
    of_mpi = end(status, tail)._replace(mpi=True, given_up=given_up, ends_anyhow=hydra, aborted=aborted)
    return failure_of_rank(of_mpi, HERE)


def test_a_rank_that_aborted_its_world_is_explained_with_what_it_wrote_until_then() -> None:
    failure = of_mpi("mpich_abort", 5, aborted=True)
    assert failure.reason.split("\n") == [
        "Abort(5) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5) - process 2",
        "rank 5 (local rank 1) on algo-3, exit code 5",
    ]
    assert failure.kind == "user"


@pytest.mark.parametrize(
    ("name", "status", "given_up", "kind"),
    [
        ("quiet", 14, False, "peer"),  # Open MPI 5's way to say that another rank is gone
        ("quiet", 7, False, "user"),
        ("quiet", 14, True, "peer"),
        ("quiet", 195, True, "peer"),
        ("quiet", 195, False, "user"),
        ("quiet", -9, True, "peer"),
        ("quiet", None, True, "peer"),
        ("quiet", 7, True, "user"),  # it called MPI_Abort, and mpirun was quicker to end its stub than it to end
        ("during", 1, True, "user"),
        ("mpi_lost", 1, True, "peer"),
        ("mpich_finalize", 15, False, "peer"),
        ("cuda_oom", 1, True, "oom"),
    ],
)
def test_ends_that_an_mpi_makes(name: str, status: int, given_up: bool, kind: str) -> None:
    assert of_mpi(name, status, given_up).kind == kind


def test_ranks_that_mpich_gave_up_end_with_anything() -> None:
    assert [of_mpi("during", status, True, hydra=True).kind for status in (7, 15, 1)] == ["peer"] * 3
    assert of("quiet", 14).kind == "user", "it means nothing elsewhere"


def test_a_service_of_the_users_fails_by_its_own_name() -> None:
    end = ProcessEnd("ps 0", "service", 127, 0, (TAILS / "missing.txt").read_bytes(), users=True)
    failure = failure_of_service(end, HERE)
    words = ["missing.sh: line 3: torchrunn: command not found", "ps 0 on algo-3, exit code 127"]
    assert failure.reason.split("\n") == words
    assert (failure.host, failure.code, failure.cause, failure.kind) == ("algo-3", 127, "user", "user")
    assert (failure.rank, failure.local_rank) == (None, None)
    killed = failure_of_service(end._replace(status=-9, oom=True), HERE)
    assert (killed.code, killed.kind, killed.signal) == (137, "oom", 9)


def test_a_mistake_of_ours_about_the_words_costs_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(*arguments: object) -> None:
        raise RecursionError

    monkeypatch.setattr(program_output, "find_error", find)
    assert failure_of_rank(end(7, b"ValueError: x\n"), HERE).reason == "rank 5 (local rank 1) on algo-3, exit code 7"


@pytest.mark.parametrize(
    ("last", "leads"),
    [("cleanup", False), ("Aborting.", False), ("see the docs", False), ("the loss is too high", True)],
)
def test_an_error_line_leads_over_a_closing_word_behind_it(last: str, leads: bool) -> None:
    said = "cp: cannot stat 'weights.bin': No such file or directory"
    reason = failure_of_rank(end(1, f"step 1\n{said}\n{last}\n".encode()), HERE).reason
    assert reason.startswith(f"{last if leads else said}\n")
