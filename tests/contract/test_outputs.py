"""The same program through sagemaker-training's sync of intermediate outputs and through ours: which keys are there?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ..hosts.s3 import S3

PEER = "MUSTER_TEST_SAGEMAKER_TRAINING"

# Its watcher misses what is written before it watches a directory, so each is waited for.
WRITES = """
import glob, os, sys, time
os.chdir(sys.argv[-1])
def is_watched(directory):
    found = False
    for path in glob.glob("/proc/[0-9]*/fdinfo/*"):
        try:
            found = found or f" ino:{os.stat(directory).st_ino:x} " in open(path).read()
        except OSError:
            pass  # gone meanwhile
    return found
def make(directory):
    os.mkdir(directory)
    while not is_watched(directory):
        time.sleep(0.05)
def write(path, text, mode="w"):
    with open(path, mode) as file:
        file.write(text)
write("top.txt", "top")
make("run"); make("run/deep")
write("run/one.txt", "one"); write("run/deep/two.txt", "two")
make("run/late")
write("run/late/three.txt", "three")
write(".hidden", "hidden")
write("a b +ä%&=?#~'.txt", "odd")
write("empty", "")
write("log", "1"); time.sleep(1.0); write("log", "2", "a"); time.sleep(1.0); write("log", "3", "a")
kept = open("open.txt", "w"); kept.write("closed by its end")
"""

THEIRS = """
import os, runpy, subprocess, sys
from sagemaker_training import intermediate_output as sync
process = sync.start_sync(sys.argv[1], "us-east-1", endpoint_url=sys.argv[2])
subprocess.run([sys.executable, sys.argv[3], sync.intermediate_path], check=True)
open(sync.success_file_path, "w").close()
process.join()
"""


def test_the_same_keys_with_the_same_content(
    s3: S3, stack: Callable[[str], Path], environ: dict[str, str], tmp_path: Path
) -> None:
    assert PEER in os.environ, f"{PEER} is not set: run this test with scripts/test, which sets it up"
    for name in ("theirs", "ours"):
        s3.bucket(name)
        (tmp_path / name / "input/config").mkdir(parents=True)
        (tmp_path / name / "output").mkdir()
        (tmp_path / name / "code").mkdir()
    writes = tmp_path / "ours" / "code" / "writes.py"
    writes.write_text(WRITES)
    environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_REGION="us-east-1")
    environ.update(TRAINING_JOB_NAME="job", AWS_ENDPOINT_URL_S3=s3.url, MUSTER_MASTER_PORT="0")
    theirs = subprocess.Popen(
        [os.environ[PEER], "-c", THEIRS, "s3://theirs/some/where/", s3.url, writes],
        env={**environ, "PYTHONPATH": "", "SAGEMAKER_BASE_DIR": str(tmp_path / "theirs")},
    )
    base = tmp_path / "ours"
    intermediate = str(base / "output/intermediate")
    config = {
        "hyperparameters.json": {"sagemaker_program": '"writes.py"', "sagemaker_s3_output": '"s3://ours/some/where/"',
                                 "to": json.dumps(intermediate)},
        "resourceconfig.json": {"current_host": "algo-1", "hosts": ["algo-1"]},
        "inputdataconfig.json": {},
    }  # fmt: skip
    for name, content in config.items():
        (base / "input/config" / name).write_text(json.dumps(content))
    ours = subprocess.run(
        [sys.executable, "-m", "musterpoint.cli.train"], capture_output=True, text=True, timeout=500, check=False,
        env={**environ, "SAGEMAKER_BASE_DIR": str(base), "MUSTER_PYTHON": str(stack("s3") / "python")},
    )  # fmt: skip
    assert ours.returncode == 0, ours.stderr
    assert theirs.wait(timeout=500) == 0
    found = s3.objects("theirs")
    assert len(found) == 9, sorted(found)
    assert s3.objects("ours") == found
