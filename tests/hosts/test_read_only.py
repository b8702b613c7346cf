"""A root file system that is read-only, as the hardening of Kubernetes has it: nothing can be written to /tmp."""

from __future__ import annotations

import os

import pytest

from .conftest import Train

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")]

READ_ONLY = """
mount --bind "$0" /mnt
for folder in /tmp /var/tmp /dev/shm; do
    mount --bind "$folder" "$folder" && mount -o remount,ro,bind "$folder" || exit 99
done
mount --bind /mnt "$0"
exec "$@"
"""
BEGIN = "/tmp can't be written: mount an emptyDir (Kubernetes) or `--tmpfs /tmp` (Docker) there, or set TMPDIR"


def run(train: Train, **environ: str) -> tuple[int, str]:
    """``train`` where the job's own directory alone can be written: its code and what it said."""
    before = ("unshare", "--mount", "sh", "-c", READ_ONLY, str(train.base))
    done = train.run(*before, **environ)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_requirements(train: Train) -> None:
    train.program("print('never')")
    (train.base / "code" / "requirements.txt").write_text("six")
    code, said = run(train)
    assert (code, "requirements.txt needs a temporary directory, and " + BEGIN in said) == (71, True), said
    assert BEGIN in train.reason


@pytest.mark.lane("suite")
@pytest.mark.parametrize("launcher", ["script", "ranks", "torchrun"])
def test_others_need_none(train: Train, launcher: str) -> None:
    train.program("print('done')")
    code, said = run(train, MUSTER_LAUNCHER=launcher)
    assert (code, "done" in said) == (0, True), said


def test_a_program_that_needs_one(train: Train) -> None:
    train.program("import os, tempfile\nos.chdir('/proc')\nopen(tempfile.mkdtemp())")
    code, _ = run(train, MUSTER_LAUNCHER="torchrun")
    assert code == 1
    lines = train.reason.splitlines()
    assert lines[0].startswith("FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp'")
    assert lines[2].startswith("hint: " + BEGIN)


def test_a_temporary_directory_of_the_users_own(train: Train) -> None:
    train.program("import tempfile; print(tempfile.mkdtemp())")
    (train.base / "scratch").mkdir()
    code, said = run(train, MUSTER_LAUNCHER="ranks", TMPDIR=str(train.base / "scratch"))
    assert (code, str(train.base / "scratch") in said) == (0, True), said
