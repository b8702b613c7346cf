"""What the platform mounts below the base directory: read-only channels and code stay as they are, pipes unopened."""

from __future__ import annotations

import ctypes
import json
import os
import struct
from pathlib import Path

import pytest

from .conftest import Train
from .network import usable

pytestmark = [pytest.mark.netns, pytest.mark.skipif(not usable(), reason="mount namespaces need Linux and root")]

PROGRAM = """
import json, os
names = ("SM_CHECKPOINT_DIR", "SAGEMAKER_METRICS_DIRECTORY", "SM_CHANNEL_FAST", "SM_CHANNEL_PIPED", "SM_CHANNELS")
seen = {name: os.environ[name] for name in names}
seen["rows"] = open(os.path.join(os.environ["SM_CHANNEL_FAST"], "part")).read()
for place in (os.environ["SM_CHANNEL_FAST"], os.getcwd()):
    try:
        open(os.path.join(place, "new"), "w")
        seen["written"] = place
    except OSError as error:
        assert error.errno == 30, error
print(json.dumps(seen))
"""
CHANGED = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400
"""inotify(7): modified, attributes, closed after writing, moved from or to, created, deleted."""
OPENED = 0x20


class Watch:
    """What happens in some directories, told by the kernel: (name, mask) of each event."""

    def __init__(self, *folders: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for folder in folders:
            assert self._libc.inotify_add_watch(self._fd, os.fsencode(folder), CHANGED | OPENED) > 0

    def events(self) -> list[tuple[str, int]]:
        try:
            data = os.read(self._fd, 1 << 20)
        except BlockingIOError:
            data = b""
        found, at = [], 0
        while at < len(data):
            _, mask, _, length = struct.unpack_from("iIII", data, at)
            found.append((data[at + 16 : at + 16 + length].rstrip(b"\0").decode(), mask))
            at += 16 + length
        os.close(self._fd)
        return found


def test_what_is_mounted_stays_as_it_is(train: Train, tmp_path: Path) -> None:
    """A read-only channel, a pipe, a read-only code directory with a shell script that may not be run, a full job."""
    fast, code = tmp_path / "fast", tmp_path / "mine"
    for folder in (fast, code, train.base / "input/data/fast", train.base / "output/metrics/sagemaker"):
        folder.mkdir(parents=True)
    (fast / "part").write_text("rows")
    (code / "program.py").write_text(PROGRAM)
    (code / "start.sh").write_text('exec "$PYTHON" program.py\n')
    os.mkfifo(train.base / "input/data/piped_0", 0o644)
    config = {
        "hyperparameters": {"sagemaker_program": "start.sh", "sagemaker_submit_directory": "s3://jobs/unused.tar.gz"},
        "inputdataconfig": {"fast": {"TrainingInputMode": "FastFile"}, "piped": {"TrainingInputMode": "Pipe"}},
        "checkpointconfig": {"S3Uri": "s3://jobs/state", "LocalPath": "/state"},
    }
    for name, content in config.items():
        (train.base / f"input/config/{name}.json").write_text(json.dumps(content))
    before = [(path.name, path.stat().st_mode, path.stat().st_mtime_ns) for path in sorted(code.iterdir())]
    watch = Watch(train.base / "input/data", fast, code)
    mounts = "".join(
        f"mount --bind {source} {train.base / place} && mount -o remount,ro,bind {train.base / place} && "
        for source, place in ((fast, "input/data/fast"), (code, "code"))
    )
    done = train.run("unshare", "--mount", "sh", "-c", mounts + 'exec "$@"', "sh", PYTHON=train.python)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "SM_CHECKPOINT_DIR": "/state", "SAGEMAKER_METRICS_DIRECTORY": str(train.base / "output/metrics/sagemaker"),
        "SM_CHANNEL_FAST": str(train.base / "input/data/fast"),
        "SM_CHANNEL_PIPED": str(train.base / "input/data/piped"), "SM_CHANNELS": '["fast","piped"]', "rows": "rows",
    }  # fmt: skip
    used = f"the code in {train.base}/code was there before the job: s3://jobs/unused.tar.gz isn't unpacked"
    assert done.stderr.decode() == f"musterpoint: {used}\n"
    events = watch.events()
    assert ("piped_0", OPENED) not in events
    assert [event for event in events if event[1] & CHANGED] == []
    assert ("part", OPENED) in events
    assert [(path.name, path.stat().st_mode, path.stat().st_mtime_ns) for path in sorted(code.iterdir())] == before
    assert (train.base / "output/success").exists()
