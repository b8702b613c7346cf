"""Where ranks really run: what the kernel says of each, under the supervisor and under torchrun."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

PROGRAM = "import os; print('rank', os.environ['RANK'], 'on', *sorted(os.sched_getaffinity(0)), flush=True)\n"
HERE = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
pytestmark = pytest.mark.skipif(len(HERE) < 2, reason="one processor can't be divided")


def run(
    python: str, environ: dict[str, str], folder: Path, *options: str, before: tuple[str, ...] = ()
) -> dict[int, list[int]]:
    """The processors of two ranks of this host."""
    (folder / "train.py").write_text(PROGRAM)
    words = [*before, python, "-m", "musterpoint", "launch", "--slots", "2", *options, str(folder / "train.py")]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^rank (\d) on ([\d ]+)$", done.stdout, re.MULTILINE)
    return {int(rank): [int(cpu) for cpu in cpus.split()] for rank, cpus in rows}


@pytest.mark.parametrize("launcher", ["ranks", pytest.param("torchrun", marks=pytest.mark.torch)])
def test_each_rank_has_processors_of_its_own(
    python: str, environ: dict[str, str], tmp_path: Path, launcher: str
) -> None:
    found = run(python, environ, tmp_path, "--launcher", launcher, "--cpu-binding", "slots")
    assert not set(found[0]) & set(found[1])
    assert sorted(found[0] + found[1]) == HERE
    if launcher == "ranks":  # on this machine's CPU alone nothing is bound unless that is asked for
        assert run(python, environ, tmp_path, "--launcher", launcher) == {0: HERE, 1: HERE}


def test_within_what_this_process_may_use(python: str, environ: dict[str, str], tmp_path: Path) -> None:
    """As in a container with a cpuset: no rank gets a processor that isn't ours."""
    code = f"import os, sys; os.sched_setaffinity(0, {{{HERE[-1]}}}); os.execv(sys.argv[1], sys.argv[1:])"
    options = ("--launcher", "ranks", "--cpu-binding", "slots")
    assert run(python, environ, tmp_path, *options, before=(python, "-c", code)) == {0: HERE[-1:], 1: HERE[-1:]}
