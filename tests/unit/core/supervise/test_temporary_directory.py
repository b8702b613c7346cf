"""The temporary directory of launchers."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.core.supervise.process_starter import TemporaryDirectory


def test_the_temporary_directory_lies_below_the_users_and_goes_with_everything_in_it(tmp_path: Path) -> None:
    temporary = TemporaryDirectory()
    path = Path(temporary.path({"TMPDIR": str(tmp_path)}))
    assert temporary.path({}) == str(path), "made once"
    assert path.parent == tmp_path
    assert path.stat().st_mode & 0o777 == 0o700
    (path / "ompi.algo-1.0" / "pid.7").mkdir(parents=True)
    (path / "ompi.algo-1.0" / "pid.7" / "contact.txt").touch()
    temporary.close()
    temporary.close()
    assert list(tmp_path.iterdir()) == []


def test_no_directory_is_made_unless_somebody_asks(tmp_path: Path) -> None:
    TemporaryDirectory().close()
    assert list(tmp_path.iterdir()) == []


def test_where_none_can_be_made_launchers_use_what_they_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"TMPDIR": str(tmp_path / "missing")}
    monkeypatch.setattr("musterpoint.base.temporary.PLACES", (str(tmp_path), "/none"))
    temporary = TemporaryDirectory()
    assert Path(temporary.path(missing)).parent == tmp_path
    temporary.close()
    monkeypatch.setattr("musterpoint.base.temporary.PLACES", ("/none",))
    assert temporary.path(missing) == ""
    temporary.close()
