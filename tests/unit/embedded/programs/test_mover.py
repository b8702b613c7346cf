"""What the mover packs lies where nobody finds it, and is gone with the mover."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from musterpoint.embedded.programs import mover


@pytest.mark.parametrize("linux", [True, False])
def test_an_archive_leaves_nothing_behind(linux: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a").write_text("a")
    if not linux:
        monkeypatch.setattr(mover.os.path, "exists", lambda path: False)
    with mover.scratch(str(tmp_path / "place")) as path:
        mover.pack(str(tmp_path / "model"), path, str(tmp_path / "place"))
        assert len(list((tmp_path / "place").iterdir())) == (not linux)
        with tarfile.open(path) as archive:
            assert archive.getnames() == ["a"]
    assert not list((tmp_path / "place").iterdir())
