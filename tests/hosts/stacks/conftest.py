"""What tests of single stacks share."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from ..conftest import Ran


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scikit-learn's handwritten digits as an NPZ file: ``images`` (1797, 64) from 0 to 16, and ``labels``."""
    import numpy
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    numpy.savez(path, images=images, labels=labels)
    return path


def trained(output: str) -> dict[int, list[float]]:
    """The losses that each rank printed in a job's output, checked to be the same everywhere, and falling."""
    losses: dict[int, list[float]] = {}
    for rank, loss in re.findall(r"rank (\d+) epoch \d+: loss ([\d.]+)", output):
        losses.setdefault(int(rank), []).append(float(loss))
    assert len({tuple(each) for each in losses.values()}) == 1, losses
    assert losses[0][-1] < losses[0][0] < 2.5
    return losses


def planned(local, *words: str) -> str:  # type: ignore[no-untyped-def]
    """What ``muster plan`` prints for a command line of the documentation."""
    command = [local.python, "-m", "musterpoint", "plan", *words]
    done = subprocess.run(
        command, env=local.environ, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown(root: Path, page: str, program: str) -> list[str]:
    """The words behind `muster local` in the block of a page of docs/ that runs ``program``, without its arguments."""
    text = (root / "docs" / page).read_text(encoding="utf-8")
    lines = re.findall(r"<!-- runs in hosts/stacks/\S+ -->\n```sh\nmuster local (.*)\n```", text)
    (line,) = [line for line in lines if program in line]
    words = shlex.split(line)
    at = words.index(program)
    return [*words[:at], str(root / program)]


def check_restarted(ran: Ran, why: str, *hosts: str) -> None:
    """A job that was started again on both ``hosts`` after the failure ``why``, and then ended well."""
    assert ran.code == 0, ran.stderr + ran.stdout
    for host in hosts or ("algo-1", "algo-2"):
        assert f"restart 1 of at most 1, on all hosts: {why}" in ran.log(host)
        assert (ran.outcome(host)["code"], ran.outcome(host)["attempts"]) == (0, 2)
