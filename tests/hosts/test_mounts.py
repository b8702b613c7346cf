"""What the platform mounts below the base directory: read-only channels and code stay as they are, pipes unopened."""

from __future__ import annotations

import json
import os
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


def test_what_is_mounted_stays_as_it_is(train: Train, tmp_path: Path) -> None:
    """A read-only channel, a pipe, a read-only code directory with a shell script that may not be run.

    Nobody writes to the pipe: who opened it to read would wait for ever.
    """
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
    assert [(path.name, path.stat().st_mode, path.stat().st_mtime_ns) for path in sorted(code.iterdir())] == before
    assert (train.base / "output/success").exists()
