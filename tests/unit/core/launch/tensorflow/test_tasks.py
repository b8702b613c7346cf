"""Who runs where in a parameter-server job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.model import Distribution, EntryPoint, Job
from musterpoint.core.launch.tensorflow.tasks import RANK, ranks_on, roles_of, tasks_of


def job(hosts: int, roles: tuple[tuple[str, int], ...] = ()) -> Job:
    names = tuple(f"algo-{number}" for number in range(1, hosts + 1))
    distribution = Distribution("parameter_server", roles=roles)
    return Job("sagemaker", "j", names, "algo-1", names, EntryPoint("t.py"), distribution)


def placed(hosts: int, roles: str) -> list[str]:
    tasks = tasks_of(job(hosts), Settings(tf_roles=roles))
    assert [task.role for task in tasks if task.runs == RANK] == ["chief"]
    return [f"{task.name} on {task.host}:{task.place}" for task in tasks]


COUNTED = {
    (4, "worker=2,ps=1"): ["chief 0 on algo-1:0", "worker 0 on algo-2:0", "worker 1 on algo-3:0", "ps 0 on algo-4:0"],
    (3, "worker=2,ps=1"): ["chief 0 on algo-1:0", "worker 0 on algo-2:0", "worker 1 on algo-3:0", "ps 0 on algo-1:1"],
    (2, "worker=2,ps=1"): ["chief 0 on algo-1:0", "worker 0 on algo-1:1", "worker 1 on algo-2:0", "ps 0 on algo-2:1"],
    (2, "worker=1,ps=1,evaluator=1"): ["chief 0 on algo-1:0", "worker 0 on algo-2:0", "ps 0 on algo-1:1",
     "evaluator 0 on algo-2:1"],
    (1, "worker=2,ps=1"): ["chief 0 on algo-1:0", "worker 0 on algo-1:1", "worker 1 on algo-1:2", "ps 0 on algo-1:3"],
    # a worker per host, and one ps, where only the other is said
    (2, "ps=2"): ["chief 0 on algo-1:0", "worker 0 on algo-1:1", "worker 1 on algo-2:0", "ps 0 on algo-2:1",
     "ps 1 on algo-1:2"],
    (2, "worker=1"): ["chief 0 on algo-1:0", "worker 0 on algo-2:0", "ps 0 on algo-1:1"],
}  # fmt: skip


@pytest.mark.parametrize("case", COUNTED, ids=str)
def test_the_counted_layout(case: tuple[int, str]) -> None:
    assert placed(*case) == COUNTED[case]


def test_the_option_goes_before_the_jobs_own_counts() -> None:
    counted = job(2, (("worker", 2), ("ps", 1)))
    assert roles_of(counted, Settings()) == {"worker": 2, "ps": 1}
    assert roles_of(counted, Settings(tf_roles="worker=1,ps=3")) == {"worker": 1, "ps": 3}
    assert [ranks_on(host, counted, Settings()) for host in counted.hosts] == [1, 0]
    assert [ranks_on(host, job(2), Settings()) for host in counted.hosts] == [1, 1]


def test_a_host_without_a_role_is_refused() -> None:
    with pytest.raises(UsageError, match=r"5 hosts for 4 roles \(chief, 2 worker, 1 ps") as caught:
        tasks_of(job(5), Settings(tf_roles="worker=2,ps=1"))
    assert "--tf-roles" in str(caught.value)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 6), st.integers(0, 1))
def test_every_role_has_a_host_and_every_host_a_role(hosts: int, workers: int, servers: int, evaluators: int) -> None:
    settings = Settings(tf_roles=f"worker={workers},ps={servers},evaluator={evaluators}")
    if 1 + workers + servers + evaluators < hosts:
        with pytest.raises(UsageError):
            tasks_of(job(hosts), settings)
        return
    tasks = tasks_of(job(hosts), settings)
    assert len({task.name for task in tasks}) == len(tasks) == 1 + workers + servers + evaluators
    assert {task.host for task in tasks} == {*job(hosts).hosts}
    for host in job(hosts).hosts:
        assert [task.place for task in tasks if task.host == host] == list(range(sum(t.host == host for t in tasks)))
    heavy = [sum(task.role == "worker" and task.host == host for task in tasks) for host in job(hosts).hosts]
    assert max(heavy) - min(heavy) <= 1
