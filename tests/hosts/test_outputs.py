"""The sync of /opt/ml/output/intermediate to S3: while the program runs, and at every ending."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Callable

import pytest

from .conftest import Local, Train, eventually
from .s3 import CREDENTIALS, S3, Faulty, without

JOB = "the-job"
PREFIX = f"runs/{JOB}/output/intermediate/"


@pytest.fixture
def syncing(train: Train, stack: Callable[[str], Path], s3: S3, bucket: str) -> Train:
    """A host whose job names an S3 output; the user's Python has boto3, ours hasn't."""
    train.environ.update(CREDENTIALS, MUSTER_PYTHON=str(stack("s3") / "python"), TRAINING_JOB_NAME=JOB)
    train.environ["AWS_ENDPOINT_URL_S3"] = s3.url
    return train


BEFORE = """
import os, pathlib, sys, time
out = pathlib.Path(os.environ['SM_OUTPUT_INTERMEDIATE_DIR'])
model = pathlib.Path(os.environ['SM_MODEL_DIR'])
def wait(name):
    while not (model / name).exists():
        time.sleep(0.02)
"""


def program(train: Train, text: str, output: str) -> None:
    train.program(BEFORE + text)
    words = {"sagemaker_program": '"program.py"', "sagemaker_s3_output": json.dumps(output)}
    (train.base / "input/config/hyperparameters.json").write_text(json.dumps(words))


def finish(process: subprocess.Popen[bytes], code: int = 0) -> str:
    """What it wrote to stderr, once it has ended as it has to."""
    try:
        _, stderr = process.communicate(timeout=500)
    finally:
        process.kill()
    assert process.returncode == code, stderr.decode()
    return stderr.decode()


WRITES = """
(out / 'first.txt').write_text('first')
os.mkdir(out / 'run')
(out / 'run' / 'step-1.txt').write_text('1')
(out / 'x.tmp').write_text('whole')
os.rename(out / 'x.tmp', out / 'x')
half = open(out / 'half.txt', 'w'); half.write('half'); half.flush()
work = model / 'work'; os.makedirs(work / 'deep')
(work / 'deep' / 'moved.txt').write_text('moved in')
os.rename(work, out / 'work')
for number in range(50):
    (out / 'often.txt').write_text(str(number))
(out / 'gone.txt').write_text('gone'); os.unlink(out / 'gone.txt')
os.symlink('first.txt', out / 'link.txt')
os.symlink('.', out / 'circle')
os.mkdir(out / '.tmp.mine'); (out / '.tmp.mine' / 'private.txt').write_text('no')
(model / 'written').touch()
wait('go on')
half.write(' and whole'); half.close()
(out / 'last.txt').write_text('last')
(out / 'unclosed.txt').write_text('unclosed'); still = open(out / 'unclosed.txt', 'a'); still.write(' but whole')
"""


@pytest.mark.lane("suite")
def test_files_go_up_while_the_program_runs_and_the_rest_at_its_end(s3: S3, syncing: Train, bucket: str) -> None:
    program(syncing, WRITES, f"s3://{bucket}/runs")
    process = syncing.start()
    syncing.ready(process, "written")
    early = {"first.txt": b"first", "run/step-1.txt": b"1", "x": b"whole", "work/deep/moved.txt": b"moved in",
             "often.txt": b"49", "link.txt": b"first"}  # fmt: skip
    expected = {PREFIX + name: data for name, data in early.items()}
    eventually(lambda: s3.objects(bucket).items() >= expected.items())
    assert s3.objects(bucket) == expected, "a half-written, renamed or deleted file went up, or a private one"
    (syncing.base / "model" / "go on").touch()
    stderr = finish(process)
    late = {"half.txt": b"half and whole", "last.txt": b"last", "unclosed.txt": b"unclosed but whole"}
    assert s3.objects(bucket) == {**expected, **{PREFIX + name: data for name, data in late.items()}}
    assert "9 files, 0.0 MiB, went up" in stderr
    assert "warning: nothing" not in stderr
    assert (syncing.base / "output" / "success").exists()
    events = json.loads((syncing.base / "output" / "timeline.json").read_text())
    assert [(event["files"], event["left"]) for event in events if event["event"] == "outputs-synced"] == [(9, 0)]


def test_a_failure_is_reported_before_the_uploads(s3: S3, faulty: Faulty, syncing: Train, bucket: str) -> None:
    faulty.always = "slow"
    program(syncing, "(out / 'dump.txt').write_text('why')\nsys.exit(7)\n", f"s3://{bucket}")
    process = syncing.start(AWS_ENDPOINT_URL_S3=faulty.url)
    assert faulty.stalled.wait(500)
    assert "exit code 7" in syncing.reason
    stderr = finish(process, 7)
    assert s3.objects(bucket) == {f"{JOB}/output/intermediate/dump.txt": b"why"}, stderr
    assert json.loads((syncing.base / "output" / "outcome.json").read_text())["code"] == 7
    assert "outputs-synced" in (syncing.base / "output" / "timeline.json").read_text()


WRITES_ITS_NAME = """
host = os.environ['SM_CURRENT_HOST']
(out / host).write_text(host)
if host == 'algo-2':
    wait('there')
    sys.exit(5)
