"""Whole checkpoints: kept beside the ranks, restored before them, and nothing half ever loaded."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, Callable

import pytest
from tests.conftest import clean

from .s3 import CREDENTIALS, S3, Faulty

TRAINER = """
import hashlib, json, os, sys, time
directory, rank = os.environ["SM_CHECKPOINT_DIR"], int(os.environ.get("RANK", "0"))
def step_of(name):
    return int(name.removeprefix("step-"))
whole = sorted((name for name in os.listdir(directory) if name.startswith("step-")), key=step_of)
step = step_of(whole[-1]) if whole else 0
if whole:
    data = open(os.path.join(directory, whole[-1], "state.bin"), "rb").read()
    said = open(os.path.join(directory, whole[-1], "sum.txt")).read()
    assert hashlib.sha256(data).hexdigest() == said, "half a checkpoint"
print("from", step, flush=True)
for step in range(step + 1, step + 1 + int(os.environ["STEPS"])):
    folder = os.path.join(directory, f"new-{step}.tmp")
    os.makedirs(folder)
    data = os.urandom(int(os.environ.get("SIZE", "200000")))
    with open(os.path.join(folder, "state.bin"), "wb") as file:
        file.write(data)
    with open(os.path.join(folder, "sum.txt"), "w") as file:
        file.write(hashlib.sha256(data).hexdigest())
    time.sleep(0.01)
    os.rename(folder, os.path.join(directory, f"step-{step}"))
    print("saved", step, flush=True)
    go_on = os.environ.get("GO_ON")
    while go_on and not os.path.exists(go_on):
        time.sleep(0.02)
"""


class Killed(subprocess.Popen[str]):
    """What a failing test doesn't wait for."""

    def __exit__(self, kind: type[BaseException] | None, *more: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *more)


def awaited(stream: IO[str] | None, words: str) -> None:
    """Reads until a line with ``words``."""
    assert stream is not None
    seen = []
    for line in stream:
        seen.append(line)
        if words in line:
            return
    raise AssertionError("".join(seen))


