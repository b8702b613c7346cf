"""``muster local --image`` as people run it: real containers, and nothing left of them afterwards."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from musterpoint.base.errors import UsageError
from musterpoint.local import docker_cleanup, tree
from musterpoint.local.docker_container import OWNER, RUN
from musterpoint.local.docker_hosts import DockerHosts
from musterpoint.local.job_request import Container, LocalJob
from musterpoint.local.tree import Layout

from ..hosts.packages import wheel

pytestmark = pytest.mark.xdist_group("muster local --image")
SOMEBODY = 1000
"""A user that isn't root, as on people's own machines."""


class Muster:
    """Runs ``muster local``; every job's name has a word that nothing else on this machine has."""

    def __init__(self, engine: docker.DockerClient, folder: Path, environ: dict[str, str]) -> None:
        self.engine, self.folder = engine, folder
        self.environ = {**environ, "CANARY": "a secret of the caller's", "MUSTER_STOP_GRACE": "20"}
        self.name = f"test-{uuid.uuid4().hex[:10]}"
        self.output = folder / "out"
        self.before: tuple[str, ...] = ()
        (folder / "code").mkdir()

    def program(self, text: str) -> str:
        (self.folder / "code" / "program.py").write_text(text)
        return "code/program.py"

    def become(self, *groups: int) -> None:
        """Goes on as another user, who can read everything (a checkout may be root's) and is in these groups."""
        os.chown(self.folder, SOMEBODY, SOMEBODY)
        who = [f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}"]
        more = ["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]
        self.before = ("setpriv", *who, *more, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        place = ["--output", str(self.output), "--job-name", self.name]
        return subprocess.Popen(
            [*self.before, sys.executable, "-m", "musterpoint", "local", *place, *words], cwd=self.folder,
            env=self.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip

    def end(self, process: subprocess.Popen[bytes], seen: bytes = b"") -> Ended:
        try:
            out, err = process.communicate(timeout=500)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"no end after 140 s\n{err.decode()}\n{(seen + out).decode()}") from None
        return Ended(process.returncode, seen + out, err.decode(), self.output)

    def run(self, *words: str) -> Ended:
        return self.end(self.start(*words))

    def left(self) -> list[str]:
        """What Docker has of this test's jobs."""
        names = [each["Names"][0].lstrip("/") for each in self.engine.api.containers(all=True)]
        names += [each["Name"] for each in self.engine.api.networks()]
        return sorted(name for name in names if self.name in name)


class Ended:
    """A run that is over."""

    def __init__(self, code: int, out: bytes, err: str, output: Path) -> None:
        self.code, self.out, self.err, self.output = code, out, err, output

    @property
    def job(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.output / "job.json").read_text())
        return found

    def model(self) -> dict[str, bytes]:
        with tarfile.open(self.output / "model.tar.gz") as tar:
            return {each.name: tar.extractfile(each).read() for each in tar if each.isfile()}  # type: ignore[union-attr]

    def __repr__(self) -> str:
        return f"code {self.code}\n{self.err}\n{self.out.decode(errors='replace')}"


def until(process: subprocess.Popen[bytes], mark: bytes, times: int = 1) -> bytes:
    """Returns what came out when ``mark`` stood in it ``times``."""
    seen = b""
    assert process.stdout is not None
    while seen.count(mark) < times:
        more = process.stdout.read(65536)
        assert more, (seen, process.communicate())
        seen += more
    return seen


@pytest.fixture
def muster(engine: docker.DockerClient, environ: dict[str, str], tmp_path: Path) -> Iterator[Muster]:
    runner = Muster(engine, tmp_path, environ)
    yield runner
    left = runner.left()
    networks = {network["Name"] for network in engine.api.networks()}
    for name in sorted(left, key=networks.__contains__):
        engine.api.remove_network(name) if name in networks else engine.api.remove_container(name, force=True)
    assert left == []


def socket_group() -> int:
    return os.stat("/var/run/docker.sock").st_gid


DDP = """
import os, sys
import needed, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
rank = dist.get_rank()
open("beside the code", "w").close()
if rank == 0:
    open(os.environ["SM_MODEL_DIR"] + "/sum", "w").write(str(total.item()))
words = [sys.argv[1:], needed.word, os.environ["LETTER"], os.environ.get("CANARY"), os.environ["SM_CURRENT_HOST"]]
words += [open(os.environ["SM_CHANNEL_ONE"] + "/one.csv").read(), sorted(os.listdir(os.environ["SM_CHANNEL_TRAIN"]))]
words += [os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize >> 20]
for place in (os.environ["SM_MODULE_DIR"] + "/program.py", os.environ["SM_CHANNEL_TRAIN"] + "/new"):
    try:
        open(place, "a")
    except OSError as error:
        words.append(error.strerror)
os.write(1, b"\\xff %d %s\\n" % (rank, repr(words).encode()))
dist.barrier()
dist.destroy_process_group()
"""


def test_a_ddp_job_with_data_and_requirements(muster: Muster, image: Callable[[str], str]) -> None:
    """Names of the SDK's local mode, a world of two hosts; nothing of the user's files is changed."""
    muster.program(DDP)
    data = muster.folder / "data"
    (data / "wheels").mkdir(parents=True)
    name, content = wheel("needed", modules={"needed.py": "word = 'installed'\n"})
    (data / "wheels" / name).write_bytes(content)
    (data / "one.csv").write_text("1,2")
    (muster.folder / "needs.txt").write_text("--no-index\n--find-links /opt/ml/input/data/train/wheels\nneeded\n")
    before = sorted(str(path) for path in muster.folder.rglob("*"))
    muster.environ["MUSTER_LAUNCHER"] = "ranks"  # torchrun would import torch twice more
    ended = muster.run(
        "--hosts", "2", "--image", image("torch"), "--host-names", "sdk", "--requirements", "needs.txt",
        "--channel", "train=data", "--channel", "one=data/one.csv", "--env", "LETTER=x", "--shm-size", "300m",
        "--hyperparameters", '{"lr": 0.1}', "code/program.py", "--more", "a b",
    )  # fmt: skip
    assert ended.code == 0, ended
    hosts = [host["Host"] for host in ended.job["Hosts"]]
    read_only = "'Read-only file system', 'Read-only file system'"
    for rank, host in enumerate(hosts):
        words = f"{[['--lr', '0.1', '--more', 'a b'], 'installed', 'x', None, host, '1,2', ['one.csv', 'wheels'], 300]}"
        line = b"\xff %d " % rank + words[:-1].encode() + f", {read_only}]\n".encode()
        assert line in (muster.output / "hosts" / host / "log").read_bytes(), ended
        assert host.encode() + b" | " + line in ended.out
        assert [path.read_bytes() for path in (muster.output / "hosts" / host / "ranks").iterdir()]
    assert ended.model() == {"sum": b"3.0"}
    assert (ended.job["TrainingJobStatus"], ended.job["Backend"]) == ("Completed", "docker")
    assert ended.job["AlgorithmSpecification"] == {"TrainingImage": image("torch")}
    assert ended.err.count("containers of") == 1
    after = sorted(str(path) for path in muster.folder.rglob("*") if muster.output not in (path, *path.parents))
    assert after == before


BUSY = """
import os, signal, sys, time
def save(*_):
    with open("/opt/ml/model/checkpoint-" + os.environ["RANK"], "w") as file:
        file.write("saved")
    sys.exit(0) if "stop" in sys.argv else None
signal.signal(signal.SIGTERM, save)
os.makedirs("/opt/ml/model/own", mode=0o700, exist_ok=True)
os.close(os.open("/opt/ml/model/own/file-" + os.environ["RANK"], os.O_CREAT, 0o600))
print("busy", flush=True)
while True:
    while True:
        time.sleep(0.05)
"""
RANKS = ("--hosts", "2", "--launcher", "ranks")


def test_ctrl_c_saves_and_a_second_one_kills(muster: Muster, image: Callable[[str], str]) -> None:
    muster.program(BUSY)
    process = muster.start(*RANKS, "--image", image("base"), "code/program.py", "stop")
    seen = until(process, b"busy", 2)
    process.send_signal(signal.SIGINT)
    ended = muster.end(process, seen)
    assert (ended.code, ended.job["TrainingJobStatus"]) == (130, "Stopped"), ended
    assert {"checkpoint-0", "checkpoint-1"} < set(ended.model())
    assert muster.left() == []

    muster.output = muster.folder / "again"
    process = muster.start(*RANKS, "--image", image("base"), "code/program.py")
    seen = until(process, b"busy", 2)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    said = b""
    while b"Stopping" not in said:
        said += process.stderr.read(4096)
    process.send_signal(signal.SIGINT)
    ended = muster.end(process, seen)
    assert (ended.code, ended.job["TrainingJobStatus"]) == (137, "Stopped"), ended


def test_a_muster_that_is_killed_leaves_nothing(muster: Muster, image: Callable[[str], str]) -> None:
    """As another user than root, to whom everything in the trees belongs at last."""
    muster.program(BUSY)
    muster.become(socket_group())
    process = muster.start(*RANKS, "--image", image("base"), "code/program.py")
    until(process, b"busy", 2)
    assert len(muster.left()) == 3
    owners = {path.lstat().st_uid for path in muster.output.rglob("*")}
    assert owners == {0, SOMEBODY}, "containers of this image run as root"
    process.kill()
    process.communicate(timeout=500)  # the process that cleans up has these pipes as long as it runs
    assert muster.left() == []
    assert {path.lstat().st_uid for path in muster.output.rglob("*")} == {SOMEBODY}


HUNGRY = """
import os
print("hungry", flush=True)
if os.environ["RANK"] == "1":
    full = b"x" * (1 << 30)
else:
    os.read(os.memfd_create("nothing") and os.pipe()[0], 1)
"""


def test_a_host_out_of_memory(muster: Muster, image: Callable[[str], str]) -> None:
    muster.program(HUNGRY)
    muster.become(socket_group())
    ended = muster.run(*RANKS, "--image", image("base"), "--memory", "200m", "--json", "code/program.py")
    assert ended.code == 137, ended
    assert json.loads(ended.out) == ended.job
    assert [host.get("OOMKilled") for host in ended.job["Hosts"]] == [None, True]
    assert "memory" in ended.job["FailureReason"]
    shutil.rmtree(muster.output)


ENTRY = """#!/bin/sh
if [ -n "$FLOOD" ]; then
    head -c 3000000 /dev/zero | tr '\\0' 'x'
    echo end >&2
    exit 3
fi
if [ -n "$IDLE" ]; then
    echo idle
    exec sleep 1000
fi
id -u
exec "$@"
"""


@pytest.fixture
def plain(engine: docker.DockerClient, image: Callable[[str], str], root: Path, tmp_path: Path) -> Iterator[str]:
    """An image that knows nothing of musterpoint but the one file, and has an ENTRYPOINT and a user of its own."""
    context = tmp_path / "context"
    context.mkdir()
    bundle = [sys.executable, "-m", "musterpoint", "bundle", "-o", str(context / "train")]
    subprocess.run(bundle, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(root / "src")})
    (context / "entry").write_text(ENTRY)
    (context / "Dockerfile").write_text(
        f"FROM {image('base')}\nUSER root\nCOPY train entry /usr/local/bin/\n"
        "RUN chmod 755 /usr/local/bin/train /usr/local/bin/entry\n"
        f'ENV PATH=/usr/local/bin:/usr/bin:/bin\nUSER {SOMEBODY}\nENTRYPOINT ["entry"]\n'
    )
    made, _ = engine.images.build(path=str(context), rm=True, forcerm=True)
    yield made.id
    engine.images.remove(made.id, force=True)


