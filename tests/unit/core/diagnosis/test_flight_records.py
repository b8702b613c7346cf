"""Records of torch's flight recorder: read with care, secrets hidden, small enough."""

from __future__ import annotations

import os
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.diagnosis.flight_records import MOST_KEPT, last_collective, masked, waits_in

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


def test_no_collective_yet() -> None:
    assert last_collective(record()) == ""
