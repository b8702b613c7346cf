"""A few hundred inputs of each part of scripts/fuzz, the same ones every time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

FUZZERS = Path(__file__).resolve().parents[2] / "scripts" / "fuzzers"
ELSEWHERE = {
    "several_hosts",
    "smdistributed",
    "stops",
    "checkpoints",
    "checkpoints_of_hosts",
    "served",
    "jobs_together",
    "shells",
}
"""Parts of which fewer inputs are played, here or in other tests, or that ``scripts/fuzz`` alone plays."""
PARTS = sorted({path.stem for path in FUZZERS.glob("*.py") if "\ndef fuzz(" in path.read_text()} - ELSEWHERE)


@pytest.mark.parametrize(
    "words",
    [
        *((part, "--inputs", "300") for part in PARTS),
        ("--stops", "8"),
        ("checkpoints", "--inputs", "20"),
        ("checkpoints_of_hosts", "--inputs", "4"),
        ("jobs_together", "--inputs", "15"),
        ("shells", "--inputs", "120"),
    ],
    ids=" ".join,
)
def test_what_must_hold_holds_whatever_comes(words: tuple[str, ...], root: Path, python: str) -> None:
    command = [python, root / "scripts" / "fuzz", *words, "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