open(there, 'w').close()
"""


def test_hosts_share_one_place_and_the_one_file_launcher_syncs_too(
    s3: S3, bucket: str, local: Local, stack: Callable[[str], Path], tmp_path: Path
) -> None:
    """Two hosts with a failure on the second; the launcher is a file in front of the program, as ``train``."""
    local.environ.update(CREDENTIALS, AWS_ENDPOINT_URL_S3=s3.url, MUSTER_PYTHON=str(stack("s3") / "python"))
    there = tmp_path / "there"
    program = local.program(
        BEFORE + f"there, model = {str(there)!r}, pathlib.Path({str(tmp_path)!r})\n" + WRITES_ITS_NAME
    )
    hyperparameters = json.dumps({"sagemaker_s3_output": f"s3://{bucket}/runs"})
    asked = ("--hosts", "2", "--backend", "process", "--launcher", "script", "--hyperparameters", hyperparameters)
    ran = local.run(*asked, program)
    assert ran.code == 5
    name = ran.job["TrainingJobName"]
    at = f"runs/{name}/output/intermediate/"
    assert s3.objects(bucket) == {at + "algo-1": b"algo-1", at + "algo-2": b"algo-2"}, ran.log("algo-1")

    launcher = tmp_path / "train"
    subprocess.run([local.python, "-m", "musterpoint", "bundle", "-o", launcher], env=local.environ, check=True)
    base = local.output / "hosts/algo-1/opt/ml"
    shutil.rmtree(base / "output/intermediate")
    one = {"current_host": "algo-1", "hosts": ["algo-1"]}
    (base / "input/config/resourceconfig.json").write_text(json.dumps(one))
    environ = {key: value for key, value in local.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [local.python, launcher], env={**environ, "SAGEMAKER_BASE_DIR": str(base), "TRAINING_JOB_NAME": "alone",
                                       "MUSTER_MASTER_PORT": "0"},
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert s3.objects(bucket)["runs/alone/output/intermediate/algo-1"] == b"algo-1", done.stderr


TWO_FILES = """
(out / 'one.txt').write_text('one')
(model / 'written').touch()
wait('go on')
(out / 'large.bin').write_bytes(b'0123456789abcdef' * (20 * 65536))
(out / 'two.txt').write_text('two')
"""
LARGE = b"0123456789abcdef" * (20 * 65536)


def test_an_s3_that_fails_is_reported_once_and_tried_again(s3: S3, faulty: Faulty, syncing: Train, bucket: str) -> None:
    """Denied while the program runs, then failing in all the ways of networks; every byte gets there."""
    faulty.always = "403"
    program(syncing, TWO_FILES, f"s3://{bucket}")
    process = syncing.start(AWS_ENDPOINT_URL_S3=faulty.url)
    syncing.ready(process, "written")
    eventually(lambda: len(faulty.seen) >= 2)
    faulty.always, faulty.faults = "", ["503", "reset", "slow", "503", "reset"]
    (syncing.base / "model" / "go on").touch()
    stderr = finish(process)
    found = {key.rpartition("/")[2]: data for key, data in s3.objects(bucket).items()}
    assert found == {"one.txt": b"one", "two.txt": b"two", "large.bin": LARGE}, stderr
    assert faulty.faults == []
    assert stderr.count("(AccessDenied: AccessDenied!): it takes s3:PutObject") == 1, stderr
    assert f"failures on the way to s3://{bucket}/{JOB}/output/intermediate/: AccessDenied " in stderr
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in stderr


def test_a_file_that_shrinks_on_its_way_goes_up_as_it_is_then(
    s3: S3, faulty: Faulty, syncing: Train, bucket: str
) -> None:
    """S3 would wait for the bytes that are missing."""
    faulty.always = "slow"
    text = "(out / 'large.bin').write_bytes(b'0123456789abcdef' * (20 * 65536))\nwait('go on')\n"
    program(syncing, text, f"s3://{bucket}")
    process = syncing.start(AWS_ENDPOINT_URL_S3=faulty.url)
    assert faulty.stalled.wait(500)
    os.truncate(syncing.base / "output/intermediate/large.bin", 4096)
    eventually(lambda: list(s3.objects(bucket).values()) == [LARGE[:4096]])
    (syncing.base / "model" / "go on").touch()
    stderr = finish(process)
    assert "warning" not in stderr


def test_what_never_gets_there_is_named_and_changes_nothing(syncing: Train, bucket: str) -> None:
    program(
        syncing, "for n in range(7):\n    (out / f'{n}.txt').write_text('lost')\nsys.exit(3)\n", "s3://no-such-one/x"
    )
    stderr = finish(syncing.start(), 3)
    assert stderr.count("there is no bucket 'no-such-one'") == 1, stderr
    there = f"s3://no-such-one/x/{JOB}/output/intermediate/"
    assert f"7 files didn't get to {there}: 0.txt, 1.txt, 2.txt, 3.txt, 4.txt, … (failures: NoSuchBucket " in stderr
    assert "exit code 3" in syncing.reason


def test_a_program_that_leaves_nothing_hears_nothing(syncing: Train, bucket: str) -> None:
    """It may be over before the sidecar has come up."""
    program(syncing, "", f"s3://{bucket}")
    stderr = finish(syncing.start())
    assert "warning" not in stderr
    assert stderr.count("musterpoint: ") == 1, "that there is a sync"


SAVES = """
import signal
def save(*_):
    (out / 'checkpoint.txt').write_text('saved')
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
(model / 'written').touch()
while True:
    time.sleep(0.05)