class Job:
    """A job of one host in ``folder``, whose checkpoints go to ``place``."""

    def __init__(self, folder: Path, place: str, **environ: str) -> None:
        self.folder, self.place = folder, place
        folder.mkdir(exist_ok=True)
        self.program = folder / "train.py"
        self.program.write_text(TRAINER)
        self.environ = {**clean({}), "STEPS": "2", **environ}

    def start(self, *options: str, **environ: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "musterpoint", "launch", "--job-name", "j", "--checkpoints", self.place]
        words += [*options, "--", sys.executable, str(self.program)]
        return Killed(
            words, cwd=self.folder, text=True, start_new_session=True, env={**self.environ, **environ},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *options: str, **environ: str) -> tuple[int, str, str]:
        with self.start(*options, **environ) as process:
            out, err = process.communicate(timeout=500)
            return process.returncode, out, err

    def forget(self) -> None:
        """This host's disk is gone."""
        subprocess.run(["rm", "-rf", str(self.folder / "muster-jobs")], check=True)

    @property
    def outcome(self) -> dict[str, Any]:
        [path] = (self.folder / "muster-jobs").rglob("outcome.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path, str(tmp_path / "place"))


@pytest.fixture
def on_s3(tmp_path: Path, s3: S3, stack: Callable[[str], Path], request: pytest.FixtureRequest) -> Job:
    bucket = request.node.name.partition("[")[0].replace("_", "-")[:60].strip("-")
    s3.bucket(bucket)
    more = {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": s3.url, "MUSTER_PYTHON": str(stack("s3") / "python")}
    return Job(tmp_path, f"s3://{bucket}/checkpoints", **more)


@pytest.mark.lane("suite")
def test_the_next_start_goes_on(job: Job) -> None:
    """On another disk; and on one with half a checkpoint, which isn't taken for a newer one."""
    code, out, err = job.run()
    assert not code, err
    assert "from 0" in out and "saved 2" in out
    assert job.outcome["checkpoints"]["newest"] == "step-2" and not job.outcome["checkpoints"]["problem"]
    job.forget()
    code, out, err = job.run()
    assert not code and "from 2" in out, err
    [directory] = (job.folder / "muster-jobs").rglob("checkpoints")
    (directory / "step-9").mkdir()
    (directory / "step-9" / "state.bin").write_text("half")
    code, out, err = job.run()
    assert not code and "from 4" in out, err


@pytest.mark.lane("suite")
def test_on_s3(on_s3: Job) -> None:
    assert not on_s3.run()[0]
    on_s3.forget()
    code, out, err = on_s3.run()
    assert not code and "from 2" in out, err
    assert on_s3.outcome["checkpoints"]["newest"] == "step-4"


def test_older_ones_go(job: Job) -> None:
    job.run("--checkpoint-keep", "1", STEPS="4")
    manifests = list((Path(job.place) / "manifests").iterdir())
    assert len(manifests) == 1
    named = {entry[3] for part in json.loads(manifests[0].read_text())["parts"] for entry in part["files"]}
    there = {str(path.relative_to(job.place)) for path in (Path(job.place) / "files").rglob("*") if path.is_file()}
    assert there == named


def test_what_isnt_the_jobs_or_isnt_whole_is_never_loaded(job: Job) -> None:
    """Another job's; one whose newest manifest was cut; and one whose files aren't what its manifest says."""
    assert not job.run(STEPS="1")[0] and not job.run(STEPS="1")[0]
    code, out, err = job.run("--job-name", "other")
    assert code == 71 and "from" not in out, err
    job.forget()
    newest = max((Path(job.place) / "manifests").iterdir())
    newest.write_bytes(newest.read_bytes()[:-20])
    code, out, err = job.run(STEPS="0")
    assert not code and "from 1" in out, err
    job.forget()
    for path in (Path(job.place) / "files").rglob("state.bin"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    code, out, err = job.run()
    assert code == 71 and "from" not in out, err


def test_a_store_that_refuses(on_s3: Job, faulty: Faulty, tmp_path: Path) -> None:
    """Before the ranks it ends the job; later it ends nothing, and is in the outcome."""
    faulty.always = "403"
    code, out, err = on_s3.run(AWS_ENDPOINT_URL_S3=faulty.url)
    assert code == 71 and "from" not in out, err
    faulty.always, go_on = "", tmp_path / "go on"
    with on_s3.start(GO_ON=str(go_on), AWS_ENDPOINT_URL_S3=faulty.url) as process:
        awaited(process.stdout, "saved 1")
        faulty.always = "403"
        go_on.touch()
        _, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    assert "was refused to" in on_s3.outcome["checkpoints"]["problem"]


def test_a_stop_keeps_what_was_whole(job: Job, tmp_path: Path) -> None:
    with job.start(GO_ON=str(tmp_path / "never")) as process:
        awaited(process.stdout, "saved 1")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=500)
    assert process.returncode == 143 and job.outcome["checkpoints"]["newest"] == "step-1"
    job.forget()
    assert "from 1" in job.run()[1]


def test_a_place_that_is_full_ends_nothing_and_what_was_whole_stays(job: Job, tmp_path: Path) -> None:
    """A first checkpoint gets there; the next one doesn't fit. Nothing half is restored."""
    Path(job.place).mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "full", job.place], check=True)
    try:
        code, _, err = job.run(STEPS="1")
        assert not code and job.outcome["checkpoints"]["newest"] == "step-1", err
        code, out, err = job.run(STEPS="1", SIZE="8000000")
        assert not code and "from 1" in out and "No space left on device" in err, err
        assert "No space left on device" in job.outcome["checkpoints"]["problem"]
        job.forget()
        code, out, err = job.run(STEPS="1")
        assert not code and "from 1" in out, err
    finally:
        subprocess.run(["umount", job.place], check=True)


ASKS = """
import os, signal, sys, time
from musterpoint import checkpoints
directory = os.environ["SM_CHECKPOINT_DIR"]
print("latest", checkpoints.latest() and os.path.basename(checkpoints.latest()), flush=True)
assert checkpoints.deadline() is None
def stop(*_):
    left = checkpoints.deadline()
    assert left is not None and 0 < left <= 20, left
    print("has time", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, stop)
os.makedirs(os.path.join(directory, "step-1"))
with open(os.path.join(directory, "step-1", "state"), "w") as file:
    file.write("state")
checkpoints.saved(os.path.join(directory, "step-1"))
print("said", flush=True)
while True:
    time.sleep(0.02)
"""


