"""A DataLoader's worker that is gone is the loss of a process, and an EOFError of the user's own stays the user's."""

from __future__ import annotations

import json

import pytest

from musterpoint.core.diagnosis.evidence import DiagnosisContext, Evidence
from musterpoint.core.diagnosis.program_failures import failure_of_rank
from musterpoint.core.diagnosis.raised_facts import RaisedFacts
from musterpoint.core.supervise.retry import why_not_again

LIB, SITE = "/usr/lib/python3.11", "/usr/lib/python3.11/site-packages"
LOADER, PINS = f"{SITE}/torch/utils/data/dataloader.py", f"{SITE}/torch/utils/data/_utils/pin_memory.py"
# frames, as file:function
MAIN = ["train.py:<module>", f"{LOADER}:__next__", f"{LOADER}:_next_data", f"{LOADER}:_get_data"]
READS = [f"{LOADER}:_try_get_data", f"{LIB}/multiprocessing/queues.py:get"]
PINNING = ["/usr/lib/python3.11/threading.py:run", f"{PINS}:_pin_memory_loop", f"{PINS}:do_one_step"]
FETCHES = [
    f"{SITE}/torch/multiprocessing/reductions.py:rebuild_storage_fd", f"{LIB}/multiprocessing/resource_sharer.py:detach"
]  # fmt: skip
ENDS = f"{LIB}/multiprocessing/connection.py:_recv"
CONNECTS = [f"{LIB}/multiprocessing/resource_sharer.py:get_connection", f"{LIB}/multiprocessing/connection.py:Client"]
RECEIVES = [
    *CONNECTS,
    f"{LIB}/multiprocessing/connection.py:answer_challenge",
    f"{LIB}/multiprocessing/connection.py:_recv",
]
CALLS = [*CONNECTS, f"{LIB}/multiprocessing/connection.py:SocketClient"]
DESCRIPTORS = [f"{LIB}/multiprocessing/reduction.py:recv_handle", f"{LIB}/multiprocessing/reduction.py:recvfds"]
HANDLER = [f"{SITE}/torch/utils/data/_utils/signal_handling.py:handler"]
WORKER = "RuntimeError: DataLoader worker (pid 4711) "
KILLED = f"{WORKER}is killed by signal: Killed."
CRASHED = f"{WORKER}is killed by signal: Segmentation fault."
EXITED = f"{WORKER}exited unexpectedly with exit code 3. Details are lost due to multiprocessing."
GONE = "RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly"
PINNED = "RuntimeError: Pin memory thread exited unexpectedly"
FROM = "\nThe above exception was the direct cause of the following exception:\n\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
RESET = "ConnectionResetError: [Errno 104] Connection reset by peer"


def raised(frames: list[str], text: str) -> str:
    shown = (each.rpartition(":") for each in frames)
    listed = "".join(f'  File "{file}", line 7, in {function}\n    call()\n' for file, _, function in shown)
    return f"Traceback (most recent call last):\n{listed}{text}\n"


def read(text: str, way: list[str], first: list[str] = MAIN) -> str:
    return raised([*first, *READS, *FETCHES, *way], text)


