"""The files of a release: made by scripts/release from this commit, installed in an empty environment, tried there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Callable

import pytest

pytestmark = pytest.mark.xdist_group("release")


@pytest.fixture(scope="module")
def files(stack: Callable[[str], Path], root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    stack("release")
    output = tmp_path_factory.mktemp("release") / "dist"
    command = [root / "scripts" / "release", "--quick", "--dirty", "--output", output]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"installed and tried: pip, Python 3\.\d+; uv; pipx", done.stderr)
    return output


def test_all_files_are_there_and_sum_up(files: Path) -> None:
    kinds = {path.name.partition("0.1.0")[0] + path.suffix for path in files.iterdir()}
    assert {"SHA256SUMS", "launcher.py.py", "musterpoint-.whl", "musterpoint-.gz"} <= kinds
    done = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=files, check=False)
    assert done.returncode == 0


def test_the_wheel_needs_nothing(files: Path) -> None:
    (bill,) = files.glob("*.cdx.json")
    assert [part["name"] for part in json.loads(bill.read_text())["components"]] == ["musterpoint"]
    (wheel,) = files.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    places = {re.sub(r"-[^/]*\.(?=data$|dist-info$)", ".", name.split("/")[0]) for name in names}
    assert places == {"musterpoint", "musterpoint_smdistributed", "musterpoint.dist-info"}


def test_the_one_file_launcher_starts(files: Path) -> None:
    done = subprocess.run([sys.executable, "-I", files / "launcher.py", "--help"], capture_output=True, check=False)
    assert done.returncode == 0
