"""What counts as progress: files that are new or changed where checkpoints go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.core.supervise import restarts
from musterpoint.core.supervise.restarts import fingerprint, progress


def test_a_new_or_changed_file_is_progress_and_a_missing_one_is_not(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "deep" / "b"
    second.parent.mkdir()
    first.write_text("1")
    second.write_text("1")
    before = fingerprint([str(tmp_path), ""])
    assert progress(before, fingerprint([str(tmp_path)])) == "none"
    first.unlink()
    assert progress(before, fingerprint([str(tmp_path)])) == "none"
    os.utime(second, ns=(5, 5))
    assert progress(before, fingerprint([str(tmp_path)])) == "made"
    (tmp_path / "c").touch()
    assert progress(frozenset(), fingerprint([str(tmp_path)])) == "made"


def test_nothing_is_known_without_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    nowhere = fingerprint([str(tmp_path / "nowhere"), ""])
    assert progress(nowhere, nowhere) == "unknown"
    assert progress(nowhere, fingerprint([str(tmp_path)])) == "unknown"


def test_a_directory_that_is_too_large_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "MOST_ENTRIES", 1)
    (tmp_path / "a").touch()
    assert fingerprint([str(tmp_path)]) is not None
    (tmp_path / "b").touch()
    assert fingerprint([str(tmp_path)]) is None
    assert progress(frozenset(), None) == progress(None, frozenset()) == "unknown"
