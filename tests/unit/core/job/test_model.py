"""What a job says of its hosts."""

from __future__ import annotations

import pytest

from musterpoint.core.job.model import EntryPoint, Job

HOSTS = ("algo-1", "algo-2", "algo-10")


@pytest.mark.parametrize(
    ("me", "group", "leader", "rank", "inside"),
    [
        ("algo-1", HOSTS, "algo-1", 0, True),
        ("algo-10", HOSTS, "algo-1", 2, True),
        ("algo-1", ("algo-2", "algo-10"), "algo-2", 0, False),
        ("algo-10", ("algo-2", "algo-10"), "algo-2", 2, True),
    ],
)
def test_leader_and_place(me: str, group: tuple[str, ...], leader: str, rank: int, inside: bool) -> None:
    job = Job("sagemaker", "digits", HOSTS, me, group, EntryPoint("train.py"))
    assert (job.leader, job.rank_of_host, job.in_group) == (leader, rank, inside)
