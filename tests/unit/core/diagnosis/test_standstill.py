"""Stacks of ranks that print nothing: where each is, whether the job stands still, and the sentence about it.

``stacks/*.json`` are stacks of real jobs that hung (or only seemed to), read with py-spy: four ranks on two hosts,
PyTorch 2.13 with Gloo, under ``ranks`` and ``torchrun``.
"""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.position import LONGEST, Position, PositionKind
from musterpoint.core.diagnosis.flight_records import MOST_KEPT, last_collective, masked, waits_in
from musterpoint.core.diagnosis.program_output import raised_aside
from musterpoint.core.diagnosis.standstill import (
    LOOKS,
    LongCalls,
    busy_sentence,
    got_on,
    latecomer,
    numbers,
    place_of,
    position,
    stall,
    stands_still,
    whereabouts,
    with_raised,
)

STACKS = Path(__file__).parent / "stacks"
WAIT = "ranks 0–2 wait in all_reduce (train.py:11); rank 3"
SENTENCES = {
    "sleep": (f"{WAIT} is in data loading: slow_read at data.py:8, asleep", 3),
    "order": (f"{WAIT} waits in barrier (train.py:38)", 3),
    "skip": (f"{WAIT} waits in another all_reduce (train.py:41)", 3),
    "stop": (f"{WAIT} is stopped (SIGSTOP) at train.py:43", 3),
    "loader": (f"{WAIT} is in data loading: batches at data.py:28; its worker is in __getitem__ at data.py:21", 3),
    "net": (
        "all 4 ranks wait in all_reduce at the same line (train.py:11): the network between them, or a rank of another "
        "group",
        None,
    ),
    "ddp": (
        "ranks 0–2 wait in backward (its gradient all-reduce) (train.py:55); rank 3 is in main at train.py:54, asleep",
        3,
    ),
    "ckpt": ("ranks 1–3 wait in all_reduce (train.py:11); rank 0 is in save at train.py:23, asleep", 0),
    "compile": (f"{WAIT} is in a subprocess: main at train.py:45, waiting for a subprocess", 3),
    "eval": ("ranks 1–3 wait in all_reduce (train.py:11); rank 0 is in evaluate at train.py:17", 0),
}


@pytest.mark.parametrize("file", sorted(STACKS.glob("*.json")), ids=lambda path: path.stem)
def test_the_sentence_of_a_recorded_hang(file: Path) -> None:
    ranks = json.loads(file.read_text())["ranks"]
    found = stall([position(int(rank), facts) for rank, facts in ranks.items()])
    assert found == SENTENCES[file.stem.partition(".")[0]]


SLEEPERS = {"sleep", "ckpt", "stop", "loader", "compile", "eval", "ddp"}


@pytest.mark.parametrize("file", sorted(STACKS.glob("*.json")), ids=lambda path: path.stem)
def test_who_is_late_in_a_recorded_hang(file: Path) -> None:
    """The rank that the sentence names, unless all are in some collective."""
    ranks = json.loads(file.read_text())["ranks"]
    late = [int(rank) for rank, facts in ranks.items() if latecomer(facts)]
    which = file.stem.partition(".")[0]
    assert late == ([SENTENCES[which][1]] if which in SLEEPERS else [])


def facts(*frames: tuple[str, str, int], **more: Any) -> dict[str, Any]:
    return {"state": "S", "threads": [{"name": "MainThread", "frames": [list(frame) for frame in frames]}], **more}


MAIN = ("<module>", "train.py", 9)
INSTALLED = [("step", "site-packages/mytrain/loop.py", 31), ("<module>", "site-packages/mytrain/__main__.py", 4)]
RUNPY = ("_run_code", "<frozen runpy>", 88)
BACKWARD = ("_engine_run_backward", "site-packages/torch/autograd/graph.py", 70)


JAX = ("State.initialize", "site-packages/jax/_src/distributed.py", 120)
SAVE = ("save", "train.py", 41)


