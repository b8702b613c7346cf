"""Where code comes from, through the real sagemaker-training and through ours: S3, archives, packages, what is missing.

What the program sees is the same; where the two end otherwise, docs/sagemaker.md says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ..hosts.packages import tar_gz
from ..hosts.s3 import S3
from .conftest import Theirs
from .differences import compare, pairs
from .test_sagemaker_training import DUMP, SETUP, SHELL, Tree, asked_of_pip, write


class Source(NamedTuple):
    """``files`` are packed and put where ``place`` says: ``s3``, ``file`` (a path) or ``uri`` (``file://``)."""

    files: dict[str, str | bytes]
    place: str = "s3"
    program: str = "dump.py"
    modes: dict[str, int] = {}


SAME: dict[str, Source] = {
    "a script": Source({"dump.py": DUMP, "lib/__init__.py": ""}),
    "a script in a folder": Source({"src/dump.py": DUMP}, program="src/dump.py"),
    "a shell script that lost its bit": Source({"dump.py": DUMP, "run.sh": "#!/bin/bash\n" + SHELL}, program="run.sh"),
    "another program": Source({"dump.py": DUMP, "start": "#!/bin/sh\n" + SHELL}, program="start"),
    "a package": Source({"dump.py": DUMP, "setup.py": SETUP}),
    "a package with requirements": Source(
        {"dump.py": DUMP, "setup.py": SETUP, "requirements.txt": "x\n"}, program="dump"
    ),
    "requirements": Source({"dump.py": DUMP, "requirements.txt": "x\n"}),
    "requirements beside a shell script": Source(
        {"dump.py": DUMP, "requirements.txt": "x\n", "run.sh": "#!/bin/sh\n" + SHELL}, program="run.sh",
        modes={"run.sh": 0o755},
    ),
    "an archive's path": Source({"dump.py": DUMP, "a/b/c.txt": "deep"}, place="file"),
}  # fmt: skip


class Ended(NamedTuple):
    """How a run ended, and what the program saw (None: it didn't start)."""

    code: int
    failure: str
    seen: dict[str, Any] | None


class Both:
    """One job tree, run by either side; each finds it as new."""

    def __init__(self, folder: Path, environ: dict[str, str], our_path: str, theirs: Theirs, s3: S3) -> None:
        self.folder, self.base, self.s3, self.our_path, self._theirs = folder, folder / "ml", s3, our_path, theirs
        self.dump, self.calls = folder / "dump.json", folder / "calls"
        self.environ = {
            **environ, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-test", "S3_ENDPOINT_URL": s3.url, "DUMP": str(self.dump),
            "PIP_CALLS": str(self.calls),
        }  # fmt: skip

    def write(self, source: str, program: str) -> None:
        self.calls.unlink(missing_ok=True)
        self.dump.unlink(missing_ok=True)
        words = {"sagemaker_submit_directory": source, "lr": 0.1, "layers": [1, 2]}
        write(Tree(program, {name: json.dumps(word) for name, word in words.items()}, files={}), self.base)

    def theirs(self) -> Ended:
        return self._ended(self._theirs(self.environ, self.folder / "output"))

    def ours(self) -> Ended:
        environ = {**self.environ, "PYTHONPATH": self.our_path}
        command = [sys.executable, "-m", "musterpoint.cli.train"]
        done = subprocess.run(command, env=environ, cwd="/", capture_output=True, timeout=500, check=False)
        return self._ended(done.returncode)

    def _ended(self, code: int) -> Ended:
        failure = self.base / "output/failure"
        seen = json.loads(self.dump.read_text()) if self.dump.exists() else None
        return Ended(code, failure.read_text() if failure.exists() else "", seen)

    def run(self, source: str, program: str = "dump.py") -> tuple[Ended, Ended]:
        """Theirs and ours."""
        self.write(source, program)
        theirs = self.theirs()
        self.write(source, program)
        return theirs, self.ours()


@pytest.fixture
def both(tmp_path: Path, both_environ: dict[str, str], our_path: str, their_train: Theirs, s3: S3, peer: Path) -> Both:
    return Both(tmp_path, {**both_environ, "MUSTER_PYTHON": str(peer / "python")}, our_path, their_train, s3)


@pytest.mark.parametrize("name", SAME)
def test_the_program_sees_the_same(name: str, both: Both) -> None:
    source = SAME[name]
    packed = tar_gz(source.files, source.modes)
    path = both.folder / "sourcedir.tar.gz"
    path.write_bytes(packed)
    place = (
        both.s3.put("jobs", f"{name.replace(' ', '-')}/source/sourcedir.tar.gz", packed)
        if source.place == "s3"
        else str(path)
    )
    both.write(place, source.program)
    theirs, their_pip = both.theirs(), asked_of_pip(both.calls)
    their_files = tree_of(both.base / "code")
    both.write(place, source.program)
    ours, our_pip = both.ours(), asked_of_pip(both.calls)
    assert (theirs.code, ours.code, ours.failure) == (0, 0, "")
    assert our_pip == their_pip
    assert tree_of(both.base / "code") == their_files
    assert theirs.seen is not None
    assert ours.seen is not None
    own = 1 if source.program.endswith((".py", "dump")) else 2
    assert ours.seen["argv"][:own] == theirs.seen["argv"][:own]
    assert pairs(ours.seen["argv"][own:]) == pairs(theirs.seen["argv"][own:])
    assert ours.seen["cwd"] == theirs.seen["cwd"]
    compare(ours.seen["environ"], theirs.seen["environ"], both.environ)


def tree_of(folder: Path) -> dict[str, bytes]:
    """The files of the code directory, but for what running them leaves, and the mark of where they came from."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.name != ".musterpoint-source"
    }


def test_a_file_uri_is_ours_alone(both: Both) -> None:
    path = both.folder / "sourcedir.tar.gz"
    path.write_bytes(tar_gz({"dump.py": DUMP}))
    theirs, ours = both.run(f"file://{path}")
    assert (theirs.code, theirs.seen) == (2, None)
    assert (ours.code, ours.failure) == (0, "")
