"""Which programs as PID 1 keep a stop to themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.launch.pid1 import pid1_note

NOTHING = "0000000000000000"
TERM = "0000000000004000"


@pytest.mark.parametrize(
    ("name", "caught", "blocked", "warned"),
    [
        ("sh", NOTHING, NOTHING, True),
        ("bash", "0000000000010002", NOTHING, True),
        ("python3.11", "0000000000000002", NOTHING, True),
        ("bash", TERM, NOTHING, False),
        ("tini", NOTHING, "fffffffe7ffbfeff", False),
        ("docker-init", NOTHING, "fffffffe7ffbfeff", False),
        ("systemd", "7fefc1fe28014a03", NOTHING, False),
        ("pause", NOTHING, NOTHING, False),
    ],
)
def test_note(tmp_path: Path, name: str, caught: str, blocked: str, warned: bool) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "status").write_text(
        f"Name:\t{name}\nSigBlk:\t{blocked}\nSigIgn:\t{NOTHING}\nSigCgt:\t{caught}\n"
    )
    note = pid1_note(str(tmp_path), own_pid=7)
    assert bool(note) is warned
    assert note is None or name in note
    assert pid1_note(str(tmp_path), own_pid=1) is None


def test_no_proc_is_no_note(tmp_path: Path) -> None:
    assert pid1_note(str(tmp_path), own_pid=7) is None
