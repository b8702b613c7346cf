"""CLUSTER_SPEC of Vertex AI."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.model import Job
from musterpoint.core.job.read import read_job

FIRST, WORKERS = "cmle-training-workerpool0-ab-0", [f"cmle-training-workerpool1-ab-{at}" for at in range(2)]
CLUSTER = {"workerpool0": [f"{FIRST}:2222"], "workerpool1": [f"{worker}:2222" for worker in WORKERS]}
JOB = '{"python_module":"","package_uris":[],"job_args":[]}'


def read(cluster: Any = CLUSTER, pool: Any = "workerpool1", index: Any = 1, **more: Any) -> Job:
    spec = {"cluster": cluster, "environment": "cloud", "task": {"type": pool, "index": index}, "job": JOB, **more}
    return read_job({"CLUSTER_SPEC": json.dumps(spec), "CLOUD_ML_JOB_ID": "7"}, Settings(), "/nowhere", "train.py")


def test_the_first_replica_leads_the_workers() -> None:
    assert (read().platform, read().name, read().hosts) == ("vertex", "7", (FIRST, *WORKERS))
    assert (read().current_host, read(pool="workerpool0", index=0).current_host) == (WORKERS[1], FIRST)
    assert read({"chief": ["localhost:1234"]}, "chief", 0).hosts == ("localhost",)  # a job's only replica
    assert read({"workerpool0": ["a"], "workerpool1": []}, "workerpool0", 0).hosts == ("a",)


def test_servers_take_no_part() -> None:
    cluster = {**CLUSTER, "workerpool2": ["reducer-0:2222"], "workerpool3": []}
    job = read(cluster)
    assert (len(job.hosts), [note.text for note in job.notes[1:]]) == (
        3,
        ["CLUSTER_SPEC: workerpool2 take no part: they serve"],
    )
    with pytest.raises(UsageError, match=r"task\.type is workerpool2"):
        read(cluster, "workerpool2", 0)


@pytest.mark.parametrize(
    ("different", "named"),
    [
        ({"cluster": []}, "cluster is"),
        ({"cluster": {"workerpool0": "a:1"}, "pool": "workerpool0"}, "cluster.workerpool0 is"),
        ({"cluster": {"workerpool0": ["a b:1"]}, "pool": "workerpool0"}, r"cluster.workerpool0\[0\]"),
        ({"cluster": {"workerpool0": [7]}, "pool": "workerpool0"}, r"cluster.workerpool0\[0\]"),
        ({"cluster": {"workerpool0": ["a:1", "a:2"]}, "pool": "workerpool0"}, "every replica once"),
        ({"pool": "workerpool9"}, "task.type is"),
        ({"pool": None}, "task.type is"),
        ({"index": 2}, "task.index is 2"),
        ({"index": -1}, "task.index is -1"),
    ],
)
def test_a_wrong_field_is_named(different: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=f"^CLUSTER_SPEC.*{named}|{named}"):
        read(**different)


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["cluster", "task", "type", "index", "workerpool0"]), inner)).map(json.dumps))  # fmt: skip
def test_any_text_is_a_job_or_refused(text: str) -> None:
    if not text:
        return
    try:
        read_job({"CLUSTER_SPEC": text}, Settings(), "/nowhere", "train.py")
    except UsageError as error:
        assert "CLUSTER_SPEC" in str(error)
