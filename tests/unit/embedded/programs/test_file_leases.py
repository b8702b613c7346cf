"""Whether a file is open for writing, by real files."""

from __future__ import annotations

from pathlib import Path

from musterpoint.embedded.programs.file_leases import is_written


def test_what_is_open_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with open(path, "w") as file:
        file.write("half")
        file.flush()
        before = is_written(str(path))
    after = is_written(str(path))
    # a file system without leases can't tell
    assert (before, after) in ((True, False), (None, None))
    with open(path):
        assert not is_written(str(path))
    assert is_written(str(tmp_path / "missing")) is None