@pytest.mark.parametrize(
    ("found", "where", "late"),
    [
        (facts(SAVE, MAIN), "at train.py:41, in save", True),
        (facts(MAIN, wchan="hrtimer_nanosleep"), "at train.py:9, asleep", True),
        (facts(SAVE, MAIN, source="loss.item()"), "at train.py:41, in save", False),  # another rank's, by a GPU
        (facts(JAX, MAIN), "at train.py:9, in initialize", False),
        ({"state": "S", "wchan": "hrtimer_nanosleep", "still": True}, "asleep", True),
        ({"state": "S", "wchan": "hrtimer_nanosleep", "still": False}, "", False),  # torch's store does, and looks
        ({"state": "S", "wchan": "futex_do_wait", "still": True}, "", False),
        ({"state": "D", "wchan": "rpc_wait_bit", "still": True}, "in the kernel (rpc_wait_bit)", True),
        (facts(MAIN, state="T"), "stopped (SIGSTOP) at train.py:9", True),
        ({"state": "Z"}, "has ended", False),
    ],
)
def test_the_whereabouts_of_one_rank(found: dict[str, Any], where: str, late: bool) -> None:
    assert (whereabouts(found), latecomer(found)) == (where, where if late else "")


@pytest.mark.parametrize(("group", "why"), [(8, "it waits for 8, the job has 2"), (2, "the network between them, or")])
def test_a_group_of_more_ranks_than_the_job_has(group: int, why: str) -> None:
    found = facts(("init_process_group", "site-packages/torch/distributed/distributed_c10d.py", 1), MAIN)
    found["threads"][0]["world"] = group
    sentence = stall([position(rank, found, 2) for rank in range(2)]).sentence
    assert sentence.startswith(f"all 2 ranks wait in init_process_group at the same line (train.py:9): {why}")


@pytest.mark.parametrize(
    ("found", "kind", "words", "spot"),
    [
        ({}, "unknown", "could not be read", ""),
        ({"state": "S", "error": "no py-spy"}, "unknown", "could not be read (no py-spy)", ""),
        ({"state": "D"}, "unknown", "could not be read (in the kernel: state D)", ""),
        ({"error": "none", "wchan": "do_wait"}, "unknown", "could not be read (none; it waits in do_wait)", ""),
        ({"state": "T"}, "stopped", "is stopped (SIGSTOP)", "no frame of the program's own"),
        ({"state": "Z"}, "stopped", "has ended", ""),
        (facts(MAIN), "place", "is in <module> at train.py:9", ""),
        (facts(*INSTALLED, RUNPY), "place", "is in step at loop.py:31", ""),
        (facts(MAIN, source="comm.Barrier()  # all"), "collective", "Barrier", "train.py:9"),
        (facts(("<lambda>", "train.py", 4), MAIN, source="wait = lambda: comm.Barrier()"), "collective", "Barrier",
         "train.py:9"),
        (facts(MAIN, source="[each.Wait() for each in sent]"), "collective", "Wait", "train.py:9"),
        (facts(MAIN, source="bar()", mpi=True, one_call=True, moving=True), "call",
         "is in <module> at train.py:9, in one call of a library", ""),
        (facts(MAIN, source="bar()", mpi=True, one_call=True, wchan="ep_poll"), "call",
         "is in <module> at train.py:9, in one call of a library", ""),
        (facts(MAIN, source="libc.sleep(60)", mpi=True, one_call=True, wchan="hrtimer_nanosleep"), "place",
         "is in <module> at train.py:9, asleep", ""),
        (facts(MAIN, source="bar()", mpi=True, one_call=False, moving=True), "place", "is in <module> at train.py:9",
         ""),
        (facts(("f", "threading.py", 1), MAIN, source="bar()", mpi=True, one_call=True), "place",
         "is in <module> at train.py:9, waiting for a lock", ""),
        (facts(("f", "threading.py", 1), MAIN, source="x.Barrier()"), "place",
         "is in <module> at train.py:9, waiting for a lock", ""),
        (facts(BACKWARD, MAIN), "collective", "backward (its gradient all-reduce)", "train.py:9"),
        (facts(BACKWARD, MAIN, moving=True), "place", "is in <module> at train.py:9", ""),
        (facts(("launch", "site-packages/torch/distributed/run.py", 1), children=[facts(MAIN)]), "place",
         "is in <module> at train.py:9", ""),
        (facts(("save", "site-packages/torch/serialization.py", 5), MAIN), "place",
         "is in a checkpoint: <module> at train.py:9", ""),
    ],
)  # fmt: skip
def test_where_a_rank_is(found: dict[str, Any], kind: PositionKind, words: str, spot: str) -> None:
    assert position(5, found) == Position(5, kind, words, spot, found.get("moving", False))


