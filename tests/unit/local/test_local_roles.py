"""The roles of a local job: how many hosts they take, and which one each host has, before anything starts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.job_text import JobText, first_program, read_job_text
from musterpoint.local.job_request import LocalJob
from musterpoint.local.local_roles import Groups, hosts_of, roles_by_host

TRAINER: dict[str, Any] = {"name": "trainer", "hosts": 2}
POLICY: dict[str, Any] = {"name": "policy", "program": "serve.sh"}
REWARD: dict[str, Any] = {"name": "reward", "beside": "trainer", "program": "reward.py"}
GROUPS: Groups = (("gpu", 2), ("cpu", 1))


def text_of(*tables: Any) -> JobText:
    return read_job_text(json.dumps({"roles": list(tables)}), "job.toml")


@pytest.mark.parametrize(
    ("tables", "program", "module"),
    [([TRAINER, POLICY, REWARD], "serve.sh", False), ([{**TRAINER, "module": "p.train"}, POLICY], "p.train", True),
     ([TRAINER], "", False), ([3, {"program": 4}], "", False), ([], "", False)],
)  # fmt: skip
def test_the_first_program_that_a_role_names(tables: list[Any], program: str, module: bool) -> None:
    assert first_program(text_of(*tables).values) == (program, (), module) and first_program({}) == ("", (), False)


@pytest.mark.parametrize(
    ("asked", "groups", "tables", "short", "hosts"),
    [
        (None, (), [], "", 1),
        (4, (), [], "", 4),
        (None, (), [TRAINER, POLICY, REWARD], "", 3),  # one for the role without a number
        (5, (), [TRAINER, POLICY], "", 5),
        (None, (), [TRAINER, {**POLICY, "hosts": 3}], "", 5),
        (None, (), [{"name": "trainer"}, REWARD], "", 1),
        (None, GROUPS, [{"name": "trainer", "group": "gpu"}, POLICY], "", 3),
        (3, GROUPS, [], "", 3),
        (None, (), None, "policy:2:serve.sh", 3),  # and one for the program
        (None, (), [TRAINER], "policy:2:serve.sh", 4),
    ],
)
def test_how_many_hosts_there_are(
    asked: int | None, groups: Groups, tables: list[Any] | None, short: str, hosts: int
) -> None:
    text = text_of(*tables) if tables else None
    assert hosts_of(asked, groups, text, short) == hosts


def test_groups_and_a_number_of_hosts_have_to_agree() -> None:
    with pytest.raises(UsageError, match="--hosts 4: --groups has 3 hosts"):
        hosts_of(4, GROUPS, None, "")


JOB = LocalJob("j", ("algo-1", "algo-2", "algo-3"), "train.py", "/code")


@pytest.mark.parametrize(
    ("job", "tables", "roles"),
    [
        (JOB, None, ""),
        (JOB, [TRAINER, POLICY, REWARD], "trainer trainer policy"),
        (JOB._replace(options={"MUSTER_MORE_ROLES": "policy:1:serve.sh"}), None, "train train policy"),
        (JOB._replace(options={"MUSTER_GROUP": "cpu"}, groups=GROUPS), None, "gpu gpu cpu"),
        (JOB._replace(groups=GROUPS), [{"name": "trainer", "group": "cpu"}, POLICY], "policy policy trainer"),
        (JOB._replace(options={"MUSTER_JOB_FILE": '{"roles": []}'}), [TRAINER, POLICY], "trainer trainer policy"),
    ],
)
def test_each_host_has_one_role(job: LocalJob, tables: list[Any] | None, roles: str) -> None:
    found = roles_by_host(job, text_of(*tables) if tables else None)
    assert found == dict(zip(JOB.hosts, roles.split()))


def test_roles_that_do_not_fit_are_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="the roles take 2 hosts, and the job has 3"):
        roles_by_host(JOB, text_of(TRAINER))
