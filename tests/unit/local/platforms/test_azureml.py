"""AzureML's distributions in both SDKs' forms, and what each starts on which host."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.platforms.azureml import form_of, read_job
from musterpoint.local.job_request import LocalJob
from musterpoint.local.platforms.azureml_nodes import PLAYED, host_names, read_distribution
from musterpoint.local.platforms.local_platform import PlayedHost
from musterpoint.local.tree import Layout


@pytest.mark.parametrize(
    ("form", "hosts", "found"),
    [
        ({}, 2, {"type": "none", "per_host": None}),
        ({"type": "pytorch"}, 2, {"type": "pytorch", "per_host": None}),
        ({"type": "PyTorch", "process_count_per_instance": 4}, 2, {"type": "pytorch", "per_host": 4}),
        ({"type": "PyTorchConfiguration", "process_count": 8, "node_count": 2}, 2, {"type": "pytorch", "per_host": 4}),
        ({"type": "mpi"}, 2, {"type": "mpi", "per_host": 1}),
        ({"type": "Mpi", "process_count_per_node": 4, "node_count": 2}, 2, {"type": "mpi", "per_host": 4}),
        ({"type": "tensorflow"}, 2, {"type": "tensorflow", "workers": 2, "servers": 0}),
        ({"type": "tensorflow", "worker_count": 2, "parameter_server_count": 1}, 3,
         {"type": "tensorflow", "workers": 2, "servers": 1}),
        ({"type": "tensorflow", "parameter_server_count": 1}, 3, {"type": "tensorflow", "workers": 2, "servers": 1}),
        ({"type": "ray", "port": 6379}, 2, {"type": "ray", "per_host": 1}),
    ],
)  # fmt: skip
def test_forms(form: dict[str, Any], hosts: int, found: dict[str, Any]) -> None:
    assert read_distribution(form, hosts) == found


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"process_count": 2}, "--distribution: type is null, expected one of:"),
        ({"type": "horovod"}, 'type is "horovod", expected one of:'),
        ({"type": "pytorch", "processes": 2}, 'pytorch has no key "processes", expected {"type": "pytorch"'),
        ({"type": "pytorch", "process_count": 5}, "process_count is 5, the processes of all nodes"),
        ({"type": "pytorch", "process_count": 4, "process_count_per_instance": 4}, "leave one of them out"),
        ({"type": "mpi", "process_count_per_node": 0}, "process_count_per_node is 0, expected a whole"),
        ({"type": "mpi", "node_count": 3}, "node_count is 3, and the job has 2 hosts: say --hosts 3"),
        ({"type": "tensorflow", "worker_count": 2, "parameter_server_count": 1}, "say --hosts 3"),
    ],
)  # fmt: skip
def test_wrong_forms(form: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        read_distribution(form, 2)


def played(form: dict[str, Any], layout: Layout, rank: int = 1, **changes: Any) -> PlayedHost:
    hosts = host_names(2, "algo")
    job = LocalJob("digits", hosts, "train.py", "/code", ("--lr", "1"), distribution=read_distribution(form, 2),
                   platform="azureml", **changes)  # fmt: skip
    return PlayedHost(job, hosts[rank], layout, {"node-0": "10.0.0.4", "node-1": "10.0.0.5"}, "/opt/ml")


@pytest.mark.parametrize(
    ("form", "started", "how"),
    [
        ({"type": "pytorch", "process_count_per_instance": 2}, (2, 0, 4, 2), "processes"),
        ({"type": "pytorch"}, None, "node"),
        ({"type": "mpi", "process_count_per_instance": 2}, (2, 0, 4, 2), "mpi"),
        ({"type": "tensorflow"}, None, "tensorflow"),
        ({}, None, "none"),
    ],
)
def test_a_host_reads_what_it_is_given(form: dict[str, Any], started: Any, how: str, tmp_path: Path) -> None:
    """The reader understands the variables as they were meant, without a word of warning."""
    host = played(form, Layout(str(tmp_path)))
    assert PLAYED.seen is not None
    environ = {**PLAYED.environment(host), **PLAYED.seen(host)}
    assert form_of(environ) == how
    job = read_job(environ, Settings())
    assert (job.hosts, job.current_host) == (("10.0.0.4", "10.0.0.5"), "10.0.0.5")
    assert (tuple(job.started[:4]) if job.started else None) == started
    assert [note for note in job.notes if note.level == "warning"] == []
    assert (job.name, job.paths.model, job.paths.checkpoints) == ("digits", "/opt/ml/model", "/opt/ml/checkpoints")


def test_what_is_started(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path))
    ranks = PLAYED.processes(played({"type": "pytorch", "process_count": 4}, layout))
    assert [dict(process.environment)["AZUREML_PROCESS_NAME"] for process in ranks] == ["rank_2", "rank_3"]
    assert list(ranks[0].argv[-4:]) == ["launch", "train.py", "--lr", "1"]
    (once,) = PLAYED.processes(played({"type": "pytorch"}, layout, module=True))
    assert list(once.argv[-5:]) == ["launch", "-m", "train.py", "--lr", "1"]
    (first,) = PLAYED.processes(played({"type": "mpi"}, layout, 0))
    (second,) = PLAYED.processes(played({"type": "mpi"}, layout))
    assert (first.argv[0], second.argv[0]) == ("mpirun", "sh")
    config = json.loads(PLAYED.environment(played({"type": "tensorflow"}, layout))["TF_CONFIG"])
    assert config["cluster"] == {"worker": ["10.0.0.4:2222", "10.0.0.5:2222"], "ps": []}, "as AzureML writes it"


def test_mpirun_is_given_no_loopback_address_that_it_would_wait_for(tmp_path: Path) -> None:
    """Of 127.0.0.11 it doesn't know that it is its own host, and several of them it takes for one."""
    layout = Layout(str(tmp_path))
    both = played({"type": "mpi", "process_count_per_instance": 2}, layout, 0)
    alone = both._replace(job=both.job._replace(hosts=("node-0",)), addresses={"node-0": "127.0.0.11"})
    (process,) = PLAYED.processes(alone)
    words = list(process.argv)
    assert words[words.index("--host") + 1] == "localhost:2"
    with pytest.raises(UsageError, match=r"--backend process: .*use --backend netns"):
        PLAYED.processes(both._replace(addresses={"node-0": "127.0.0.11", "node-1": "127.0.0.12"}))


def test_options_that_azureml_has_not(tmp_path: Path) -> None:
    host = played({}, Layout(str(tmp_path)))
    with pytest.raises(UsageError, match="--hyperparameters"):
        PLAYED.check(host.job._replace(hyperparameters={"lr": 1}))
    with pytest.raises(UsageError, match="--host-slots"):
        PLAYED.check(host.job._replace(host_slots=(1, 2)))
