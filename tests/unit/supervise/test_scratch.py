"""The launchers' private folder: where, whose, and that it goes."""

from __future__ import annotations

from pathlib import Path

from musterpoint.supervise.environment import Scratch


def test_it_lies_below_the_users_and_goes_with_everything_in_it(tmp_path: Path) -> None:
    scratch = Scratch()
    path = Path(scratch.path({"TMPDIR": str(tmp_path)}))
    assert scratch.path({}) == str(path), "made once"
    assert path.parent == tmp_path
    assert path.stat().st_mode & 0o777 == 0o700
    (path / "ompi.algo-1.0" / "pid.7").mkdir(parents=True)
    (path / "ompi.algo-1.0" / "pid.7" / "contact.txt").touch()
    scratch.close()
    scratch.close()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_made_unless_somebody_asks(tmp_path: Path) -> None:
    Scratch().close()
    assert list(tmp_path.iterdir()) == []


def test_where_none_can_be_made_launchers_use_what_they_find(tmp_path: Path) -> None:
    scratch = Scratch()
    assert scratch.path({"TMPDIR": str(tmp_path / "missing")}) == ""
    scratch.close()
