from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.code.interpreter import has_module


@pytest.mark.parametrize(
    ("name", "found"),
    [("json", True), ("json.decoder", True), ("own", True), ("nowhere", False), ("nowhere.at", False), ("", False)],
)
def test_what_the_interpreter_finds(
    python: str, environ: dict[str, str], tmp_path: Path, name: str, found: bool
) -> None:
    (tmp_path / "own.py").write_text("raise SystemExit('must not be imported')")
    (tmp_path / "queue.py").write_text("raise SystemExit('must not be imported')")
    assert has_module(python, name, environ, str(tmp_path)) is found


def test_pythonpath_counts(python: str, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text("")
    assert has_module(python, "elsewhere", {**environ, "PYTHONPATH": str(tmp_path)}, "/")
    assert not has_module(python, "elsewhere", environ, "/")


def test_an_interpreter_that_cannot_be_started(environ: dict[str, str], tmp_path: Path) -> None:
    assert not has_module(str(tmp_path / "python"), "json", environ, "/")
