"""`muster plan` on machines that are recorded trees: mounted over this one's /sys and /dev."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ..unit.core.fabric.trees import unpack

MACHINES = {
    "nd96asr_v4": (
        {"NCCL_DEBUG": "WARN", "NCCL_IB_PCI_RELAXED_ORDERING": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        ("network: 1 x RoCE, 40 Gb/s", "NCCL_IB_DISABLE=1 (the environment) keeps NCCL from this host's InfiniBand"),
    ),
    "p4d": (
        {"NCCL_DEBUG": "WARN", "FI_PROVIDER": "efa", "FI_EFA_USE_HUGE_PAGE": "0"},
        ("network: 4 x EFA, 100 Gb/s", "2 ranks run on this host, which has 8 GPUs"),
    ),
    "vm": ({}, ()),
}
IN_PLACE = 'mount --bind "$1/sys" /sys && mount --bind "$1/dev" /dev && shift && exec "$@"'


@pytest.mark.netns
@pytest.mark.parametrize("name", MACHINES)
def test_the_plan_of_a_recorded_machine(python: str, environ: dict[str, str], tmp_path: Path, name: str) -> None:
    tree, program = Path(unpack(name, tmp_path / "tree")), tmp_path / "train.py"
    program.touch()
    for file in ("null", "urandom"):
        (tree / "dev" / file).touch()
    words = [
        python,
        "-m",
        "musterpoint",
        "plan",
        "--json",
        "--hosts",
        "2",
        "--slots",
        "2",
        "--launcher",
        "ranks",
        program,
    ]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", IN_PLACE, "-", tree, *words], env={**environ, "NCCL_IB_DISABLE": "1"},
        stdin=subprocess.PIPE, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    page: dict[str, Any] = json.loads(done.stdout)
    expected, said = MACHINES[name]
    for host in page["hosts"]:
        found = {row["name"]: (row["value"], row["reason"]) for row in host["environment"]}
        assert {key: found[key][0] for key in expected} == expected
        assert all(found[key][1] for key in expected)
        fabric = {key for key in found if key.startswith(("FI_", "NCCL_IB", "UCX_")) or key == "NCCL_DEBUG"}
        assert bool(fabric) == bool(expected)
        assert "NCCL_IB_DISABLE" not in found
        assert all(any(part in note for note in (*host["notes"], *page["notes"])) for part in said), host["notes"]
