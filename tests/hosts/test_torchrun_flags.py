"""The torchrun plan's flags, given to the real torch.distributed.run as two hosts on this machine's loopback.

What ranks are told is looked at here; that they meet in torch with it, in test_endings.py and test_launch.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from musterpoint.base.settings import Settings
from musterpoint.core.code.workspace import Workspace
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.job.model import EntryPoint, Job
from musterpoint.core.launch.build import build_plan
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.plan import LaunchPlan
from musterpoint.core.rollcall.roster import Roster, Seat

from ..ports import free_port

pytestmark = pytest.mark.torch

STUB = "import os, sys\nassert sys.argv[1] == '--', sys.argv\nargv = sys.argv[2:]\nos.execv(argv[0], argv)\n"

PROGRAM = """
import json, os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "MASTER_PORT")
facts = {name: int(os.environ[name]) for name in names}
facts.update(leader=os.environ["MASTER_ADDR"], threads=os.environ["OMP_NUM_THREADS"], arguments=sys.argv[1:])
with open(os.environ["FACTS"] + f"/{facts['RANK']}", "w") as file:
    json.dump(facts, file)
"""


def plans(script: Path, addresses: tuple[str, str], rendezvous: str) -> list[LaunchPlan]:
    hosts = ("algo-1", "algo-2")
    seats = tuple(Seat(name, address, slots) for name, address, slots in zip(hosts, addresses, (1, 2), strict=True))
    port = free_port()
    workspace = Workspace(
        "python", str(script), (sys.executable, str(script), "--lr", "0.1"), str(script.parent), sys.executable
    )
    settings = Settings(rendezvous=rendezvous)
    result = []
    for me in hosts:
        job = Job("plain", "flags", hosts, me, hosts, EntryPoint(str(script)))
        roster = Roster("flags", "s", seats, addresses[0], port, me)
        inputs = LaunchInputs("torchrun", job, workspace, roster, Devices(cpus=4), settings, os.environ)
        result.append(build_plan(inputs))
    return result


@pytest.mark.parametrize(
    ("addresses", "rendezvous"),
    [(("127.0.0.2", "127.0.0.3"), "static"), (("127.0.0.2", "127.0.0.3"), "c10d"), (("::1", "::1"), "static")],
    ids=["static", "c10d", "ipv6"],
)
def test_two_uneven_hosts_make_one_world(tmp_path: Path, addresses: tuple[str, str], rendezvous: str) -> None:
    if ":" in addresses[0] and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    script, stub, facts = tmp_path / "program.py", tmp_path / "stub.py", tmp_path / "facts"
    script.write_text(PROGRAM)
    stub.write_text(STUB)
    facts.mkdir()
    agents = []
    for plan in plans(script, addresses, rendezvous):
        environment = {**os.environ, "MUSTER_STUB": str(stub), "FACTS": str(facts), "GLOO_SOCKET_IFNAME": "lo"}
        environment.update({setting.name: setting.value for setting in plan.environment})
        for name in plan.unset:
            environment.pop(name, None)
        agents.append(subprocess.Popen(plan.processes[0].words, cwd=plan.processes[0].cwd, env=environment))
    assert [agent.wait(500) for agent in agents] == [0, 0]

    ranks = [json.loads((facts / str(rank)).read_text()) for rank in range(3)]
    assert [rank["WORLD_SIZE"] for rank in ranks] == [3, 3, 3]
    assert len({(rank["leader"], rank["MASTER_PORT"]) for rank in ranks}) == 1
    assert ranks[0]["arguments"] == ["--lr", "0.1"]
    assert sorted(rank["LOCAL_WORLD_SIZE"] for rank in ranks) == [1, 2, 2]
    by_host = {rank["LOCAL_WORLD_SIZE"]: rank["threads"] for rank in ranks}
    assert by_host == {1: "4", 2: "2"}
    if rendezvous == "static":
        assert [(rank["NODE_RANK"], rank["LOCAL_RANK"]) for rank in ranks] == [(0, 0), (1, 0), (1, 1)]
        assert [rank["GROUP_RANK"] for rank in ranks] == [0, 1, 1]
