"""Platforms without a reader: refused where a world of one would be wrong, and the way out that is offered works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .by_hand import Processes, leaving_none, meeting
from .conftest import together

NODES = {"fa-1": "127.0.0.31", "fa-2": "127.0.0.32"}
SHOW = """
import os
print("RANK", os.environ.get("RANK"), "OF", os.environ.get("WORLD_SIZE"), os.environ.get("SM_HOSTS"),
      os.environ.get("SM_CURRENT_HOST"), flush=True)
"""


class Nodes(Processes):
    """Processes that a platform started on this machine's loopback, each with variables of its own."""

    def __init__(self, python: str, environ: dict[str, str], folder: Path) -> None:
        own = {"MUSTER_LAUNCHER": "ranks", "SAGEMAKER_BASE_DIR": str(folder / "none")}
        path = {"PATH": f"{folder}/bin:{environ['PATH']}"}
        super().__init__(python, {**environ, **meeting(folder / "names", NODES), **own, **path}, folder)
        (folder / "train.py").write_text(SHOW)
        (folder / "bin").mkdir()
        self.stub("muster", f'exec {python} -m musterpoint "$@"')

    def stub(self, name: str, text: str) -> None:
        (self.folder / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (self.folder / "bin" / name).chmod(0o755)

    def run(self, script: str, *environs: dict[str, str]) -> tuple[list[int], list[str]]:
        """``script`` (bash) once with each of ``environs``, all at a time: their codes, and what they said."""
        return together([self.popen("/bin/bash", "-ec", script, environ=environ) for environ in environs])


nodes = leaving_none(Nodes)


@pytest.mark.lane("suite")
def test_several_hosts_are_refused_and_names_make_one_world_of_them(nodes: Nodes) -> None:
    tasks = [{"TPU_WORKER_HOSTNAMES": "fa-1,fa-2", "TPU_WORKER_ID": str(rank)} for rank in range(2)]
    codes, said = nodes.run("muster plan train.py", *tasks)
    assert codes == [64, 64] and all("TPU_WORKER_" in each and " OF " not in each for each in said), said
    (names,) = {re.findall(r"such as (SM_HOSTS=.*) SM_CURRENT_HOST=node-1; or", each)[0] for each in said}
    names = names.replace("node-1", "fa-1").replace("node-2", "fa-2")
    own = ({**task, "SM_CURRENT_HOST": node} for task, node in zip(tasks, NODES))
    codes, said = nodes.run(f"{names} muster launch train.py", *own)
    assert codes == [0, 0], said
    for rank, (node, each) in enumerate(zip(NODES, said, strict=True)):
        assert f'RANK {rank} OF 2 ["fa-1", "fa-2"] {node}' in each


def test_a_launcher_below_our_own_ranks(nodes: Nodes, python: str) -> None:
    """What we set for a rank, or torchrun below us, is no other platform's word."""
    (nodes.folder / "again.py").write_text(
        "import os, sys\nos.environ.pop('MUSTER_OUTER', None)\n"
        f"os.execv({python!r}, [{python!r}, '-m', 'musterpoint', 'launch', '--launcher', 'script', 'train.py'])\n"
    )
    codes, (said,) = nodes.run("muster launch --slots 2 again.py", {})
    assert (codes, said.count("RANK")) == ([0], 2), said


SKYPILOT = {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "\n".join(NODES.values())}


def test_the_line_of_the_documentation_makes_one_world(nodes: Nodes, root: Path) -> None:
    text = (root / "docs" / "platforms.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"<!-- platform skypilot -->\n```sh\n(.*?)```", text, re.DOTALL)
    codes, said = nodes.run(line, *({**SKYPILOT, "SKYPILOT_NODE_RANK": str(rank)} for rank in range(2)))
    assert codes == [0, 0], said
    for rank, (each, address) in enumerate(zip(said, NODES.values(), strict=True)):
        assert f'RANK {rank} OF 2 ["127.0.0.31","127.0.0.32"] {address}' in each
