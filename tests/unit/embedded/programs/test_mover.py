"""What the mover packs lies where nobody finds it, and is gone with the mover."""

from __future__ import annotations

import json
import os
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


def test_a_file_that_changes_all_the_time_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "log").write_text("b")
    real = mover.Tree.facts

    def facts(tree: mover.Tree, name: str) -> os.stat_result | None:
        if name == "log":
            with (tmp_path / name).open("a") as file:
                file.write("b")
        return real(tree, name)

    monkeypatch.setattr(mover.Tree, "facts", facts)
    with mover.scratch("/tmp") as path:
        mover.pack(str(tmp_path), path, "/tmp")
        with tarfile.open(path) as archive:
            assert archive.getnames() == ["a"]
    said = json.loads(capsys.readouterr().out)
    assert said == {"note": f"{tmp_path}/log is left out: it changed while it was packed"}
