"""The mover's private folders."""

from __future__ import annotations

import os
from pathlib import Path

from musterpoint.embedded.programs.mover import scratch


def test_the_scratch_of_the_living_stays_and_of_the_dead_goes(tmp_path: Path) -> None:
    (tmp_path / ".muster-scratch-dead").mkdir()
    (tmp_path / ".muster-scratch-link").symlink_to("/etc")
    with scratch(str(tmp_path)) as first, scratch(str(tmp_path)) as second:
        assert os.path.isdir(first) and first != second and os.stat(second).st_mode & 0o777 == 0o700
        assert not (tmp_path / ".muster-scratch-dead").exists()
    assert [path.name for path in tmp_path.iterdir()] == [".muster-scratch-link"]
