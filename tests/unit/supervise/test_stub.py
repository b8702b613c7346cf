"""The stub's text: readable by other processes for as long as it is needed, and no longer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from musterpoint.supervise.stub import StubText, stub_source


def test_the_text_is_the_modules(root: Path) -> None:
    assert stub_source() == (root / "src/musterpoint/supervise/rank_stub.py").read_text()


@pytest.mark.parametrize("memfd", [True, False])
def test_another_process_can_read_it_until_it_is_closed(
    memfd: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not memfd:
        monkeypatch.delattr(os, "memfd_create")
        monkeypatch.setenv("TMPDIR", str(tmp_path))
    text = StubText()
    path = text.path
    assert text.path == path, "written once"
    read = subprocess.run(["cat", path], capture_output=True, text=True, check=True)
    assert read.stdout == stub_source()
    text.close()
    text.close()
    assert not os.path.exists(path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_unless_somebody_asks(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    text = StubText()
    text.close()
    assert (os.listdir("/proc/self/fd") if before else []) == before
