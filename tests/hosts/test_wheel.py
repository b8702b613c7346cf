"""Two hosts from the installed wheel: no folder of the sources is on any path."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("metadata")
PROGRAM = """
import os, musterpoint
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "by", musterpoint.__file__, flush=True)
"""


@pytest.fixture(scope="session")
def installed(wheel: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment with the wheel, over the packages that the tests have, less this checkout."""
    folder = tmp_path_factory.mktemp("wheel") / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    above = [path for path in sys.path if path.endswith("site-packages") and root not in Path(path).parents]
    (packages / "layers.pth").write_text("".join(f"{path}\n" for path in above))
    pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet")
    subprocess.run([*pip, "--no-deps", "--no-index", "--no-warn-script-location", wheel], check=True)
    return folder / "bin"


def ran(installed: Path, environ: Mapping[str, str], folder: Path, *words: str | Path) -> str:
    """What ``muster local`` printed, which must have ended with 0."""
    own = {name: text for name, text in environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [installed / "muster", "local", *words], env=own, cwd=folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("launcher", ["ranks", "torchrun"])
def test_two_hosts_make_one_world(installed: Path, environ: dict[str, str], tmp_path: Path, launcher: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ("--hosts", "2", "--slots", "1", "--launcher", launcher, "--log-prefix", "none")
    said = ran(installed, environ, tmp_path, *options, "--output", "job", "program.py")
    lines = sorted(line.partition("rank ")[2] for line in said.splitlines() if " by " in line)
    place = next(installed.parent.glob("lib/python3*/site-packages")) / "musterpoint" / "__init__.py"
    assert lines == [f"{rank} of 2 by {place}" for rank in range(2)]
    assert json.loads((tmp_path / "job" / "job.json").read_text())["TrainingJobStatus"] == "Completed"


def test_the_demo(installed: Path, environ: dict[str, str], tmp_path: Path) -> None:
    """And the commands that it prints, as printed."""
    own = {**environ, "PATH": f"{installed}:{environ['PATH']}"}
    own.pop("PYTHONPATH", None)
    (tmp_path / "YOUR.py").write_text("print('mine')")
    done = subprocess.run(
        ["muster", "local", "--demo"], env=own, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=True,
    )  # fmt: skip
    printed = re.findall(r"^.*?(muster (?:report|local|launch|plan) .+?)(?:  +.*)?$", done.stdout, re.MULTILINE)
    assert [words.split()[1] for words in printed] == ["report", "report", "local"], done.stdout
    for command in printed:
        subprocess.run(["sh", "-c", command], env=own, cwd=tmp_path, stdin=subprocess.DEVNULL, check=True)


@pytest.mark.torch
def test_the_job_of_the_demo_of_the_checkout(
    installed: Path, environ: dict[str, str], tmp_path: Path, root: Path
) -> None:
    train = root / "examples" / "digits_ddp" / "train.py"
    ran(installed, environ, tmp_path, "--hosts", "2", "--slots", "1", "--output", "job", train, "--epochs", "1")
    assert os.path.getsize(tmp_path / "job" / "model.tar.gz")
