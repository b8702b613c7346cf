"""Channels that are read while the job runs: named pipes, as SageMaker's Pipe mode, and mounts, as its FastFile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Callable
from urllib.parse import quote

import pytest
from tests.conftest import clean

from musterpoint.embedded.programs.pipes import record

from .s3 import CREDENTIALS, S3, Faulty

READS = """
import os, sys
base = os.environ["SM_CHANNEL_TRAIN"]
for epoch in range(int(sys.argv[1])):
    with open(f"{base}_{epoch}", "rb") as pipe, open(f"{sys.argv[2]}{epoch}", "wb") as copy:
        copy.write(pipe.read())
if len(sys.argv) > 3 and not os.path.exists(sys.argv[3]):
    open(sys.argv[3], "w").close()
    sys.exit(3)
"""
NAMES = ["a b", "sub/ü", "z"]


@pytest.fixture
def data(tmp_path: Path) -> dict[str, bytes]:
    """By name, in the order in which they are read."""
    found = {name: os.urandom(size) for name, size in zip(NAMES, (300_001, 0, 9), strict=True)}
    for name, content in found.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return found


def launch(folder: Path, channel: str, *words: str, options: tuple[str, ...] = (), **environ: str) -> tuple[int, str]:
    (folder / "train.py").write_text(READS)
    command = [sys.executable, "-m", "musterpoint", "launch", "--channel", f"train={channel}", *options, "train.py"]
    done = subprocess.run(
        [*command, *words], cwd=folder, env={**clean({}), **environ}, text=True, timeout=500,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_each_epoch_is_a_pipe_of_its_own(tmp_path: Path, data: dict[str, bytes]) -> None:
    code, out = launch(tmp_path, f"{tmp_path}/data;pipe", "3", str(tmp_path / "epoch"))
    assert not code, out
    assert [(tmp_path / f"epoch{each}").read_bytes() for each in range(3)] == [b"".join(data.values())] * 3
    code, out = launch(tmp_path, f"{tmp_path}/data;pipe;recordio", "1", str(tmp_path / "records"))
    assert not code, out
    assert (tmp_path / "records0").read_bytes() == b"".join(map(record, data.values()))


def test_another_attempt_begins_with_the_first_epoch(tmp_path: Path, data: dict[str, bytes]) -> None:
    options = ("--max-restarts", "1", "--restart-on", "user")
    words = "2", str(tmp_path / "epoch"), str(tmp_path / "mark")
    code, out = launch(tmp_path, f"{tmp_path}/data;pipe", *words, options=options)
    assert not code and (tmp_path / "mark").exists(), out
    assert [(tmp_path / f"epoch{each}").read_bytes() for each in range(2)] == [b"".join(data.values())] * 2


def test_what_cant_be_read_any_more_ends_the_job(tmp_path: Path, data: dict[str, bytes]) -> None:
    """Its program would take the end of the pipe for the end of the data."""
    (tmp_path / "train.py").write_text("")
    reads = f"import os; os.unlink({str(tmp_path / 'data' / 'z')!r})\n{READS}"
    (tmp_path / "data" / "z").write_bytes(b"")
    (tmp_path / "reads.py").write_text(reads)
    words = [sys.executable, "-m", "musterpoint", "launch", "--channel", f"train={tmp_path}/data;pipe", "reads.py", "1"]
    done = subprocess.run([*words, str(tmp_path / "epoch")], cwd=tmp_path, env=clean({}), text=True, timeout=500,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    assert done.returncode == 71 and "channel train can't be read any more" in done.stdout, done.stdout


def test_from_s3_a_cut_goes_on_where_it_was(
    tmp_path: Path, data: dict[str, bytes], s3: S3, faulty: Faulty, stack: Callable[[str], Path]
) -> None:
    s3.bucket("piped")
    for name, content in data.items():
        s3.put("piped", f"data/{quote(name)}", content)
    faulty.faults = ["", "", "cut", "", "503"]
    python = str(stack("s3") / "python")
    code, out = launch(
        tmp_path, "s3://piped/data;pipe", "2", str(tmp_path / "epoch"),
        **{**CREDENTIALS, "AWS_ENDPOINT_URL_S3": faulty.url, "MUSTER_PYTHON": python},
    )  # fmt: skip
    assert not code and not faulty.faults, out
    assert [(tmp_path / f"epoch{each}").read_bytes() for each in range(2)] == [b"".join(data.values())] * 2


LISTS = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"])
assert os.path.ismount(folder)
for path in folder.rglob("*"):
    if path.is_file():
        print(path.relative_to(folder), sum(path.read_bytes()), flush=True)
try:
    (folder / "new").write_text("x")
except OSError:
    print("read-only", flush=True)
os.kill(os.getpid(), int(sys.argv[1]))
"""


@pytest.mark.lane("contract")
@pytest.mark.parametrize("signo", [0, 9], ids=["ends", "is killed"])
def test_a_mount_is_read_when_its_files_are(
    tmp_path: Path, data: dict[str, bytes], stack: Callable[[str], Path], signo: int
) -> None:
    (tmp_path / "lists.py").write_text(LISTS)
    [library] = stack("fuse").parent.rglob("libfuse.so.2")
    words = [sys.executable, "-m", "musterpoint", "launch", "--channel", f"train={tmp_path}/data;fastfile", "lists.py"]
    more = {"FUSE_LIBRARY_PATH": str(library), "MUSTER_PYTHON": str(stack("fuse") / "python")}
    done = subprocess.run([*words, str(signo)], cwd=tmp_path, env={**clean({}), **more}, text=True, timeout=500,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    assert done.returncode == (137 if signo else 0), done.stdout
    assert "read-only" in done.stdout, done.stdout
    assert all(f"{name} {sum(content)}" in done.stdout for name, content in data.items()), done.stdout
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


def test_without_what_a_mount_takes_it_is_refused_by_name(tmp_path: Path, data: dict[str, bytes]) -> None:
    code, out = launch(tmp_path, f"{tmp_path}/data;fastfile", "1", str(tmp_path / "epoch"))
    assert code == 71 and "channel train: no Python here has what this takes" in out, out
    assert "pip install fsspec fusepy" in out and "mount-s3" in out, out
