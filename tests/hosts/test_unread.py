"""Platforms without a reader: refused where a world of one would be wrong, and the way out that is offered works."""

from __future__ import annotations

import re
import subprocess
import uuid
from pathlib import Path
from typing import Iterator

import pytest

from ..ports import free_port
from .conftest import survivors

NODES = {"fa-1": "127.0.0.31", "fa-2": "127.0.0.32"}
SHOW = """
import os
print("RANK", os.environ.get("RANK"), "OF", os.environ.get("WORLD_SIZE"), os.environ.get("SM_HOSTS"),
      os.environ.get("SM_CURRENT_HOST"), flush=True)
"""


class Nodes:
    """Processes that a platform started on this machine's loopback, each with variables of its own."""

    def __init__(self, python: str, environ: dict[str, str], folder: Path) -> None:
        self.python, self.folder = python, folder
        self.token = f"muster-test-{uuid.uuid4().hex}"
        (folder / "train.py").write_text(SHOW)
        (folder / "names").write_text("".join(f"{address} {name}\n" for name, address in NODES.items()))
        (folder / "bin").mkdir()
        self.stub("muster", f'exec {python} -m musterpoint "$@"')
        self.environ = {
            **environ, "MUSTER_TEST_TOKEN": self.token, "PATH": f"{folder}/bin:{environ['PATH']}",
            "MUSTER_HOSTS_FILE": str(folder / "names"), "MUSTER_ROLLCALL_PORT": str(free_port()),
            "MUSTER_SECRET": "only-for-this-test", "MUSTER_ROLLCALL_TIMEOUT": "100", "MUSTER_MASTER_PORT": "0",
            "MUSTER_LAUNCHER": "ranks", "SAGEMAKER_BASE_DIR": str(folder / "none"),
        }  # fmt: skip

    def stub(self, name: str, text: str) -> None:
        (self.folder / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (self.folder / "bin" / name).chmod(0o755)

    def run(self, script: str, *environs: dict[str, str]) -> list[subprocess.CompletedProcess[str]]:
        """``script`` (bash) once with each of ``environs``, all at a time."""
        running = [
            subprocess.Popen(
                ["/bin/bash", "-ec", script], env={**self.environ, **environ}, cwd=self.folder, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
            for environ in environs
        ]  # fmt: skip
        try:
            texts = [process.communicate(timeout=500)[0] for process in running]
        finally:
            for process in running:
                process.kill()
        pairs = zip(running, texts, strict=True)
        return [subprocess.CompletedProcess(process.args, process.returncode, text) for process, text in pairs]


@pytest.fixture
def nodes(python: str, environ: dict[str, str], tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(python, environ, tmp_path)
    yield made
    assert survivors(made.token) == [], "processes of the job were left behind"


def refusal(nodes: Nodes, command: str, tasks: list[dict[str, str]], named: str) -> str:
    """What both hosts are told instead, from "pass" on."""
    refused = nodes.run(f"muster {command} train.py", *tasks)
    assert [done.returncode for done in refused] == [64, 64]
    for done in refused:
        assert named in done.stdout
        assert " OF " not in done.stdout
    (told,) = {done.stdout.partition("and pass ")[2] for done in refused}
    return told


@pytest.mark.lane("suite")
def test_several_hosts_are_refused_and_names_make_one_world_of_them(nodes: Nodes) -> None:
    tasks = [{"TPU_WORKER_HOSTNAMES": "fa-1,fa-2", "TPU_WORKER_ID": str(rank)} for rank in range(2)]
    offered = re.findall(
        r"such as (SM_HOSTS=.*) SM_CURRENT_HOST=node-1; or", refusal(nodes, "plan", tasks, "TPU_WORKER_")
    )
    names = offered[0].replace("node-1", "fa-1").replace("node-2", "fa-2")
    ran = nodes.run(
        f"{names} muster launch train.py", *({**task, "SM_CURRENT_HOST": node} for task, node in zip(tasks, NODES))
    )
    assert [done.returncode for done in ran] == [0, 0], ran
    for rank, (node, done) in enumerate(zip(NODES, ran, strict=True)):
        assert f'RANK {rank} OF 2 ["fa-1", "fa-2"] {node}' in done.stdout


def test_several_hosts_are_refused_and_the_offered_options_make_one_world_of_them(nodes: Nodes) -> None:
    beaker = {"BEAKER_REPLICA_COUNT": "2", "BEAKER_LEADER_REPLICA_HOSTNAME": NODES["fa-1"]}
    tasks = [{**beaker, "BEAKER_REPLICA_RANK": str(rank)} for rank in range(2)]
    options = refusal(nodes, "launch", tasks, "BEAKER_REPLICA_COUNT=2").partition(" there; or")[0]
    ran = nodes.run(f"muster launch {options} train.py", *tasks)
    assert [done.returncode for done in ran] == [0, 0], ran
    assert [f"RANK {rank} OF 2" in done.stdout for rank, done in enumerate(ran)] == [True, True], ran


def test_a_launcher_below_our_own_ranks(nodes: Nodes, python: str) -> None:
    """What we set for a rank, or torchrun below us, is no other platform's word."""
    (nodes.folder / "again.py").write_text(
        "import os, sys\nos.environ.pop('MUSTER_OUTER', None)\n"
        f"os.execv({python!r}, [{python!r}, '-m', 'musterpoint', 'launch', '--launcher', 'script', 'train.py'])\n"
    )
    (ran,) = nodes.run("muster launch --slots 2 again.py", {})
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.count("RANK") == 2, ran.stdout


SKYPILOT = {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "\n".join(NODES.values())}


def test_the_line_of_the_documentation_makes_one_world(nodes: Nodes, root: Path) -> None:
    text = (root / "docs" / "platforms.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"<!-- platform skypilot -->\n```sh\n(.*?)```", text, re.DOTALL)
    ran = nodes.run(line, *({**SKYPILOT, "SKYPILOT_NODE_RANK": str(rank)} for rank in range(2)))
    assert [done.returncode for done in ran] == [0, 0], ran
    for rank, (done, address) in enumerate(zip(ran, NODES.values(), strict=True)):
        assert f'RANK {rank} OF 2 ["127.0.0.31","127.0.0.32"] {address}' in done.stdout