def test_an_image_of_ones_own_without_a_network(muster: Muster, plain: str) -> None:
    """Its ENTRYPOINT gets ``train``, its user may write; the hosts see each other and nobody else."""
    muster.program(
        "import os, socket\n"
        "assert socket.gethostbyname('algo-1') and socket.gethostbyname('algo-2')\n"
        "try:\n    socket.create_connection(('198.51.100.7', 80), 2)\n"
        "except OSError:\n    print('no way out')\n"
        "open('/opt/ml/model/' + os.environ['SM_CURRENT_HOST'], 'w').write('here')\n"
        "print(os.environ['MUSTER_CPU_FALLBACK'], os.environ['PYTHONPATH'].split(':')[-1])\n"
    )
    ended = muster.run(
        "--hosts", "2", "--launcher", "script", "--image", plain, "--network-isolation", "--cpus", "0.5",
        "--cpu-fallback", "code/program.py",
    )  # fmt: skip
    assert ended.code == 0, ended
    assert ended.out.count(b" | %d\n" % SOMEBODY) == 2
    assert ended.out.count(b"no way out") == 2, ended
    assert ended.model() == {"algo-1": b"here", "algo-2": b"here"}
    hosts = [muster.output / "hosts" / name for name in ("algo-1", "algo-2")]
    assert {each.stat().st_mode & 0o777 for each in hosts} == {0o700}, "nobody else of this machine looks into them"
    given = [each / name for each in hosts for name in ("ranks", "opt/ml", "opt/ml/model")]
    assert {(each.stat().st_mode & 0o777, each.stat().st_uid) for each in given} == {(0o700, SOMEBODY)}

    muster.output = muster.folder / "flood"
    ended = muster.run("--image", plain, "--env", "FLOOD=1", "code/program.py")
    assert ended.code == 3, ended
    log = (muster.output / "hosts/algo-1/log").read_bytes()
    assert (len(log), log.count(b"x"), log.count(b"end\n")) == (3_000_004, 3_000_000, 1)
    assert ended.out == log

    muster.output = muster.folder / "idle"
    process = muster.start("--image", plain, "--env", "IDLE=1", "code/program.py")
    until(process, b"idle")
    process.send_signal(signal.SIGINT)
    ended = muster.end(process)
    assert ended.code == 137, "a first process that hears nothing and has started nothing need not be waited for"


