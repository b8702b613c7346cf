"""The ranks that wait for a debugged one: torch's time limits are days, whatever the program asks for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import musterpoint

PATCHES = Path(musterpoint.__file__).parent / "local" / "patches"
ASKS = """
from datetime import timedelta
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1, timeout=timedelta(seconds=1))
groups = dist.group.WORLD, dist.new_group([0], timedelta(seconds=2))
print(*(group._get_backend(torch.device("cpu")).options._timeout.days for group in groups))
"""


@pytest.mark.torch
def test_collectives_of_the_others_wait(environ: dict[str, str]) -> None:
    environ.update(PYTHONPATH=str(PATCHES), MUSTER_DEBUG_TERMINAL="0:/dev/null")
    done = subprocess.run([sys.executable, "-c", ASKS], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout == "7 7\n", done.stderr
