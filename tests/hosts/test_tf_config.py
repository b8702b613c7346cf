"""TF_CONFIG between real hosts, for programs that need no TensorFlow: its ports, and hosts that only serve others."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from .by_hand import leaving_none
from .test_launch import HOSTS, Hosts

SHOW = "import os\nos.write(1, b'CONFIG' + os.environ['TF_CONFIG'].encode() + b'\\n')\n"
SERVES = """
import json, os, sys, time
role = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
print("I am", role, os.environ["SM_CURRENT_HOST"], flush=True)
if role == "ps":
    open("serving", "w").close()
    if "--ps-fails" in sys.argv:
        raise KeyError("no such variable")
    time.sleep(600)
while not os.path.exists("serving"):
    time.sleep(0.05)
"""


hosts = leaving_none(Hosts)


def shown(hosts: Hosts, host: str) -> dict[str, Any]:
    (text,) = re.findall(r"CONFIG(\{.*\})", hosts.logs[host])
    found: dict[str, Any] = json.loads(text)
    return found


def given(role: str) -> dict[str, str]:
    cluster = {"worker": ["algo-1:2222"], "ps": ["algo-2:2222"]}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": role, "index": 0}})}


@pytest.mark.lane("suite")
def test_all_hosts_have_the_same_cluster_and_a_task_each(hosts: Hosts) -> None:
    hosts.program(SHOW)
    hosts.run("--launcher", "tensorflow", "train.py", MUSTER_TF_PORT="0")
    assert hosts.codes == dict.fromkeys(HOSTS, 0), hosts.logs
    first, second = (shown(hosts, host) for host in HOSTS)
    assert first["cluster"] == second["cluster"]
    assert [place.rpartition(":")[0] for place in first["cluster"]["worker"]] == ["127.0.0.21", "127.0.0.22"]
    assert [config["task"]["index"] for config in (first, second)] == [0, 1]


def test_a_program_that_serves_by_the_platforms_tf_config_is_ended_with_the_job(hosts: Hosts) -> None:
    hosts.program(SERVES)
    only = {"algo-1": given("worker"), "algo-2": given("ps")}
    hosts.run("--launcher", "parameter-server", "train.py", only=only)
    assert hosts.codes == dict.fromkeys(HOSTS, 0), hosts.logs
    assert "I am ps algo-2" in hosts.logs["algo-2"]
    assert "TF_CONFIG was set already and is kept: algo-2 is ps 0" in hosts.logs["algo-2"]
    assert "TF_CONFIG was set already and is kept: algo-1 is worker 0" in hosts.logs["algo-1"]


def test_its_error_is_the_jobs(hosts: Hosts) -> None:
    hosts.program(SERVES.replace("while not", "time.sleep(600)\nwhile not"))
    only = {"algo-1": given("worker"), "algo-2": given("ps")}
    hosts.run("--launcher", "tensorflow", "train.py", "--ps-fails", only=only)
    assert hosts.codes == dict.fromkeys(HOSTS, 1), hosts.logs
    for host in HOSTS:
        failure = hosts.left(host, "failure")
        assert failure.startswith("KeyError: 'no such variable'\nps 0 on algo-2, exit code 1"), failure


@pytest.mark.parametrize("launcher", ["tensorflow", "parameter-server"])
def test_a_launcher_of_the_program_asks_for_it_too(hosts: Hosts, launcher: str, python: str) -> None:
    """``launcher.py`` as the entry point of ``train``: planned inside, carried out by the one above."""
    hosts.program(SHOW)
    (hosts.folder / "outer.py").write_text(
        "import os, sys\nos.execv(sys.executable, [sys.executable, '-m', 'musterpoint', 'launch', '--launcher', "
        f"{launcher!r}, 'train.py'])\n"
    )
    only = {host: given("worker") for host in HOSTS} if launcher == "parameter-server" else {}
    hosts.run("--launcher", "script", "outer.py", only=only)
    assert hosts.codes == dict.fromkeys(HOSTS, 0), hosts.logs
    assert all(shown(hosts, host)["cluster"]["worker"] for host in HOSTS)
