"""ssh between hosts: who may call whom, what clients and servers are told; the one program of ``--launcher ssh``."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.core.code.workspace import Workspace
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.launch.ssh_settings import OPEN_NOTE

from .conftest import Planner, Values

SLOTS = {"algo-1": 1, "algo-2": 0, "algo-3": 0}
SECRET = "a secret of this job"


@pytest.fixture
def ssh(plan: Planner) -> Planner:
    def make(launcher: str = "ssh", me: str = "algo-1", **changes: Any) -> LaunchPlan:
        given = {"secret": SECRET, "keys": "ssh-ed25519 KEY", "environ": {"PATH": "/usr/bin"}, **changes}
        return plan(launcher, given.pop("slots_of", SLOTS), me, **given)

    return make


def files(plan: LaunchPlan) -> dict[str, str]:
    assert plan.ssh is not None
    return {file.name: file.text for file in plan.ssh.files}


def test_every_host_answers_the_others_with_the_jobs_keys(ssh: Planner, values: Values) -> None:
    made = ssh(me="algo-2")
    assert (made.processes, made.local_ranks, made.world_size) == ((), 0, 1)
    assert made.ssh is not None and made.ssh.callers == (
        ("algo-1", "10.0.0.1"), ("algo-2", "10.0.0.2"), ("algo-3", "10.0.0.3"),
    )  # fmt: skip
    assert [word.text for word in made.ssh.argv] == [
        "/usr/sbin/sshd", "-i", "-e", "-f", "/tmp/muster-ssh-1/sshd_config",
    ]  # fmt: skip
    written = files(made)
    assert written["authorized_keys"].splitlines()[2] == 'restrict,pty,from="10.0.0.3" ssh-ed25519 KEY3'
    assert written["known_hosts"].splitlines() == [f"algo-{n} ssh-ed25519 KEY{n}" for n in (1, 2, 3)]
    assert written["bin/ssh"] == '#!/bin/sh\nexec /usr/bin/ssh -F /tmp/muster-ssh-1/ssh_config "$@"\n'
    assert "Host algo-3 10.0.0.3\n  HostName 10.0.0.3\n  Port 7803\n  HostKeyAlias algo-3\n" in written["ssh_config"]
    assert "  BindAddress 10.0.0.2\n" in written["ssh_config"]
    assert written["hostfile"] == "algo-1 slots=1\nalgo-2 slots=1\nalgo-3 slots=1\n"
    assert "AllowUsers ml\n" in written["sshd_config"] and "PasswordAuthentication no\n" in written["sshd_config"]
    leader = ssh()
    assert leader.processes[0].words == ["/usr/bin/python3", "train.py", "--lr", "0.1"]
    given = values(leader)
    assert given["PATH"] == "/tmp/muster-ssh-1/bin:/usr/bin"
    assert given["MUSTER_HOSTFILE"] == "/tmp/muster-ssh-1/hostfile"
    assert "RANK" not in given


def test_without_a_secret_only_the_leader_may_call(ssh: Planner) -> None:
    made = ssh(secret="")
    assert made.ssh is not None and made.ssh.callers == (("algo-1", "10.0.0.1"),)
    assert len(files(made)["authorized_keys"].splitlines()) == 1
    assert OPEN_NOTE in made.notes and OPEN_NOTE not in ssh().notes


def test_other_launchers_have_it_where_it_is_asked_for(ssh: Planner, values: Values) -> None:
    slots = {"algo-1": 2, "algo-2": 2}
    made = ssh("torchrun", slots_of=slots, ssh="on")
    assert made.ssh is not None and values(made)["PATH"].startswith("/tmp/muster-ssh-1/bin:")
    assert files(made)["hostfile"] == "algo-1 slots=2\nalgo-2 slots=2\n"
    assert ssh("torchrun", slots_of=slots).ssh is None
    assert ssh("ssh", slots_of={"algo-1": 1}).ssh is None, "a job of one host listens on nothing"
    assert ssh("torchrun", "algo-2", slots_of=slots, outside=("algo-2",), ssh="on").ssh is None


@pytest.mark.parametrize(
    "words",
    [("/usr/bin/deepspeed",), ("/usr/bin/python3", "-m", "deepspeed.launcher.runner")],
    ids=["command", "module"],
)
def test_deepspeeds_runner_gets_the_hosts(ssh: Planner, words: tuple[str, ...]) -> None:
    rest = ("--autotuning", "run", "train.py", "--deepspeed_config", "ds.json")
    program = Workspace("executable", words[-1], (*words, *rest), "/code", "/usr/bin/python3", ())
    told = ("--hostfile=/tmp/muster-ssh-1/hostfile", "--master_addr=10.0.0.1", "--master_port=7777")
    assert ssh(workspace=program).processes[0].words == [*words, *told, *rest]
