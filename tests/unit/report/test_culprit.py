"""From real tails, the error that ended the program."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.report.culprit import abort_code, find, inner_code, until_abort

TAILS = {path.stem: path.read_bytes() for path in (Path(__file__).parent / "tails").glob("*.txt")}

# tail -> (start of the error, innermost user frame "file:line" or "", kind)
CULPRITS = {
    "abort": ("Fatal Python error: Aborted", "abort.py:2", "fatal"),
    "addrinuse": ("torch.distributed.DistNetworkError: The server socket", "addrinuse.py:5", "exception"),
    "after_the_error": ("ValueError: label 1001 of 1000", "train.py:12", "exception"),
    "args": ("args.py: error: unrecognized arguments: --foo 1", "", "line"),
    "bar": ("FloatingPointError: loss is inf", ".py:4", "exception"),
    "bare_group": ("ExceptionGroup: loading failed (2 sub-exceptions)\nValueError: never raised (and 1 other)",
                   "bare_group.py:1", "exception"),
    "cause": ("ValueError: the configuration lacks lr", "cause.py:4", "exception"),
    "connreset": ("ConnectionResetError: [Errno 104]", "connreset.py:6", "exception"),
    "cpp": ("terminate called after throwing an instance of 'std::runtime_error'\nwhat():  shard 7", "", "line"),
    "cpuoom": ("RuntimeError: [enforce fail at alloc_cpu.cpp", "cpuoom.py:2", "exception"),
    "cuda_oom": ("torch.OutOfMemoryError: CUDA out of memory.", "train.py:61", "exception"),
    "custom": ("main.<locals>.Local: a: b: c", "custom.py:5", "exception"),
    "during": ("RuntimeError: no weights to start from", "during.py:4", "exception"),
    "exited": ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated", "exited.py:5", "exception"),
    "exitmsg": ("dataset /opt/ml/input/data/train is empty", "", "last"),
    "futures": ("KeyError: 'label'", "spawn.py:4", "exception"),
    "gloo_closed": ("RuntimeError: [/__w/pytorch", "peer.py:18", "exception"),
    "group": ("ExceptionGroup: loading failed (2 sub-exceptions)\nValueError: bad shard 3 (and 1 other)", "group.py:1",
              "exception"),
    "gloo_exit": ("Fatal Python error: Aborted", "", "fatal"),
    "gloo_exit_bare": ("saved model.pt", "", "last"),
    "ignored": ("RuntimeError: the real one", "ignored.py:5", "exception"),
    "ignored_after": ("RuntimeError: the real one", "ignored_after.py:4", "exception"),
    "killedworker": ("RuntimeError: DataLoader worker (pid 13385) is killed", "killedworker.py:7", "exception"),
    "launcher": ("ValueError: bad batch at step 3", "child.py:2", "exception"),
    "launcher_git": ("fatal: not a git repository", "", "line"),
    "launcher_kill": ("subprocess.CalledProcessError: Command", "launcher_kill.py:2", "exception"),
    "loader": ("IndexError: sample 0 out of range", "spawn.py:7", "exception"),
    "logged": ("step 59 loss 0.017", "", "last"),
    "missing": ("missing.sh: line 3: torchrunn: command not found", "", "line"),
    "module": ("ModuleNotFoundError: No module named", "module.py:1", "exception"),
    "mpi_tagged": ("ValueError: label 1001 of 1000", "train.py:12", "exception"),
    "mpich_abort": ("Abort(5) on node 2 (rank 2 in comm 0): application called MPI_Abort(", "", "line"),
    "mpich_finalize": ("Abort(807528207): Fatal error in internal_Finalize: Other MPI error", "", "line"),
    "mpich_raise": ("ValueError: boom of rank 3", "end.py:11", "exception"),
    "multi": ("RuntimeError: Error(s) in loading state_dict for Linear:\n\tMissing key(s)", "multi.py:3", "exception"),
    "nccl_remote": ("torch.distributed.DistBackendError: NCCL error in:", "train.py:41", "exception"),
    "nothing_wrong": ("step 2", "", "last"),
    "pool": ("KeyError: 'label'", "spawn.py:4", "exception"),
    "process": ("KeyError: 'image_17'", "process.py:2", "exception"),
    "quiet": ("epoch 3 accuracy 0.91", "", "last"),
    "recursion": ("RecursionError: maximum recursion depth exceeded", "recursion.py:1", "exception"),
    "segfault": ("Fatal Python error: Segmentation fault", "peer.py:12", "fatal"),
    "spawn": ("KeyError: 'label'", "spawn.py:4", "exception"),
    "store_gone": ("torch.distributed.DistNetworkError: Failed to recv", "storegone.py:8", "exception"),
    "tf_graph_error": ("tensorflow.python.framework.errors_impl.InvalidArgumentError: assertion failed: [loss too b",
                       "train.py:4", "exception"),
    "tf_keras3_fit": ("ValueError: Attempt to convert a value (PerReplica:{", "train.py:12", "exception"),
    "tf_keras_graph_error": ("tensorflow.python.framework.errors_impl.InvalidArgumentError: Received a label value of",
                             "train.py:5", "exception"),
    "tf_socket_closed": ("tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: Sock",
                         "train.py:20", "exception"),
    "tf_user_code": ("ValueError: Dimension size must be evenly divisible by 7 but is 10", "train.py:4", "exception"),
    "syntax": ("SyntaxError: invalid syntax", "syntax.py:1", "exception"),
    "task": ("RuntimeError: the real one", "task.py:5", "exception"),
    "thread": ("RuntimeError: loss is NaN at step 12", "thread.py:4", "exception"),
    "torchrun_exit": ("the program's own torchrun says: its rank 1 ended with exit code 7", "", "line"),
    "torchrun_raise": ("ValueError: bad batch at step 3", "peer.py:9", "exception"),
    "torchrun_record": ("ValueError: bad batch at step 3", "recorded.py:4", "exception"),
    "truncated": ("RuntimeError: mat1 and mat2 shapes cannot be multiplied", "net.py:7", "exception"),
}  # fmt: skip


@pytest.mark.parametrize("name", CULPRITS)
def test_the_error_that_ended_the_program(name: str) -> None:
    text, frame, kind = CULPRITS[name]
    error = find(TAILS[name])
    assert error is not None
    assert error.text.startswith(text)
    assert error.kind == kind
    innermost = f"{error.frames[-1].file}:{error.frames[-1].line}" if error.frames else ""
    assert innermost.endswith(frame)
    assert bool(innermost) == bool(frame)


def test_silence_has_no_culprit() -> None:
    assert find(b"") is None
    assert find(b"\n\n") is None


INNER = {
    "launcher": 7, "launcher_kill": 137, "launcher_git": None, "exited": 7, "torchrun_exit": 7, "torchrun_record": 1,
    "torchrun_raise": 1, "cause": None, "silent": None,
}  # fmt: skip


@pytest.mark.parametrize("name", INNER)
def test_the_code_behind_a_launcher(name: str) -> None:
    assert inner_code(TAILS[name]) == INNER[name]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"exitcode  : -9 (pid: 7) (SIGKILL)", 137),
        (b"exitcode  : 3 (pid: 7)", 3),
    ],
)
def test_torchruns_table(text: bytes, code: int) -> None:
    table = b"Root Cause (first observed failure):\n[0]:\n  rank      : 5 (local_rank: 1)\n  " + text
    assert inner_code(table) == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"subprocess.CalledProcessError: Command 'bash train.sh' returned non-zero exit status 9.", 9),
        (b"subprocess.CalledProcessError: Command '['python', 'x.py']' died with <Signals.SIGSEGV: 11>.", 139),
        (b"subprocess.CalledProcessError: Command '['git', 'pull']' returned non-zero exit status 128.", None),
        (b"torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL", 137),
    ],
)
def test_wrappers_that_name_a_code(text: bytes, code: int | None) -> None:
    assert inner_code(text) == code


def test_only_wrappers_are_called_so() -> None:
    wrappers = {name for name in CULPRITS if (error := find(TAILS[name])) is not None and error.wrapper}
    assert wrappers == {
        "exited", "killedworker", "launcher", "launcher_git", "launcher_kill", "torchrun_exit", "torchrun_raise",
        "torchrun_record",
    }  # fmt: skip


@given(st.lists(st.sampled_from(sorted(TAILS)) | st.binary(max_size=50), max_size=3), st.integers(0, 2000))
def test_nothing_makes_it_fail(parts: list[str | bytes], start: int) -> None:
    tail = b"\n".join(part if isinstance(part, bytes) else TAILS[part] for part in parts)[start:]
    find(tail)
    inner_code(tail)


@pytest.mark.parametrize(
    ("name", "code"), [("mpich_raise", 1), ("mpich_abort", 5), ("mpich_finalize", None), ("abort", None)]
)
def test_the_code_that_was_given_to_mpi_abort(name: str, code: int | None) -> None:
    assert abort_code(TAILS[name]) == code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"Abort(256) on node 0 (rank 0 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 256) - process 0", 1),
        (b"Abort(0) on node 0 (rank 0 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 0) - process 0", 1),
        (b"Abort(3): application called MPI_Abort(comm=0x84000002, -1) - process 12", 255),
        (b"print('application called MPI_Abort(MPI_COMM_WORLD, 5) - process 0')", None),
    ],
)
def test_the_code_is_one_that_a_process_can_end_with(line: bytes, code: int | None) -> None:
    assert abort_code(b"before\n" + line + b"\nafter") == code


def test_what_comes_after_the_call_is_aftermath() -> None:
    tail = TAILS["mpich_abort"]
    assert until_abort(tail).endswith(b"application called MPI_Abort(MPI_COMM_WORLD, 5) - process 2")
    assert until_abort(TAILS["mpich_finalize"]) == TAILS["mpich_finalize"]