WAITING = Position(0, "collective", "all_reduce", "train.py:9")
ASLEEP = Position(1, "place", "is in read at data.py:8")


@pytest.mark.parametrize(
    ("positions", "still"),
    [
        ([WAITING, ASLEEP], True),
        ([WAITING, ASLEEP._replace(moving=True)], False),  # it reads
        ([WAITING._replace(moving=True), ASLEEP], True),  # an MPI's barrier waits busily
        ([WAITING._replace(moving=True), WAITING._replace(rank=1, moving=True)], False),  # perhaps each a new one
    ],
)
def test_whether_a_job_stands_still(positions: list[Position], still: bool) -> None:
    assert stands_still(positions) is still


CALL = Position(0, "call", "is in sync at train.py:9, in one call of a library", moving=True)


@pytest.mark.parametrize(
    ("positions", "looks", "still"),
    [
        ([CALL, ASLEEP], 1, False),
        ([CALL, ASLEEP], LOOKS - 1, False),  # it may compute
        ([CALL, ASLEEP], LOOKS, True),
        ([CALL, ASLEEP._replace(kind="stopped")], LOOKS, True),
        ([CALL, ASLEEP._replace(moving=True)], LOOKS, False),
        ([CALL, CALL._replace(rank=1)], LOOKS, False),  # both may compute
        ([CALL, CALL._replace(rank=1, moving=False)], LOOKS, False),  # an MPI that sleeps while another rank computes
        ([CALL, WAITING._replace(rank=1)], LOOKS, False),
        ([CALL, WAITING._replace(rank=2, moving=True), ASLEEP], LOOKS, True),
        ([got_on(CALL), ASLEEP], LOOKS, False),  # its host has printed something since
    ],
)
def test_a_call_without_a_name_is_a_wait_once_nobody_can_be_waited_for(
    positions: list[Position], looks: int, still: bool
) -> None:
    assert stands_still(positions, looks) is still


def test_a_rank_that_stays_in_one_call_of_an_mpi_waits_after_three_looks() -> None:
    def looked(*numbers: int) -> list[Position]:
        calls, found = LongCalls(), []
        for number in numbers:
            seen = facts(("sync", "train.py", 9), mpi_call=number, moving=True, mpi=True, one_call=True)
            calls.looked({"1": seen})
            found.append(position(1, seen))
        return found

    waits = Position(1, "collective", "a call of its MPI", "train.py:9")
    assert [one == waits for one in looked(4, 4, 4, 4)] == [False, False, True, True]
    assert [one == waits for one in looked(4, 4, 5, 5, 5, 0, 5, 5)] == [False] * 4 + [True] + [False] * 3
    assert stands_still([waits, waits._replace(rank=2)])
    assert not stands_still([waits, CALL])  # the other one may compute


def test_places_are_the_same_though_a_busy_wait_did_not_get_the_processor() -> None:
    assert place_of([CALL, ASLEEP]) == place_of([ASLEEP, CALL._replace(moving=False, call=3)])
    assert place_of([CALL, ASLEEP]) != place_of([CALL, ASLEEP._replace(words="is in read at data.py:9")])


def test_who_sleeps_is_blamed_and_not_who_is_in_a_call() -> None:
    found = stall([ASLEEP._replace(rank=0), CALL._replace(rank=1), CALL._replace(rank=2, moving=False)])
    assert found.suspect == 0
    assert found.sentence == (
        "ranks 1, 2 are in sync at train.py:9, in one call of a library; rank 0 is in read at data.py:8"
    )


def test_several_ranks_are_spoken_of_as_several() -> None:
    ended = [Position(rank, "stopped", "has ended with 0") for rank in (0, 2)]
    asleep = [ASLEEP, ASLEEP._replace(rank=3)]
    assert stall([*ended, *asleep]).sentence == "ranks 0, 2 have ended with 0; ranks 1, 3 are in read at data.py:8"


