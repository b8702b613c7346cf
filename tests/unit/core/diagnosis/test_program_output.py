"""From real tails, the error that ended the program."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.diagnosis.program_output import abort_code, find_error, inner_code, until_abort

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
    "cpp": ("std::runtime_error: shard 7", "", "line"),
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
    "raised_gloo_exit": ("ValueError: the loss is nan", "train.py:12", "exception"),
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
    "horovodrun_raise": ("LookupError: no such shard: 17", "train.py:8", "exception"),
    "horovodrun_shut_down": ("LookupError: no such shard: 17", "train.py:7", "exception"),
    "horovodrun_exit7": ("the program's own horovodrun says: its rank 1 ended with exit code 7", "", "line"),
    "horovodrun_kill": ("the program's own horovodrun says: its rank 1 was killed by signal 9", "", "line"),
    "torchrun_exit": ("the program's own torchrun says: its rank 1 ended with exit code 7", "", "line"),
    "torchrun_raise": ("ValueError: bad batch at step 3", "peer.py:9", "exception"),
    "torchrun_record": ("ValueError: bad batch at step 3", "recorded.py:4", "exception"),
    "truncated": ("RuntimeError: mat1 and mat2 shapes cannot be multiplied", "net.py:7", "exception"),
}  # fmt: skip


@pytest.mark.parametrize("name", CULPRITS)
def test_the_error_that_ended_the_program(name: str) -> None:
    text, frame, kind = CULPRITS[name]
    error = find_error(TAILS[name])
    assert error is not None
    assert error.text.startswith(text)
    assert error.kind == kind
    innermost = f"{error.frames[-1].file}:{error.frames[-1].line}" if error.frames else ""
    assert innermost.endswith(frame)
    assert bool(innermost) == bool(frame)


def test_no_output_has_no_error() -> None:
    assert find_error(b"") is None
    assert find_error(b"\n\n") is None


INNER = {
    "launcher": 7, "launcher_kill": 137, "launcher_git": None, "exited": 7, "torchrun_exit": 7, "torchrun_record": 1,
    "torchrun_raise": 1, "cause": None, "silent": None, "horovodrun_raise": 1, "horovodrun_exit7": 7,
    "horovodrun_kill": 137,
}  # fmt: skip


@pytest.mark.parametrize("name", INNER)
def test_the_code_behind_a_launcher(name: str) -> None:
    assert inner_code(TAILS[name]) == INNER[name]


@pytest.mark.parametrize(
    ("text", "code"), [(b"exitcode  : -9 (pid: 7) (SIGKILL)", 137), (b"exitcode  : 3 (pid: 7)", 3)]
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
    wrappers = {name for name in CULPRITS if (error := find_error(TAILS[name])) is not None and error.wrapper}
    assert wrappers == {
        "exited", "killedworker", "launcher", "launcher_git", "launcher_kill", "torchrun_exit", "torchrun_raise",
        "torchrun_record", "horovodrun_raise", "horovodrun_shut_down", "horovodrun_exit7", "horovodrun_kill",
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("name", ["horovodrun_raise", "horovodrun_shut_down"])
def test_the_rank_that_raised_leads_whoever_ends_and_prints_first(name: str, seed: int) -> None:
    """horovodrun passes on the lines of its ranks, and its own, in any order."""
    lines = TAILS[name].splitlines(keepends=True)
    queues = [[line for line in lines if line[:4] == tag] for tag in (b"[0]<", b"[1]<")]
    ends = next(at for at, line in enumerate(lines) if line.startswith(b"Traceback"))
    queues.append([line for line in lines[:ends] if not line.startswith(b"[")])
    chooser, mixed = random.Random(seed), []
    while any(queues):
        queue = chooser.choice([one for one in queues if one])
        for _ in range(min(len(queue), chooser.choice((1, 3, 30)))):
            mixed.append(queue.pop(0))
    error = find_error(b"".join([*mixed, *lines[ends:]]), 1)
    assert error is not None
    assert (error.text, error.rank) == ("LookupError: no such shard: 17", 1)


RESET = "RuntimeError: TCPStore: connection reset by peer"
USERS = '  File "/opt/ml/code/train.py", line 9, in step\n    {}\n'
TORCHS = '  File "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3, in f\n    {}\n'
HEAD = "Traceback (most recent call last):\n"
WHILE = "\nDuring handling of the above exception, another exception occurred:\n\n"
FROM = "\nThe above exception was the direct cause of the following exception:\n\n"
LOST = f"{HEAD}{USERS.format('dist.all_reduce(x)')}{TORCHS.format('work.wait()')}{RESET}\n"
OWN = f"{HEAD}{USERS.format('raise Gone(text)')}{RESET}\n"
WATCHDOG = (
    "[rank1]:[E1121 10:00:00.0 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: W\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    "  what():  [PG ID 0] Process group watchdog thread terminated with exception\n"
)
ABORTED = (
    'Fatal Python error: Aborted\n\nThread 0x00007f (most recent call first):\n  File "train.py", line 3 in <module>\n'
)
TABLE = (
    HEAD + TORCHS.format("raise") + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "===\nRoot Cause (first observed failure):\n[0]:\n  rank      : {} (local_rank: 1)\n  exitcode  : {} (pid: 7)\n"
)
TOLD = "W1122 03:32:44.906000 23 torch/distributed/elastic/api.py:1028] Sending process 26 closing signal SIGTERM\n"


def tagged(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


# a tail -> whether it only tells of a failure elsewhere, whether at second hand, the rank that failed, words of it
BLAME: dict[str, tuple[str, bool, bool, int | None, str]] = {
    "a library lost a peer": (LOST, True, False, None, RESET),
    "the user's code says so itself": (OWN, False, False, None, RESET),
    "an assertion of the user's": (OWN.replace("raise Gone(text)", "assert ok, text"), False, False, None, RESET),
    "the same in a function's only line": (
        OWN.replace("raise Gone(text)", "def check(): raise Gone(text)"), False, False, None, RESET),
    "the same behind a condition": (
        OWN.replace("raise Gone(text)", "if gone: raise Gone(text)"), False, False, None, RESET),
    "a call that only mentions it": (
        OWN.replace("raise Gone(text)", "store.get(x)  # may raise"), True, False, None, RESET),
    "a call into a library without Python": (
        OWN.replace("raise Gone(text)", 'store.get("x")'), True, False, None, RESET),
    "a function of the user's that only begins so": (
        OWN.replace("raise Gone(text)", "raised()"), True, False, None, RESET),
    "raised by the user's over a lost peer": (
        f"{LOST}{FROM}{HEAD}{USERS.format('raise StepError(7)')}StepError: 7\n", True, False, None, "StepError: 7"),
    "a clean-up that fails over a lost peer": (
        f"{LOST}{WHILE}{HEAD}{USERS.format('log.close()')}OSError: log\n", True, False, None, "OSError: log"),
    "raised over what the user's code said itself": (
        f"{OWN}{WHILE}{HEAD}{USERS.format('raise StepError(7)')}StepError: 7\n", False, False, None, "StepError: 7"),
    "a traceback in a message": (
        f"{HEAD}{USERS.format('raise Gone(text)')}Gone: it said:\n\n{HEAD}{USERS.format('step()')}KeyError: 7\n",
        False, False, None, "Gone: it said:\nKeyError: 7"),
    "a child's traceback, then its parent's": (
        f"{HEAD}{USERS.format('step()')}KeyError: 7\n{HEAD}{USERS.format('raise Gone(text)')}Gone: it ended with 1\n",
        False, False, None, "Gone: it ended with 1"),
    "something else after a lost peer": (
        f"{LOST}{HEAD}{USERS.format('step()')}KeyError: 7\n", False, False, None, "KeyError: 7"),
    "a watchdog's abort": (WATCHDOG + ABORTED, True, False, None, "[Rank 1] Watchdog caught"),
    "a watchdog that saw a fault of this rank's own": (
        WATCHDOG + "CUDA error: an illegal memory access was encountered\n" + ABORTED, False, False, None, "Fatal"),
    "an abort for another reason": (ABORTED, False, False, None, "Fatal Python error: Aborted"),
    "agents that lost each other": (
        HEAD + TORCHS.format("raise") + "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: gone\n",
        True, False, None, "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError"),
    "torchrun: its rank lost a peer": (tagged(1, LOST) + TABLE.format(1, 1), True, False, 1, RESET),
    "torchrun: its rank failed": (tagged(3, OWN) + TABLE.format(3, 1), False, False, 3, RESET),
    "torchrun: before its ranks had met": (LOST + TABLE.format(1, 1), True, False, 1, RESET),
    "torchrun: a rank that took longer to end failed before": (
        tagged(0, OWN) + tagged(1, LOST) + TABLE.format(1, 1), False, False, 0, RESET),
    "torchrun: what a rank raises when it is told to end isn't why": (
        tagged(1, LOST) + tagged(0, OWN) + TABLE.format(1, 1), True, False, 1, RESET),
    "torchrun: no word": (TABLE.format(3, 7), False, True, 3, "the program's own torchrun says: its rank 3 ended with"),
    "torchrun: its rank's sys.exit(text)": (
        f"step 1\nstep 2\nno data\n{tagged(0, LOST)}{TOLD}rank 0 saved\n{TABLE.format(3, 1)}",
        False, True, 3, "no data\nthe program's own torchrun says: its rank 3 ended with exit code 1"),
    "torchrun: only progress": (
        f"step 1\nstep 2\n{TOLD}rank 0 saved\n{TABLE.format(3, 1)}",
        False, True, 3, "the program's own torchrun says: its rank 3 ended with exit code 1"),
    "torchrun: no word but other ranks' echoes": (
        tagged(0, LOST) + TABLE.format(3, -9), False, True, 3,
        "the program's own torchrun says: its rank 3 was killed by signal 9"),
    "torchrun: a crash": (
        ABORTED.replace("Aborted", "Segmentation fault") + TABLE.format(1, -11), False, False, 1, "Fatal Python error"),
    "torchrun: its rank's faulthandler had waited for too long": (
        f"Timeout (0:00:30)!\n{ABORTED.partition(chr(10))[2]}{TABLE.format(1, 1)}", False, False, 1, "Timeout"),
    "torchrun: its rank was interrupted": (
        HEAD + USERS.format("step()") + "KeyboardInterrupt\n" + TABLE.format(1, -2), False, False, 1,
        "KeyboardInterrupt"),
    "torchrun: another rank's interrupt": (
        HEAD + USERS.format("step()") + "KeyboardInterrupt\n" + TABLE.format(1, 1), False, False, None,
        "KeyboardInterrupt"),
    "torchrun: another rank's crash": (ABORTED + TABLE.format(1, -11), False, False, None, "Fatal Python error"),
    "torchrun: a watchdog's abort": (WATCHDOG + TABLE.format(1, -6), True, False, 1, "[Rank 1] Watchdog caught"),
    "torchrun: an abort without a word": (TABLE.format(1, -6), False, True, 1, "the program's own torchrun says"),
    "a launcher's child without a word": (
        f"{HEAD}{USERS.format('check_call(cmd)')}subprocess.CalledProcessError: Command '['python', 'x.py']' returned "
        "non-zero exit status 3.\n", False, True, None, "subprocess.CalledProcessError"),
    "a tool without a word": (
        f"{HEAD}{USERS.format('check_call(cmd)')}subprocess.CalledProcessError: Command '['git', 'pull']' returned "
        "non-zero exit status 3.\n", False, False, None, "subprocess.CalledProcessError"),
    "a signal that torchrun got after it said something of errors": (
        "validation error: 0.05\n" + HEAD + TORCHS.format("raise") + "torch.distributed.elastic.multiprocessing.api."
        "SignalException: Process 7 got signal: 15\n", True, False, None, "SignalException: Process 7 got signal: 15"),
    "a signal that torchrun got": (
        HEAD + TORCHS.format("raise") + "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got "
        "signal: 15\n", True, False, None, "SignalException: Process 7 got signal: 15"),
}  # fmt: skip


CRASHED = """
Thread 0x00007f (most recent call first):
  File "w.py", line 3 in f