def test_two_jobs_of_one_name_that_begin_at_once(muster: Muster, image: Callable[[str], str]) -> None:
    """Both find the name free. The second ends with a word about it, the first goes on."""
    program = muster.program(BUSY)
    container = Container(image("base"))
    job = LocalJob(muster.name, ("algo-1", "algo-2"), "program.py", str(muster.folder / "code"), container=container)
    layout = Layout(str(muster.folder / "late"))
    late = DockerHosts(job, layout)
    try:
        process = muster.start(*RANKS, "--image", image("base"), program, "stop")
        seen = until(process, b"busy", 2)
        tree.write(job, "algo-1", layout)
        late.open(lambda: None)
        with pytest.raises(UsageError, match=f"--job-name='{muster.name}': .* is already in use"):
            late.start("algo-1", (), {}, 0, 1)
    finally:
        late.close()
    assert len(muster.left()) == 3
    process.send_signal(signal.SIGINT)
    ended = muster.end(process, seen)
    assert (ended.code, ended.job["TrainingJobStatus"]) == (130, "Stopped"), ended


def test_what_cannot_run_is_said_before_anything_is_made(muster: Muster, engine: docker.DockerClient) -> None:
    program = muster.program("print('never')")
    empty = io.BytesIO()
    with tarfile.open(fileobj=empty, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("nothing"))
    without_train = f"{muster.name}:empty"
    engine.api.import_image_from_data(empty.getvalue(), repository=muster.name, tag="empty")
    try:
        absent = muster.run("--image", "absent:never", program)
        nothing = muster.run("--image", without_train, program)
        clash = engine.containers.create(without_train, ["x"], name=f"muster-{muster.name}-algo-1")
        taken = muster.run("--image", without_train, program)
        clash.remove()
    finally:
        engine.images.remove(without_train, force=True)
    muster.environ["DOCKER_HOST"] = f"unix://{muster.folder}/no.sock"
    unreachable = muster.run("--image", "any", program)
    del muster.environ["DOCKER_HOST"]
    muster.become()
    forbidden = muster.run("--image", "any", program)
    for ended, words in (
        (absent, "--image='absent:never': there is no such image on this machine: docker pull absent:never"),
        (nothing, f"--image='{without_train}': there is no program `train` on its PATH, and no ENTRYPOINT"),
        (taken, f"--job-name='{muster.name}': Docker has muster-{muster.name}-algo-1 already"),
        (unreachable, "there is no Docker daemon at unix://"),
        (forbidden, "no permission to talk to the Docker daemon at unix:///var/run/docker.sock: add this user to"),
    ):
        assert (ended.code, words in ended.err, ended.err.count("\n")) == (64, True, 1), ended
    assert not muster.output.exists()