def test_what_a_program_may_ask_and_say(job: Job) -> None:
    """A folder without any mark is whole since the program says so."""
    job.program.write_text(ASKS)
    for before in ("None", "step-1"):
        with job.start("--stop-grace", "20") as process:
            awaited(process.stdout, f"latest {before}")
            awaited(process.stdout, "said")  # it hears signals by then
            awaited(process.stderr, "is whole at")
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=500)
        assert process.returncode == 143 and "has time" in out, err
        job.program.write_text(ASKS.replace('"step-1"', '"step-2"'))


def test_uploads(job: Job, tmp_path: Path) -> None:
    job.program.write_text(
        "import os\nfor name in ('SM_MODEL_DIR', 'SM_OUTPUT_DATA_DIR'):\n"
        "    open(os.path.join(os.environ[name], 'x'), 'w').write(name)\n"
    )
    code, _, err = job.run("--upload", f"{tmp_path}/results;files")
    assert not code, err
    assert (tmp_path / "results/model/x").read_text() == "SM_MODEL_DIR"
    assert (tmp_path / "results/output/x").read_text() == "SM_OUTPUT_DATA_DIR"
    assert [each["what"] for each in job.outcome["uploads"]] == ["model", "output"]


@pytest.mark.lane("suite")
def test_two_hosts_agree_on_what_is_whole(tmp_path: Path) -> None:
    """Each host has files of its own; the manifest has both hosts' of one step, never of two."""
    program = tmp_path / "train.py"
    program.write_text(TWO)
    place = tmp_path / "place"
    words = [sys.executable, "-m", "musterpoint", "local", "--backend", "process", "--hosts", "2"]
    words += ["--launcher", "ranks", "--checkpoints", str(place), "--stop-grace", "5"]
    for turn in range(2):
        more = ["--output", str(tmp_path / f"job{turn}"), "--job-name", "both"]
        done = subprocess.run([*words, *more, str(program)], cwd=tmp_path, env=clean({}), text=True, timeout=500,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        assert not done.returncode, done.stdout
        assert f"host 0 from {3 * turn}" in done.stdout and f"host 1 from {3 * turn}" in done.stdout, done.stdout
    for path in (place / "manifests").iterdir():
        files = [entry for part in json.loads(path.read_text())["parts"] for entry in part["files"]]
        assert {entry[4] for entry in files} == {0, 1}
        assert len({entry[0].partition("/")[0] for entry in files}) == 1


TWO = """
import os, time
directory, host = os.environ["SM_CHECKPOINT_DIR"], os.environ["SM_CURRENT_HOST"]
rank = int(os.environ["RANK"])
whole = sorted((name for name in os.listdir(directory) if name.startswith("step-")), key=lambda name: int(name[5:]))
step = int(whole[-1][5:]) if whole else 0
if whole:
    assert os.listdir(os.path.join(directory, whole[-1])) == [f"rank{rank}.txt"], os.listdir(directory)
print("host", rank, "from", step, flush=True)
for step in range(step + 1, step + 4):
    time.sleep(0.1 + rank * 0.2)
    folder = os.path.join(directory, f"new-{step}.tmp")
    os.makedirs(folder)
    with open(os.path.join(folder, f"rank{rank}.txt"), "w") as file:
        file.write(f"{step} of {rank}")
    time.sleep(0.01)
    os.rename(folder, os.path.join(directory, f"step-{step}"))
"""


@pytest.mark.lane("suite")
def test_the_one_file_launcher_brings_channels_and_keeps_checkpoints(tmp_path: Path) -> None:
    """On a Python that has nothing of ours."""
    launcher, data = tmp_path / "launcher.py", tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("of the channel")
    subprocess.run([sys.executable, "-m", "musterpoint", "bundle", "-o", str(launcher)], env=clean({}), check=True)
    (tmp_path / "train.py").write_text(
        TRAINER + 'print(open(os.path.join(os.environ["SM_CHANNEL_TRAIN"], "x")).read(), flush=True)\n'
    )
    words = ["--job-name", "j", "--checkpoints", str(tmp_path / "place"), "--channel", f"train={data}"]
    for before in (0, 1):
        command = [sys.executable, "-I", "-S", str(launcher), *words, "train.py"]
        done = subprocess.run(command, cwd=tmp_path, text=True, env=clean({"STEPS": "1"}), capture_output=True)
        assert not done.returncode and f"from {before}" in done.stdout and "of the channel" in done.stdout, done.stderr
        subprocess.run(["rm", "-rf", str(tmp_path / "muster-jobs")], check=True)
