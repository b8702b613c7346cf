"""Locks that killed builds left behind, told from those of builds that go on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.core.code.build_locks import folder_of, warnings


@pytest.mark.parametrize("name", ["deepspeed_shm_comm/lock", "py311_cpu/deepspeed_shm_comm/lock"])
def test_a_lock_that_nobody_holds_is_told_of(tmp_path: Path, name: str) -> None:
    lock = tmp_path / name
    lock.parent.mkdir(parents=True)
    environ = {"TORCH_EXTENSIONS_DIR": str(tmp_path)}
    assert warnings(environ) == []
    lock.touch()
    (warning,) = warnings(environ)
    assert str(lock) in warning
    held = os.open(lock, os.O_RDONLY)
    assert warnings(environ) == []
    os.close(held)
    assert len(warnings(environ)) == 1


def test_no_folder_is_no_lock(tmp_path: Path) -> None:
    assert warnings({"HOME": str(tmp_path)}) == []
    assert warnings({"TORCH_EXTENSIONS_DIR": str(tmp_path / "none")}) == []
    (tmp_path / "lock").touch()
    assert warnings({"TORCH_EXTENSIONS_DIR": str(tmp_path)}) == [], "not beside an extension"


def test_the_folder_is_torchs(tmp_path: Path) -> None:
    assert folder_of({"HOME": "/home/me"}) == "/home/me/.cache/torch_extensions"
    assert folder_of({"HOME": "/home/me", "XDG_CACHE_HOME": "/cache"}) == "/cache/torch_extensions"
    assert folder_of({"HOME": "/home/me", "TORCH_EXTENSIONS_DIR": "/e"}) == "/e"


def test_processes_that_may_not_be_looked_into_are_passed_over(tmp_path: Path) -> None:
    lock = tmp_path / "extension" / "lock"
    lock.parent.mkdir()
    lock.touch()
    proc = tmp_path / "proc"
    (proc / "12").mkdir(parents=True)
    (proc / "13" / "fd").mkdir(parents=True)
    (proc / "13" / "fd" / "3").symlink_to(lock)
    assert warnings({"TORCH_EXTENSIONS_DIR": str(tmp_path)}, str(proc)) == []
