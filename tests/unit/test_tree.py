"""The tree itself holds nothing of the machine it was written on."""

from __future__ import annotations

import getpass
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERAL = {"/", "/home", "/opt", "/root", "/srv", "/tmp", "/usr", "/usr/local", "/var", "/var/tmp"}


def files() -> list[Path]:
    """Every text file of the checkout that git doesn't ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def places() -> set[str]:
    """Directories of this machine that have no business in the tree."""
    words = {str(ROOT), str(ROOT.parent), str(Path.home()), os.environ.get("PYENV_ROOT", "")}
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        words.update(os.environ.get(name, "").split())
    user = getpass.getuser()
    words.add("" if user == "root" else f"/home/{user}/")
    return {word for word in words if word and word not in GENERAL}


def test_no_place_of_this_machine() -> None:
    found = []
    for path in files():
        text = path.read_bytes().decode("utf-8", "replace")
        found += [f"{path.relative_to(ROOT)}: {word}" for word in places() if f"{word}/" in f"{text}/"]
    assert found == []