"""


@pytest.mark.lane("suite")
def test_a_stop_leaves_the_time_to_upload_what_was_saved(s3: S3, faulty: Faulty, syncing: Train, bucket: str) -> None:
    faulty.always = "slow"
    program(syncing, SAVES, f"s3://{bucket}")
    process = syncing.start(AWS_ENDPOINT_URL_S3=faulty.url)
    syncing.ready(process, "written")
    process.send_signal(signal.SIGTERM)
    stderr = finish(process, 143)
    assert s3.objects(bucket) == {f"{JOB}/output/intermediate/checkpoint.txt": b"saved"}, stderr
    assert {"failure", "success"}.isdisjoint(os.listdir(syncing.base / "output"))


def test_a_stop_ends_uploads_that_get_nowhere(faulty: Faulty, syncing: Train, bucket: str) -> None:
    """The signal comes when the program has ended well: its end stands."""
    faulty.always = "stall"
    program(syncing, "(out / 'stuck.txt').write_text('stuck')\n", f"s3://{bucket}")
    process = syncing.start(AWS_ENDPOINT_URL_S3=faulty.url, MUSTER_STOP_GRACE="4")
    assert faulty.stalled.wait(500)
    assert not (syncing.base / "output" / "success").exists()
    process.send_signal(signal.SIGTERM)
    stderr = finish(process)
    assert "1 file didn't get to" in stderr, stderr
    assert "stuck.txt (no more time after " in stderr
    assert (syncing.base / "output" / "success").exists()


def uploader_of(process: subprocess.Popen[bytes]) -> int:
    """The sidecar among the children of ``train``."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    found = [int(pid) for pid in children if b"module.main(request)" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(found) == 1, children
    return found[0]


def test_an_uploader_that_dies_has_a_successor(s3: S3, faulty: Faulty, syncing: Train, bucket: str) -> None:
    more = "wait('more')\n(out / 'more.txt').write_text('more')\nwait('go on')"
    program(syncing, TWO_FILES.replace("(20 * 65536)", "10").replace("wait('go on')", more), f"s3://{bucket}")
    process = syncing.start(AWS_ENDPOINT_URL_S3=faulty.url)
    syncing.ready(process, "written")
    eventually(lambda: len(s3.objects(bucket)) == 1)
    (syncing.base / "model" / "more").touch()
    eventually(lambda: len(s3.objects(bucket)) == 2)  # and so it has told of the first
    uploader = uploader_of(process)
    assert b"a-secret" not in Path(f"/proc/{uploader}/cmdline").read_bytes()
    os.kill(uploader, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{uploader}").exists())
    (syncing.base / "model" / "go on").touch()
    stderr = finish(process)
    assert stderr.count("was killed by signal 9; it is started again") == 1
    assert len(s3.objects(bucket)) == 4, stderr
    puts = [path.rpartition("/")[2] for _, path in faulty.seen]
    assert sorted({*puts}) == ["large.bin", "more.txt", "one.txt", "two.txt"]
    assert puts.count("one.txt") == 1, "what had gone up went up again"


def test_pythons_without_the_libraries(s3: S3, syncing: Train, bucket: str, tmp_path: Path) -> None:
    program(syncing, "(out / 'one.txt').write_text('one')\n", f"s3://{bucket}")
    path = f"{without('boto3', tmp_path / 'bare')}:{syncing.environ['PYTHONPATH']}"
    stderr = finish(syncing.start(MUSTER_PYTHON=syncing.python, PYTHONPATH=path))
    assert f"takes boto3, which no Python here has: {syncing.python} (no boto3)" in stderr
    assert s3.objects(bucket) == {}
    stderr = finish(syncing.start(PYTHONPATH=path))
    assert "was there before the job: its sync to" in stderr