def test_ranks_at_the_same_line_in_different_calls_are_told_apart() -> None:
    ahead = [WAITING._replace(rank=rank, call=7) for rank in range(3)]
    behind = WAITING._replace(rank=3, call=6)
    assert stall([*ahead, behind]) == (
        "ranks 0–2 wait in all_reduce (train.py:9, call 7); rank 3 waits in another all_reduce (train.py:9, call 6)",
        3,
    )
    same = (
        "all 4 ranks wait in all_reduce at the same line (train.py:9): the network between them, or a rank of another"
    )
    for call in (7, 0):  # the same one, or not known of a rank
        assert stall([*ahead, behind._replace(call=call)]).sentence.startswith(same)


def test_who_gets_on_is_named() -> None:
    both = [WAITING._replace(moving=True), ASLEEP._replace(moving=True)]
    assert busy_sentence(both) == "rank 1 is in read at data.py:8"
    assert busy_sentence(both[:1]) == "rank 0 waits in all_reduce (train.py:9)"


@pytest.mark.parametrize(
    ("ranks", "words"),
    [([3], "rank 3"), ([2, 0, 1, 5], "ranks 0–2, 5"), ([0, 1], "ranks 0, 1"),
     (range(0, 40, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14, …")],
)  # fmt: skip
def test_numbers_of_ranks(ranks: list[int], words: str) -> None:
    assert numbers(ranks) == words


names = st.text(max_size=300)
frames = st.lists(st.tuples(names, names, st.integers()), max_size=4).map(lambda found: [list(one) for one in found])
threads = st.lists(st.fixed_dictionaries({"name": names, "frames": frames}), max_size=3)
processes = st.fixed_dictionaries({}, optional={"state": names, "wchan": names, "error": names, "threads": threads})


@given(st.lists(st.tuples(processes, st.lists(processes, max_size=2), st.booleans()), min_size=1, max_size=5))
def test_whatever_the_stacks_are_there_is_a_sentence_and_a_message(found: list[Any]) -> None:
    positions = [
        position(rank, {**process, "children": children, "moving": moving})
        for rank, (process, children, moving) in enumerate(found)
    ]
    assert stall(positions).sentence
    if any(one.moving for one in positions):
        assert busy_sentence(positions)
    for one in positions:
        assert max(len(one.words), len(one.spot)) <= LONGEST
        sent = Position.from_wire(json.loads(json.dumps(one)))
        assert sent._replace(words="", spot="") == one._replace(words="", spot="")


@pytest.mark.parametrize(
    "value",
    [None, {}, [], [1, "place", "x", "y"], [-1, "place", "", "", False, 0], [True, "place", "", "", False, 0],
     [1, "nowhere", "", "", False, 0], [1, "place", 2, "", False, 0], [1, "place", "", "", 0, 0],
     [1, "place", "", "", False, -1], [1, "place", "", "", False, True]],
)  # fmt: skip
def test_what_is_no_position_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="a position"):
        Position.from_wire(value)


def test_tensorflow_waits_in_its_collectives() -> None:
    """Frames as py-spy names them under Python 3.11, with their classes; innermost first."""
    below = "site-packages/tensorflow/python/"
    step = [
        ["quick_execute", f"{below}eager/execute.py", 53], ["Function.__call__", f"{below}eager/function.py", 833],
        ["Model.fit", "site-packages/tf_keras/src/engine/training.py", 1804], ["<module>", "train.py", 12],
    ]  # fmt: skip
    reduces = [
        ["Condition.wait", "threading.py", 327], ["Pool.map", "multiprocessing/pool.py", 367],
        ["StrategyExtendedV2.batch_reduce_to", f"{below}distribute/distribute_lib.py", 2831],
        ["ReplicaContextBase.all_reduce.<locals>.batch_all_reduce", f"{below}distribute/distribute_lib.py", 3622],
        ["StrategyBase.run", f"{below}distribute/distribute_lib.py", 1673], ["collective", "train.py", 5],
    ]  # fmt: skip
    hangs = [["Hang.on_train_batch_end", "train.py", 10], *step[2:]]
    for frames, moving, kind, words in (
        (step, False, "collective", "a step of TensorFlow"), (step, True, "place", "is in <module> at train.py:12"),
        (reduces, False, "collective", "all_reduce"),
        (hangs, False, "place", "is in Hang.on_train_batch_end at train.py:10"),
    ):  # fmt: skip
        found = position(0, {"threads": [{"name": "MainThread", "frames": frames}], "state": "S", "moving": moving})
        assert (found.kind, found.words) == (kind, words)


# as torch 2.13 dumps it
ENTRY: dict[str, Any] = {
    "frames": [{"name": "step", "filename": "/opt/ml/code/s3cret/train.py", "line": 17}], "record_id": 2, "pg_id": 0,
    "process_group": ("0", "default_pg"), "collective_seq_id": 3, "p2p_seq_id": 0, "op_id": 3,
    "profiling_name": "nccl:all_reduce", "input_sizes": [[4, 2]], "input_dtypes": ["Float"], "state": "started",
    "retired": False, "is_p2p": False, "time_discovered_started_ns": None,
}  # fmt: skip


def record(*entries: dict[str, Any]) -> bytes:
    return pickle.dumps({"version": "2.10", "pg_config": {}, "entries": list(entries)}, protocol=2)


def test_secrets_are_hidden_and_the_rest_is_the_same() -> None:
    kept = pickle.loads(masked(record(ENTRY), lambda text: text.replace("s3cret", "***")))
    assert kept["entries"][0]["frames"][0]["filename"] == "/opt/ml/code/***/train.py"
    assert kept["entries"][0]["process_group"] == ["0", "default_pg"]
    assert (kept["version"], kept["entries"][0]["input_sizes"]) == ("2.10", [[4, 2]])


def test_the_oldest_are_left_out() -> None:
    large = {**ENTRY, "frames": [{"name": "f" * 200, "filename": str(n) * 1000, "line": n} for n in range(40)]}
    kept = masked(record(*({**large, "record_id": n} for n in range(200))), str)
    assert len(kept) <= MOST_KEPT
    assert pickle.loads(kept)["entries"][-1]["record_id"] == 199


class Runs:
    def __reduce__(self) -> Any:
        return os.abort, ()


@pytest.mark.parametrize(
    "data",
    [b"", b"no pickle", pickle.dumps([1]), pickle.dumps({"entries": 1}), pickle.dumps({"entries": [Runs()]}),
     pickle.dumps({"entries": [b"\0"]}), record(ENTRY)[:-20]],
)  # fmt: skip
def test_what_is_no_record(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        masked(data, str)
    assert (last_collective(data), waits_in(data)) == ("", 0)


@given(st.binary(max_size=60))
def test_nothing_else_is_raised(data: bytes) -> None:
    try:
        masked(data, str)
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "nccl:all_reduce, number 3 of default_pg, of [[4, 2]]: not completed"),
        ({"retired": True, "input_sizes": []}, "nccl:all_reduce, number 3 of default_pg: completed"),
        ({"is_p2p": True, "p2p_seq_id": 7, "process_group": ("1", ""), "input_sizes": None},
         "nccl:all_reduce, number 7 of 1: not completed"),
        ({"process_group": 1}, ""),
    ],
)  # fmt: skip
def test_the_last_collective(change: dict[str, Any], said: str) -> None:
    assert last_collective(record(ENTRY, {**ENTRY, **change})) == said
    assert waits_in(record(ENTRY, {**ENTRY, **change})) == (0 if change else 3)


THREAD = b"Exception in thread Thread-1 (w):\nTraceback (most recent call last):\n" + (
    b'  File "t.py", line 4, in w\n    load()\nRuntimeError: lost shard 3\n'
)


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (THREAD, "RuntimeError: lost shard 3"),
        (THREAD + b"step 8\n" * 50, ""),
        (THREAD.replace(b"Exception in thread Thread-1 (w)", b"Exception ignored in <f>"), ""),
        (THREAD.partition(b"\n")[2], ""),
    ],
)
def test_a_thread_that_died_is_named_with_who_waits_for_it(tail: bytes, said: str) -> None:
    assert raised_aside(tail) == said
    waits = with_raised(Position(1, "collective", "all_reduce", "t.py:9"), "", said)
    places = [Position(0, "collective", "all_reduce", "t.py:9"), waits]
    assert (stall(places).suspect, said in stall(places).sentence) == (1 if said else None, True)


def test_no_collective_yet() -> None:
    assert last_collective(record()) == ""
