"""Lightning on two hosts: its ranks are those of the job, or it says which numbers don't fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import shown, trained

pytestmark = pytest.mark.netns


@pytest.fixture
def lit(local, stack):  # type: ignore[no-untyped-def]
    """``muster local`` whose programs have Lightning."""
    local.environ["MUSTER_PYTHON"] = str(stack("huggingface") / "python")
    local.environ["MUSTER_STALL_TIMEOUT"] = "60"  # a hang says where it is
    return local


def test_lightning_trains_one_world(lit, root: Path) -> None:  # type: ignore[no-untyped-def]
    line = shown(root, "lightning.md", "examples/lightning/digits.py")
    ran = lit.run("--backend", "netns", *line, "--batch-size", "128")
    assert ran.code == 0, ran.stderr + ran.stdout
    assert sorted(trained(ran.stdout)) == [0, 1, 2, 3]
    ends = re.findall(r"rank \d of (\d) weights (\S+)", ran.stdout)
    assert len(ends) == 4
    assert len(set(ends)) == 1
    assert "none of the" not in ran.stderr


BOTH = """
import runpy, sys
from lightning.fabric import Fabric
try:
    Fabric(accelerator="cpu", devices=1, num_nodes=1, strategy="ddp").launch()
except ValueError as error:
    print("Fabric says:", error, flush=True)
sys.argv[1:] = ["--devices", "1", "--num-nodes", "1"]
runpy.run_path({script!r}, run_name="__main__")
"""


def test_numbers_that_do_not_fit_are_named(lit, root: Path) -> None:  # type: ignore[no-untyped-def]
    """Without TORCHELASTIC_RUN_ID the ranks with local rank 0 would be a world of their own."""
    program = lit.program(BOTH.format(script=str(root / "examples/lightning/digits.py")))
    ran = lit.run("--hosts", "1", "--slots", "2", "--backend", "process", "--launcher", "ranks", program)
    assert ran.code == 1, ran.stderr + ran.stdout
    wrong = (
        "You set `devices=1` and `num_nodes=1` in Lightning, but the product (1 * 1) does not match the world size (2)"
    )
    assert wrong in ran.reason
    assert f"Fabric says: {wrong}" in ran.stdout
