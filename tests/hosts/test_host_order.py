"""Rank order by Slurm's topology: four hosts' entry points, each of which knows its own switches only."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ..ports import free_port
from .conftest import together

SWITCHES = {"n1": "top.west", "n2": "top.east", "n3": "top.west", "n4": "top.east"}
TOLD = {"n4": "top/east"}
"""One host is told its switches by the option, whatever Slurm says."""
PROGRAM = """
import os
names = ("RANK", "NODE_RANK", "WORLD_SIZE", "SLURMD_NODENAME", "SLURM_PROCID")
print("ran", *(os.environ.get(name, "-") for name in names), flush=True)
"""


def test_hosts_at_one_switch_follow_each_other(python: str, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "hosts").write_text("".join(f"127.0.0.1{at} n{at}\n" for at in range(1, 5)))
    environ |= {
        "MUSTER_HOSTS_FILE": str(tmp_path / "hosts"), "MUSTER_ROLLCALL_PORT": str(free_port()),
        "MUSTER_MASTER_PORT": "0", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_JOB_NODELIST": "n[1-4]",
        "SLURM_STEP_NODELIST": "n[1-4]", "SLURM_JOB_NUM_NODES": "4", "SLURM_STEP_NUM_NODES": "4",
        "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "1(x4)", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0",
    }  # fmt: skip
    words = [python, "-m", "musterpoint", "launch", "--launcher", "ranks", "--slots", "1", "--host-order", "topology",
             str(tmp_path / "train.py")]  # fmt: skip
    started = []
    for at, (host, switches) in enumerate(SWITCHES.items()):
        known = "wrong" if host in TOLD else switches
        own = {"SLURM_NODEID": str(at), "SLURM_PROCID": str(at), "SLURMD_NODENAME": host,
               "SLURM_TOPOLOGY_ADDR": f"{known}.{host}", "MUSTER_TOPOLOGY": TOLD.get(host, "")}  # fmt: skip
        started.append(
            subprocess.Popen(words, env={**environ, **own}, cwd="/", stdin=subprocess.DEVNULL, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        )  # fmt: skip
    codes, said = together(started)
    assert codes == [0] * 4, said
    assert "rank order by topology: n1, n3, n2, n4" in said[0]
    rows = sorted(re.findall(r"^ran (\d) (\d) 4 (n\d) (\d)$", "".join(said), re.MULTILINE))
    assert rows == [("0", "0", "n1", "0"), ("1", "1", "n3", "1"), ("2", "2", "n2", "2"), ("3", "3", "n4", "3")]
