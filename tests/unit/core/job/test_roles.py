"""The roles of a job: how they are read, what is refused and where, and which host has which."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from musterpoint.base.job_file import JobText, read_job_text

from musterpoint.base.errors import UsageError
from musterpoint.core.job import roles
from musterpoint.core.job.model import EntryPoint, InstanceGroup, Job, Readiness, Role, UnnamedHosts

HOSTS = tuple(f"algo-{number}" for number in range(1, 6))


def job(count: int, me: str = "", groups: dict[str, tuple[str, ...]] | None = None) -> Job:
    hosts = HOSTS[:count]
    made = tuple(InstanceGroup(name, "ml.c5.large", of_it) for name, of_it in (groups or {}).items())
    return Job("sagemaker", "digits", hosts, me or hosts[0], hosts, EntryPoint("train.py"), groups=made)


def text_of(*tables: dict[str, Any]) -> JobText:
    return read_job_text(json.dumps({"roles": list(tables)}), "job.toml")


def placed(job: Job, *tables: dict[str, Any], leads: str = "") -> Job:
    return roles.with_roles(job, roles.of_file(text_of(*tables)), lambda role: role.name == leads)


def hosts_of(job: Job) -> dict[str, tuple[str, ...]]:
    return {role.name: role.hosts for role in job.roles}


@pytest.mark.parametrize(
    ("text", "ready"),
    [
        ("", Readiness()),
        ("port 8000", Readiness("port", 8000)),
        ("http :8000/health", Readiness("http", 8000, "/health")),
        ("http :80", Readiness("http", 80, "/")),
        ("line 'startup complete'", Readiness("line", 0, "startup complete")),
        ('  line  "it\'s up" ', Readiness("line", 0, "it's up")),
    ],
)
def test_readiness_is_a_port_an_answer_or_a_line(text: str, ready: Readiness) -> None:
    table = {"name": "policy", **({"ready": text} if text else {})}
    assert roles.of_file(text_of(table))[0].role.ready == ready


@pytest.mark.parametrize("text", ["8000", "port", "port x", "port 0", "port 65536", "http 8000", "http :x/", "line up",
                                  "line ''", "line 'up\"", "started"])  # fmt: skip
def test_any_other_readiness_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"ready is .*, expected .port 8000"):
        roles.of_file(text_of({"name": "policy", "ready": text}))


def test_the_first_roles_end_is_the_jobs_and_others_serve() -> None:
    asked = roles.of_file(text_of({"name": "trainer"}, {"name": "policy"}, {"name": "reward", "ends": "never"}))
    assert [each.role.ends for each in asked] == ["job", "with", "never"]
    assert [each.role.launcher for each in asked] == ["auto", "", ""]


def test_a_program_of_its_own_has_arguments_of_its_own() -> None:
    """The job's arguments are those of its program, which a service with another one isn't."""
    asked = roles.of_file(text_of(
        {"name": "trainer"}, {"name": "policy", "program": "serve.sh"}, {"name": "same"},
        {"name": "third", "arguments": ["--lr", 0.5, True], "env": {"A": 1, "B": True}},
    ))  # fmt: skip
    assert [each.role.arguments for each in asked] == [None, (), None, ("--lr", "0.5", "true")]
    assert asked[3].role.env == (("A", "1"), ("B", "true"))


def test_the_short_form_is_a_service() -> None:
    asked = roles.of_option("policy:2:serve.sh --port 80")
    assert asked.role == Role("policy", (), "serve.sh", False, ("--port", "80"), "", ends="with") and asked.hosts == 2


@pytest.mark.parametrize("line", ["policy", "policy:1", "policy:1:", "policy:0:a", "policy:x:a", ":1:a", "a b:1:c"])
def test_a_wrong_short_form_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="expected NAME:HOSTS:PROGRAM"):
        roles.of_option(line)


FILE = """\
# a job
program = "train.py"

[[roles]]
name = "trainer"
hosts = 2