def test_leftovers_of_dead_runs_go_at_the_next_start(muster: Muster, engine: docker.DockerClient) -> None:
    """And those of living ones stay."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        dead = docker_cleanup.owner_of(process.pid)
        process.communicate(b"\n")
    alive = docker_cleanup.owner_of(os.getpid())
    for owner, name in ((dead, "dead"), (alive, "alive")):
        name = f"muster-{muster.name}-{name}"
        engine.networks.create(name, labels={RUN: name, OWNER: owner})
    ended = muster.run("--image", "absent:never", muster.program(""))
    assert f"removed muster-{muster.name}-dead, which a run had left that died" in ended.err
    assert muster.left() == [f"muster-{muster.name}-alive"]
    engine.api.remove_network(f"muster-{muster.name}-alive")


def test_another_platforms_job_is_played_inside_an_image(image: Callable[[str], str], tmp_path: Path) -> None:
    """By the line that AzureML's page has for it."""
    page = (Path(__file__).parents[2] / "docs" / "azureml.md").read_text()
    (line,) = re.findall(r"<!-- inside an image: a test runs it -->\n```sh\n(.*?)```", page, re.DOTALL)
    text = line.replace("\\\n", " ").replace("$PWD", str(tmp_path)).replace("YOUR-IMAGE", image("base"))
    (tmp_path / "train.py").write_text("import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n")
    done = subprocess.run(shlex.split(text), capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"(rank \d of 4)$", done.stdout, re.MULTILINE)) == [
        f"rank {rank} of 4" for rank in range(4)
    ]
