"""Hosts that are counted but not named: by options, by variables, and beside what a platform says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.readers import split_endpoint
from musterpoint.base.settings import Settings
from musterpoint.core.job.model import EntryPoint, Job, Sources, UnnamedHosts
from musterpoint.core.job.read import read_job
from musterpoint.core.job.unnamed import settled, unnamed_job

PET = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "node-1.cluster", "PET_MASTER_PORT": "29500"}
NAMED = {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-2"}


def job_of(environ: dict[str, str], base: Path, **options: Any) -> Job:
    return read_job(environ, Settings(**options), str(base), "train.py")


def found(job: Job) -> tuple[int, int | None, str, int]:
    assert job.unnamed is not None
    return job.unnamed[:4]


@pytest.mark.parametrize(
    ("environ", "expected", "slots"),
    [
        (PET, (2, 1, "node-1.cluster", 0), None),
        ({**PET, "PET_NPROC_PER_NODE": "4"}, (2, 1, "node-1.cluster", 0), 4),
        ({**PET, "PET_NPROC_PER_NODE": "gpu"}, (2, 1, "node-1.cluster", 0), None),
        ({**PET, "PET_NNODES": "2:2"}, (2, 1, "node-1.cluster", 0), None),
        ({"PET_NNODES": "3", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "h:29400"}, (3, None, "h", 29400), None),
        ({"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "h", "NPROC_PER_NODE": "8"}, (2, 0, "h", 0), None),
        ({"NUM_NODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "h", "WORLD_SIZE": "16"}, (2, 0, "h", 0), None),
    ],
)
def test_variables_describe_hosts(
    environ: dict[str, str], expected: tuple[int, int | None, str, int], slots: int | None, tmp_path: Path
) -> None:
    job = job_of(environ, tmp_path)
    assert found(job) == expected
    assert job.distribution.processes_per_host == slots
    assert job.hosts == tuple(f"node-{rank}" for rank in range(expected[0]))
    assert job.current_host == f"node-{expected[0] - 1 if expected[1] is None else expected[1]}"


@pytest.mark.parametrize(
    ("environ", "options", "sentence"),
    [
        ({**PET, "PET_NNODES": "1:4"}, {}, 'PET_NNODES="1:4": expected one number'),
        ({**PET, "PET_MASTER_ADDR": ""}, {}, "and nothing says where the hosts meet: set PET_MASTER_ADDR"),
        ({**PET, "PET_NODE_RANK": "-1"}, {}, 'PET_NODE_RANK="-1": expected a whole number, 0 to 131072'),
        ({**PET, "PET_NNODES": "9" * 5000}, {}, "expected a whole number, 1 to 131072"),
        ({**PET, "PET_NPROC_PER_NODE": "9" * 5000}, {}, "expected a whole number, 0 to 131072"),
        ({**PET, "PET_MASTER_ADDR": "a b"}, {}, 'PET_MASTER_ADDR="a b": expected HOST or HOST:PORT'),
        ({**PET, "PET_MASTER_ADDR": "0.0.0.0"}, {}, 'PET_MASTER_ADDR is "0.0.0.0", expected the first host\'s name'),
        ({**PET, "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, {}, "RANK=1, LOCAL_RANK=1, WORLD_SIZE=4"),
        ({}, {"nnodes": 2}, "--nnodes=2: nothing says where the hosts meet: pass --rollcall-leader HOST"),
        ({}, {"node_rank": 1}, "--node-rank is given, but not how many hosts there are: pass --nnodes N too"),
        ({}, {"nnodes": 1, "node_rank": 1}, "--node-rank is 1, and there is one host (--nnodes): it has node rank 0"),
        (NAMED, {"node_rank": 0}, "--node-rank=0 (MUSTER_NODE_RANK), but this host is algo-2 (sagemaker)"),
    ],
)
def test_what_makes_no_job_is_named(
    environ: dict[str, str], options: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        job_of(environ, tmp_path, **options)


def test_options_describe_hosts(tmp_path: Path) -> None:
    job = job_of({}, tmp_path, nnodes=3, node_rank=2, rollcall_leader="[fd::1]:99")
    assert found(job) == (3, 2, "fd::1", 99)
    assert job.own_name and job.own_name != job.current_host
    assert job.unnamed is not None and job.unnamed.sources == Sources()


def test_options_go_before_variables_of_a_wrapper(tmp_path: Path) -> None:
    assert found(job_of(PET, tmp_path, nnodes=3, rollcall_leader="h")) == (3, None, "h", 0)


@pytest.mark.parametrize("options", [{"nnodes": 1}, {"nnodes": 1, "node_rank": 0, "rollcall_leader": "h"}])
def test_one_host_is_named(options: dict[str, Any], tmp_path: Path) -> None:
    job = job_of({}, tmp_path, **options)
    assert (len(job.hosts), job.unnamed) == (1, None)


def test_a_loopback_address_of_the_leader_is_warned_of(tmp_path: Path) -> None:
    job = job_of({}, tmp_path, nnodes=2, rollcall_leader="localhost")
    assert [note.level for note in job.notes] == ["warning"]


def test_a_platform_that_names_its_hosts_agrees(tmp_path: Path) -> None:
    same = job_of(NAMED, tmp_path, nnodes=2, node_rank=1, rollcall_leader="algo-1")
    assert (same.hosts, same.unnamed) == (("algo-1", "algo-2"), None)


READ = unnamed_job("plain", UnnamedHosts(2, 1, "tj-0.tj", sources=Sources("PET_NNODES", "PET_NODE_RANK", "PET_ADDR")))


def test_a_readers_hosts_are_completed() -> None:
    job = settled(READ, Settings(rollcall_leader="other:7"))
    assert found(job) == (2, 1, "other", 7)
    by_arrival = READ._replace(unnamed=UnnamedHosts(2, None, "tj-0.tj"))
    assert found(settled(by_arrival, Settings(node_rank=0))) == (2, 0, "tj-0.tj", 0)
    assert settled(READ, Settings()).own_name
    for options, sentence in (
        ({"nnodes": 3}, "--nnodes=3 (MUSTER_NNODES), but PET_NNODES says 2"),
        ({"node_rank": 0}, "--node-rank=0 (MUSTER_NODE_RANK), but PET_NODE_RANK says 1"),
    ):
        with pytest.raises(UsageError, match=re.escape(sentence)):
            settled(READ, Settings(**options))


def test_a_reader_that_counts_one_host_names_it() -> None:
    one = Job("plain", "", ("node-0",), "node-0", ("node-0",), EntryPoint(""), unnamed=UnnamedHosts(1, 0, "h"))
    job = settled(one, Settings())
    assert (job.unnamed, job.hosts) == (None, (job.current_host,))


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [("h", ("h", 0)), ("h:1", ("h", 1)), ("fd::1", ("fd::1", 0)), ("[fd::1]", ("fd::1", 0)), ("[::1]:80", ("::1", 80))],
)
def test_endpoints(text: str, endpoint: tuple[str, int]) -> None:
    assert split_endpoint(text) == endpoint


@pytest.mark.parametrize("text", ["", "h:", ":1", "h:0", "h:65536", "h:http", "[fd::1", "[fd::1]1", "tcp://h", "a b"])
def test_what_is_no_endpoint(text: str) -> None:
    with pytest.raises(ValueError, match="expected HOST"):
        split_endpoint(text)


def test_a_name_for_the_job_where_the_platform_gives_none(tmp_path: Path) -> None:
    assert job_of({}, tmp_path).name == "train"
    assert job_of({}, tmp_path, job_name="run-7").name == "run-7"
    assert job_of({**NAMED, "TRAINING_JOB_NAME": "digits"}, tmp_path, job_name="run-7").name == "digits"