[[roles]]
name = "policy"
program = "serve.sh"
%s
"""


@pytest.mark.parametrize(
    ("line", "at", "words"),
    [
        ("port = 1", 11, "port is nothing that a role has"),
        ("progam = 'x'", 11, "did you mean program?"),
        ("restarts = 1", 11, "isn't possible yet"),
        ("replicas = 2", 11, "isn't possible yet"),
        ("hosts = 0", 11, "hosts is 0, expected a whole number from 1"),
        ("hosts = true", 11, "hosts is true, expected a whole number from 1"),
        ("slots = 'all'", 11, "expected a whole number from 1"),
        ("hosts = 1\ngroup = 'gpu'", 9, "several of hosts, group and beside"),
        ("hosts = 1\nmodule = 'a.b'", 12, "program and module"),
        ("gpus = 1", 11, "gpus is for a role beside another one"),
        ("ends = 'soon'", 11, "expected job, with, never"),
        ("ready = 'now'", 11, "expected .port 8000."),
        ("after = 3", 11, "after is 3, expected a list of texts"),
        ("env = {'A-B' = 1}", 11, "can't be the name of a variable"),
        ("hosts = 1\nafter = ['trainr']", 12, "names trainr, expected trainer"),
        ("after = 'policy'", 11, "policy waits for policy: none of them would start"),
        ("beside = 'policy'", 11, "names policy, expected trainer"),
        ("beside = 'trainer'\nlauncher = 'torchrun'", 12, "one process beside trainer; leave it out"),
        ("hosts = 1\n[[roles]]\nname = 'trainer'\nhosts = 1", 13, "two roles are called trainer"),
        ("hosts = 1\n[[roles]]\nname = 'a b'", 13, "expected a name of letters"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, line: str, at: int, words: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(FILE % line)
    with pytest.raises(UsageError, match=words) as error:
        roles.with_roles(job(3), roles.of_file(read_job_text(str(path), str(path))), lambda role: False)
    assert str(error.value).startswith(f"{path}, line {at}: ")


def chain(*names: str) -> list[dict[str, Any]]:
    """Each waits for the next, and the last for the first."""
    return [{"name": name, "after": [after]} for name, after in zip(names, (*names[1:], names[0]))]


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (chain("a", "b", "c"), "a waits for b waits for c waits for a"),
        ([{"name": "free"}, *chain("a", "b")], "a waits for b waits for a"),
        ([{"name": "a", "ends": "with"}], "no role has ends = .job., so the job would never end"),
        ([{"name": "a"}, {"name": "a-b", "hosts": 1}, {"name": "a_b", "hosts": 1}], "or have its variable"),
        ([{"name": f"r{n}", "hosts": 1} for n in range(17)], "more than 16 roles"),
        (
            [{"name": "a"}, {"name": "b", "hosts": 1}, {"name": "c", "beside": "b", "ends": "job"}],
            "would wait for ever",
        ),
    ],
)
def test_roles_that_contradict_each_other_are_refused(tables: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        placed(job(3), *tables)


def test_many_roles_that_wait_for_each_other_are_refused_at_once() -> None:
    """Not after all ways from one to another have been followed."""
    tables = [{"name": f"r{n}", "after": [f"r{m}" for m in range(n)]} for n in range(60)]
    with pytest.raises(UsageError, match="more than 16 roles"):
        placed(job(3), *tables)


def test_hosts_go_to_roles_in_the_jobs_order() -> None:
    tables = {"name": "trainer", "hosts": 2}, {"name": "reward", "beside": "trainer"}, {"name": "policy"}
    made = placed(job(4, "algo-3"), *tables)
    assert hosts_of(made) == {"trainer": HOSTS[:2], "reward": HOSTS[:2], "policy": HOSTS[2:4]}
    assert made.role is not None and made.role.name == "policy" and made.group_hosts == HOSTS[2:4]
    assert made.leads == "trainer" and made.first_host == "algo-1" and not made.beside
    first = placed(job(4, "algo-2"), *tables)
    assert [role.name for role in first.beside] == ["reward"] and first.ends == "job"


def test_a_group_is_a_roles_hosts_and_others_share_the_rest() -> None:
    made = placed(
        job(4, groups={"gpu": ("algo-2", "algo-4"), "cpu": ("algo-1", "algo-3")}),
        {"name": "trainer", "group": "gpu"}, {"name": "a", "hosts": 1}, {"name": "b"},
    )  # fmt: skip
    assert hosts_of(made) == {"trainer": ("algo-2", "algo-4"), "a": ("algo-1",), "b": ("algo-3",)}


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ([{"name": "a", "hosts": 2}], "the roles take 2 hosts, and the job has 3"),
        ([{"name": "a", "hosts": 3}, {"name": "b"}], "the roles take 4 or more hosts, and the job has 3"),
        ([{"name": "a"}, {"name": "b"}], "only one role may be without hosts"),
        ([{"name": "a", "group": "gpu"}, {"name": "b"}], "group names gpu, and the job's instance groups are: none"),
    ],
)
def test_roles_that_do_not_fit_the_hosts_are_refused(tables: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        placed(job(3), *tables)


def test_the_role_whose_launcher_leads_has_the_first_host() -> None:
    tables = {"name": "data", "hosts": 1}, {"name": "trainer"}
    assert placed(job(3), *tables, leads="trainer").first_host == "algo-2"
    both = roles.of_file(text_of(*tables))
    with pytest.raises(UsageError, match="data and trainer have launchers that start programs on other hosts"):
        roles.with_roles(job(3), both, lambda role: True)
    unnamed = job(3)._replace(unnamed=UnnamedHosts(3, 0, "10.0.0.1"))
    with pytest.raises(UsageError, match="let it be the first role"):
        roles.with_roles(unnamed, both, lambda role: role.name == "trainer")


def test_hosts_without_a_place_have_no_roles() -> None:
    with pytest.raises(UsageError, match="needs the place of each host"):
        placed(job(3)._replace(unnamed=UnnamedHosts(3, None, "10.0.0.1")), {"name": "trainer"})


def test_a_role_has_its_own_program_and_a_service_no_distribution() -> None:
    made = placed(job(2, "algo-2"), {"name": "trainer", "hosts": 1}, {"name": "policy", "program": "serve.sh"})
    assert made.entry_point.program == "serve.sh" and made.arguments == ()
    assert placed(job(2), {"name": "trainer", "hosts": 1}, {"name": "policy"}).entry_point.program == "train.py"


NAMES = ["a", "b", "c", "d", "e"]
TABLE = st.fixed_dictionaries(
    {},
    optional={
        "hosts": st.integers(1, 3), "group": st.sampled_from(["gpu", "cpu"]), "beside": st.sampled_from(NAMES),
        "ends": st.sampled_from(roles.ENDS), "after": st.lists(st.sampled_from(NAMES), max_size=2),
    },
)  # fmt: skip


@given(st.lists(TABLE, min_size=1, max_size=5), st.integers(1, 5), st.booleans())
def test_each_host_has_one_role_of_its_own_or_there_is_an_error(
    tables: list[dict[str, Any]], count: int, grouped: bool
) -> None:
    half = HOSTS[:count][: count // 2]
    groups = {"gpu": half, "cpu": HOSTS[len(half) : count]} if grouped else None
    named = [{"name": name, **table} for name, table in zip(NAMES, tables)]
    try:
        made = [placed(job(count, host, groups), *named) for host in HOSTS[:count]]
    except UsageError:
        return
    for each in made:
        own = [role for role in each.roles if not role.beside and each.current_host in role.hosts]
        assert own == [each.role] and each.group_hosts == own[0].hosts
        assert hosts_of(each) == hosts_of(made[0]) and each.first_host == made[0].first_host
        assert all(role.hosts == hosts_of(each)[role.beside] for role in each.beside)
        assert any(role.ends == "job" for role in each.roles)