Current thread 0x00007f (most recent call first):
  File "train.py", line 17 in step
"""
# a tail, how its program ended -> the whole text of its error
SAID: dict[str, tuple[str, int, str]] = {
    "a C++ exception": (
        "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: device lost\nmore\n"
        + "frame #1: x\n" * 60, -6, "c10::Error: CUDA error: device lost\nFatal Python error: Aborted"),
    "one without a message": (
        "terminate called after throwing an instance of 'int'\n", -6, "int\nFatal Python error: Aborted"),
    "one whose message is its type": (
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n", -6,
        "std::bad_alloc\nFatal Python error: Aborted"),
    "a C++ exception on macOS": (
        "libc++abi: terminating due to uncaught exception of type std::runtime_error: shard 7\n", -6,
        "std::runtime_error: shard 7\nFatal Python error: Aborted"),
    "an assertion": (
        "python: shard.c:17: read: Assertion `shard < 16' failed.\n", -6,
        "python: shard.c:17: read: Assertion `shard < 16' failed.\nFatal Python error: Aborted"),
    "glibc": ("free(): invalid pointer\n", -6, "free(): invalid pointer\nFatal Python error: Aborted"),
    "a check": (
        "F0101 10:00:00.000000 7 shard.cc:17] Check failed: shard < 16\n", -6,
        "F0101 10:00:00.000000 7 shard.cc:17] Check failed: shard < 16\nFatal Python error: Aborted"),
    "two libraries of OpenMP": (
        "OMP: Error #15: Initializing libomp.so, but found it already initialized.\n", -6,
        "OMP: Error #15: Initializing libomp.so, but found it already initialized.\nFatal Python error: Aborted"),
    "nothing": ("error: step 7 was slow\n", -6, "Fatal Python error: Aborted"),
    "long before": (
        "free(): invalid pointer\n" + "".join(f"step {step}\n" for step in range(50)), -6,
        "Fatal Python error: Aborted"),
    "another crash": ("free(): invalid pointer\n", -11, "Fatal Python error: Segmentation fault"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nccl_monitor", "Terminating the process after attempting to dump debug info, due to collective timeout"),
        ("nccl_monitor_hang", "Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL"),
        ("nccl_watchdog", "[PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with"),
    ],
)
def test_torchs_log_says_why_it_aborts(name: str, words: str) -> None:
    error = find_error(TAILS[name])
    assert error is not None and error.text.startswith(words)


@pytest.mark.parametrize("name", SAID)
def test_what_was_said_before_a_crash(name: str) -> None:
    tail, status, words = SAID[name]
    crash = {-6: "Aborted", -11: "Segmentation fault"}[status]
    error = find_error(f"epoch 1\n{tail}Fatal Python error: {crash}\n{CRASHED}".encode(), status)
    assert error is not None
    assert (error.text, error.frames[-1].line) == (words, 17)


TIMEOUT = f"epoch 1\nTimeout (0:00:30.500000)!\n{CRASHED.replace('Current thread', 'Thread')}"


@pytest.mark.parametrize(
    ("after", "status", "words"),
    [
        ("", 1, "Timeout (0:00:30.500000)!"),
        (f"{HEAD}{USERS.format('step()')}KeyError: 7\n", 1, "KeyError: 7"),
        ("the dataset is empty\n", 7, "the dataset is empty"),
    ],
)
def test_a_timeout_of_faulthandler_is_an_end_only_with_1(after: str, status: int, words: str) -> None:
    error = find_error(f"{TIMEOUT}{after}".encode(), status)
    assert error is not None
    assert error.text == words
    assert error.kind != "fatal" or error.frames[-1].line == 17


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("\n\nno such shard: 17\nof 16\n\n", "LookupError: no such shard: 17\nof 16"),
        ("\n    no such shard: 17", "LookupError: no such shard: 17"),
        ("\n\n", "LookupError:"),
    ],
)
def test_a_message_that_begins_with_an_empty_line(message: str, text: str) -> None:
    error = find_error(f"{HEAD}{USERS.format('read(17)')}LookupError: {message}\n".encode(), 1)
    assert error is not None
    assert error.text == text


@pytest.mark.parametrize("name", BLAME)
def test_whose_failure_a_tail_tells_of(name: str) -> None:
    tail, symptom, second_hand, rank, words = BLAME[name]
    error = find_error(tail.encode())
    assert error is not None
    assert words in error.text
    assert "saved" not in error.text
    assert "step 2" not in error.text
    assert (error.symptom, error.second_hand, error.rank) == (symptom, second_hand, rank)


@given(st.lists(st.sampled_from(sorted(TAILS)) | st.binary(max_size=50), max_size=3), st.integers(0, 2000))
def test_nothing_makes_it_fail(parts: list[str | bytes], start: int) -> None:
    tail = b"\n".join(part if isinstance(part, bytes) else TAILS[part] for part in parts)[start:]
    find_error(tail)
    inner_code(tail)


@pytest.mark.parametrize(
    ("name", "rank", "code"),
    [
        ("mpich_raise", 3, 1),
        ("mpich_abort", 2, 5),
        ("mpich_abort", 0, None),  # what another rank said, printed once more
        ("mpich_finalize", 2, None),
        ("abort", 0, None),
    ],
)
def test_the_code_that_was_given_to_mpi_abort(name: str, rank: int, code: int | None) -> None:
    assert abort_code(TAILS[name], rank) == code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"Abort(9) on node 0 (rank 12 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 256) - process 12", 1),
        (b"Abort(0) on node 0 (rank 12 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 0) - process 12", 1),
        (b"Abort(3): application called MPI_Abort(comm=0x84000002, -1) - process 12", 255),
        (b"print('application called MPI_Abort(MPI_COMM_WORLD, 5) - process 0')", None),
    ],
)
def test_the_code_is_one_that_a_process_can_end_with(line: bytes, code: int | None) -> None:
    assert abort_code(b"before\n" + line + b"\nafter", 12) == code


def test_what_comes_after_the_call_is_aftermath() -> None:
    tail = TAILS["mpich_abort"]
    assert until_abort(tail).endswith(b"application called MPI_Abort(MPI_COMM_WORLD, 5) - process 2")
    assert until_abort(TAILS["mpich_finalize"]) == TAILS["mpich_finalize"]


@pytest.mark.parametrize("label", [b"", b"[rank1]: "])
def test_a_group_below_the_programs_own_torchrun_is_told_whole(label: bytes) -> None:
    group = b"".join(label + line for line in TAILS["group"].splitlines(keepends=True))
    table = TAILS["torchrun_raise"]
    error = find_error(group + table[table.index(b"E1121 10:13:15") :])
    assert error is not None
    assert error.text == "ExceptionGroup: loading failed (2 sub-exceptions)\nValueError: bad shard 3 (and 1 other)"
    assert (error.rank, error.kind, error.symptom) == (1, "exception", False)


@pytest.mark.parametrize(
    ("said", "lead"),
    [
        (b"usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lr\n", "train.py: error: unrecognized arg"),
        (b"giving up\n", "the program's own torchrun says: its rank 1 ended with exit code 7"),
    ],
    ids=["an error", "no error"],
)
def test_words_before_a_code_below_the_programs_own_torchrun(said: bytes, lead: str) -> None:
    tail = TAILS["torchrun_exit"]
    start, at = tail.index(b"[rank0]"), tail.index(b"E1121 10:13")
    error = find_error(tail[:start] + said + tail[at:])
    assert error is not None
    assert error.text.startswith(lead)
    assert error.text.endswith("its rank 1 ended with exit code 7")
    assert error.rank == 1
