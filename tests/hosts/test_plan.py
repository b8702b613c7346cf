"""``muster plan --json`` against what the same job really runs on two hosts."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

DUMP = """
import json, os, sys
facts = {"argv": sys.argv, "environ": dict(os.environ), "cwd": os.getcwd()}
os.write(1, ("DUMP" + json.dumps(facts) + "\\n").encode())  # at once, or a busy machine shows half a line of each rank
"""

LEARNT_AT_THE_ROLL_CALL = {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}


def dumped(log: str) -> list[dict[str, Any]]:
    return [json.loads(line.partition("DUMP")[2]) for line in log.splitlines() if "DUMP" in line]


def without_meeting_point(name: str, value: str) -> str:
    """``value`` without the address and port that only the roll call can know."""
    if name in ("MASTER_ADDR", "MASTER_PORT", "SM_MASTER_ADDR", "SM_MASTER_PORT"):
        return ""
    if name == "SM_TRAINING_ENV":
        facts = json.loads(value)
        return json.dumps({key: facts[key] for key in facts if key not in ("master_addr", "master_port")})
    return value


@pytest.mark.parametrize(("launcher", "backend"), [("script", "process"), ("ranks", "netns"), ("torchrun", "process")])
def test_the_plan_is_what_runs(local: Any, launcher: str, backend: str) -> None:
    program = local.program(DUMP)
    words = ["--backend", backend, "--hosts", "2", "--launcher", launcher, "--slots", "2", "--job-name", "planned"]
    words += ["--hyperparameters", '{"lr": 0.1, "flag": true}', "--output", str(local.output), str(program)]
    words += ["--epochs", "3"]
    planned = subprocess.run(
        [local.python, "-m", "musterpoint", "plan", "--json", *words],
        env=local.environ, cwd=local.folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    plan = json.loads(planned.stdout)
    assert not local.output.exists(), "planning leaves nothing behind"
    ran = local.run(*words)
    assert ran.code == 0, ran.stderr + ran.stdout

    for host in plan["hosts"]:
        real = dumped(ran.log(host["host"]))
        assert len(real) == host["local_ranks"]
        own = {process["local_rank"]: process["environment"] for process in host["processes"]}
        for rank in real:
            local_rank = int(rank["environ"].get("LOCAL_RANK", 0))
            settings = [*host["environment"], *own.get(local_rank, [])]
            for setting in settings:
                name = setting["name"]
                if (name in LEARNT_AT_THE_ROLL_CALL and backend == "process") or setting["value"] == "***":
                    continue
                expected = without_meeting_point(name, setting["value"])
                assert without_meeting_point(name, rank["environ"].get(name, "unset")) == expected, name
            command = host["processes"][0]["argv"]
            assert command[-len(rank["argv"]) + 1 :] == rank["argv"][1:]
            if launcher == "torchrun":
                assert int(rank["environ"]["WORLD_SIZE"]) == host["world_size"] == 4
                assert int(rank["environ"]["RANK"]) == host["first_rank"] + local_rank