# what a rank printed -> how the reason begins
LOST = {
    "the end of a file": (read("EOFError", RECEIVES), "EOFError\nrank 5"),
    "the end of descriptors": (read("EOFError", DESCRIPTORS), "EOFError\nrank 5"),
    "a reset": (read(RESET, RECEIVES), RESET),
    "nobody listens": (read("ConnectionRefusedError: [Errno 111] Connection refused", CALLS), "ConnectionRefusedError"),
    "no socket": (read("FileNotFoundError: [Errno 2] No such file or directory", CALLS), "FileNotFoundError"),
    "a pipe": (read("BrokenPipeError: [Errno 32] Broken pipe", RECEIVES), "BrokenPipeError"),
    "no descriptors": (read("RuntimeError: received 0 items of ancdata", DESCRIPTORS), "RuntimeError: received 0"),
    "no shared memory": (
        raised(
            [*MAIN, *READS, f"{SITE}/torch/multiprocessing/reductions.py:rebuild_storage_filename"],
            "RuntimeError: unable to open shared memory object </torch_4711_1> in read-write mode: No such file or "
            "directory (2)"),
        "RuntimeError: unable to open shared memory object"),
    "the queue itself": (raised([*MAIN, *READS, ENDS], "EOFError"), "EOFError\nrank"),
    "in rank 3": (read("EOFError", RECEIVES).replace("Traceback", "[rank3]: Traceback", 1), "EOFError\nrank 5"),
    "told behind it": (read("EOFError", RECEIVES, []) + FROM + raised([*MAIN, READS[0]], GONE), f"{GONE}\nrank 5"),
    "told while it is handled": (read(RESET, RECEIVES, []) + DURING + raised([*MAIN, *HANDLER], KILLED), KILLED),
    "told at exit": (
        read(RESET, RECEIVES) + raised([f"{LIB}/weakref.py:_exitfunc", *HANDLER], KILLED), f"{KILLED}\nrank 5"),
    "in the pinning thread": (
        "Exception in thread Thread-1 (_pin_memory_loop):\n"
        + raised([*PINNING, READS[1], *FETCHES, *RECEIVES], "EOFError") + raised(MAIN, PINNED), PINNED),
}  # fmt: skip
OWN = {
    "a data set's": (raised([*MAIN[:3], "data.py:__getitem__"], "EOFError: Ran out of input"), "EOFError: Ran out"),
    "a data set's, in a worker": (
        raised(
            [*MAIN[:3], f"{LOADER}:_process_data", f"{SITE}/torch/_utils.py:reraise"],
            "EOFError: Caught EOFError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
            '  File "data.py", line 7, in __getitem__\n    pickle.load(f)\nEOFError: Ran out of input'),
        "EOFError: Ran out of input"),
    "a class's that is unpickled": (
        raised([*MAIN, *READS, "data.py:__setstate__"], "EOFError: Ran out of input"), "EOFError: Ran out of input"),
    "a pipe's": (raised(["train.py:<module>", ENDS], "EOFError"), "EOFError\nrank 5"),
    "a pipe's in a data set": (raised([*MAIN[:3], "data.py:__getitem__", ENDS], RESET), RESET),
    "another error": (raised([*MAIN, *READS], "AttributeError: no attribute 'Batch'"), "AttributeError: no"),
    "an exit code": (read(RESET, RECEIVES, []) + FROM + raised([*MAIN, *HANDLER], EXITED), EXITED),
    "an exit code before": (
        raised([*READS, *HANDLER], EXITED) + FROM + raised([*MAIN, READS[0]], GONE), f"{EXITED}\nrank 5"),
    "an exit code at exit": (
        read(RESET, RECEIVES) + raised([f"{LIB}/weakref.py:_exitfunc", *HANDLER], EXITED), f"{EXITED}\nrank 5"),
    "a crash": (read("EOFError", RECEIVES, []) + DURING + raised([*MAIN, *HANDLER], CRASHED), CRASHED),
    "silence": (raised(READS, "_queue.Empty") + FROM + raised([*MAIN, READS[0]], GONE), f"{GONE}\nrank 5"),
    "the pinning thread's": (
        "Exception in thread Thread-1 (_pin_memory_loop):\n" + raised(PINNING, "ValueError: no") + raised(MAIN, PINNED),
        PINNED),
}  # fmt: skip
CONTEXT = DiagnosisContext("algo-3")


@pytest.mark.parametrize("name", LOST)
def test_a_worker_that_is_gone_is_the_loss_of_a_process(name: str) -> None:
    tail, lead = LOST[name]
    failure = failure_of_rank(Evidence(5, 1, 1, 0.0, tail=f"step 1\n{tail}".encode()), CONTEXT)
    assert failure.reason.startswith(lead)
    assert (failure.kind, why_not_again(failure)) == ("infra", "")
    assert failure_of_rank(Evidence(5, 1, 1, 0.0, True, f"step 1\n{tail}".encode()), CONTEXT).kind == "oom"


@pytest.mark.parametrize("name", OWN)
def test_what_the_user_did_stays_the_users(name: str) -> None:
    tail, lead = OWN[name]
    failure = failure_of_rank(Evidence(5, 1, 1, 0.0, tail=f"step 1\n{tail}".encode()), CONTEXT)
    assert failure.reason.startswith(lead)
    assert failure.kind == "user"
    assert "The above exception" not in failure.reason


@pytest.mark.parametrize(
    ("tail", "kind", "lead"),
    [
        ("", "infra", "EOFError\nrank 5"),
        (read("EOFError", RECEIVES), "infra", "EOFError\nrank 5"),
        (read("EOFError", RECEIVES) + raised([f"{LIB}/weakref.py:_exitfunc", *HANDLER], EXITED), "user", EXITED),
    ],
)
def test_so_it_is_where_the_rank_itself_tells_of_it(tail: str, kind: str, lead: str) -> None:
    shown = (each.rpartition(":") for each in [*MAIN, *READS, *FETCHES, *RECEIVES])
    chain = [{"text": "EOFError", "frames": [[file, 7, function] for file, _, function in shown]}]
    told = RaisedFacts.from_line(f"raised {json.dumps({'pid': 7, 'chain': chain})}")
    failure = failure_of_rank(Evidence(5, 1, 1, 0.0, tail=tail.encode(), raised=told), CONTEXT)
    assert (failure.kind, failure.reason[: len(lead)]) == (kind, lead)
