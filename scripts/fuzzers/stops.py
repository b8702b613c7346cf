"""Stops at every moment of a job's way: two real hosts, told to stop when a certain thing happens, and a little later.

What must hold: both hosts end, in time, with 143, or both with 0 if all ranks had ended well by then; a checkpoint that
a rank writes in its SIGTERM handler is whole, and is there once the handler was set; nothing is left: no process, no
file of ours among the temporary ones, no connection.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, Callable, NamedTuple

from fuzzers.findings import MOST_WRONG, Findings
from musterpoint.core.ports import any_free

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ("algo-1", "algo-2")
PATIENCE = 60.0
"""Seconds for whatever is waited for; an end takes a second or two where the machine is idle."""
NOTICE = 20.0
"""Seconds after a stop that no rank has started by, more than a stopped host stays to tell the others."""
SIZE, PARTS = 256 * 1024, 16

PROGRAM = """
import os, pathlib, signal, sys, time

model = pathlib.Path(os.environ["SM_MODEL_DIR"])
host = os.environ["SM_CURRENT_HOST"]
(model / "started").touch()
torch = distributed = None
if sys.argv[1] == "collective":
    import torch
    import torch.distributed as distributed

def save(signo, frame):
    with open(model / "checkpoint", "wb", buffering=0) as file:
        for _ in range(int(sys.argv[2])):
            file.write(b"x" * int(sys.argv[3]))
            time.sleep(0.01)
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
(model / "armed").touch()
if distributed:
    distributed.init_process_group("gloo")
    while True:
        distributed.all_reduce(torch.ones(1))
        (model / "met").touch()
if sys.argv[1] in ("ends", "uploads") or (sys.argv[1] == "barrier" and host == "algo-1"):
    if sys.argv[1] == "uploads":
        for number in range(20):
            pathlib.Path(os.environ["SM_OUTPUT_INTERMEDIATE_DIR"], f"part-{number}").write_bytes(b"x" * 100_000)
    time.sleep(0.2)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (model / "done").touch()
    os._exit(0)
while True:
    time.sleep(0.02)
"""


class Job:
    """Two hosts, each with a tree and an address of its own; every process has :attr:`token` in its environment."""

    def __init__(self, folder: Path, kind: str, environ: dict[str, str], installs: bool = False) -> None:
        self.folder, self.token = folder, f"muster-stops-{uuid.uuid4().hex}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.stopped: list[str] = []
        names = folder / "hosts"
        names.write_text("".join(f"127.73.0.{number + 1} {host}\n" for number, host in enumerate(HOSTS)))
        (folder / "tmp").mkdir()
        self.port = any_free()
        self.environ = {
            **os.environ, "MUSTER_TEST_TOKEN": self.token, "MUSTER_HOSTS_FILE": str(names),
            "MUSTER_ROLLCALL_PORT": str(self.port), "MUSTER_MASTER_PORT": "0", "MUSTER_LAUNCHER": "ranks",
            "MUSTER_SLOTS": "1", "MUSTER_PYTHON": sys.executable, "TMPDIR": str(folder / "tmp"),
            "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environ,
        }  # fmt: skip
        for host in HOSTS:
            base = folder / host
            for name in ("input/config", "model", "code"):
                (base / name).mkdir(parents=True)
            (base / "code" / "program.py").write_text(PROGRAM)
            if installs:
                (base / "code" / "requirements.txt").write_text("pip\n")  # it is there already
            words = {"sagemaker_program": "program.py", "": kind}
            if "AWS_ENDPOINT_URL_S3" in environ:
                words["sagemaker_s3_output"] = f"s3://jobs/{self.token}"
            config = {
                "hyperparameters": {name: json.dumps(value) for name, value in words.items() if name},
                "resourceconfig": {"current_host": host, "hosts": HOSTS}, "inputdataconfig": {},
            }  # fmt: skip
            for name, value in config.items():
                (base / "input/config" / f"{name}.json").write_text(json.dumps(value))
        self.environ["MUSTER_PROGRAM_ARGS"] = json.dumps([kind, str(PARTS), str(SIZE // PARTS)])

    def start(self, *hosts: str) -> None:
        for host in hosts or HOSTS:
            with open(self.folder / host / "log", "wb") as log:
                self.processes[host] = subprocess.Popen(
                    [sys.executable, "-m", "musterpoint.cli.train"], cwd="/", stdin=subprocess.DEVNULL, stdout=log,
                    stderr=log, env={**self.environ, "SAGEMAKER_BASE_DIR": str(self.folder / host)},
                    start_new_session=True,
                )  # fmt: skip

    def has(self, host: str, name: str) -> bool:
        return (self.folder / host / "model" / name).exists()

    def log(self, host: str) -> str:
        return (self.folder / host / "log").read_text(errors="replace")

    def listens(self) -> bool:
        """Whether the leader takes calls."""
        table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
        return any(f":{self.port:04X}" in line.split()[1] for line in table.splitlines() if " 0A " in line)

    def children(self, host: str) -> list[int]:
        pid = self.processes[host].pid
        try:
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            return []

    def stop(self, *hosts: str) -> None:
        for host in hosts:
            if self.processes[host].poll() is None:
                self.stopped.append(host)
                self.processes[host].send_signal(signal.SIGTERM)

    def stop_the_late(self) -> bool:
        """Stops, as the platform would, a host that still waits for one that is gone: before the roster is out, a host
        that ends can tell only who listens within some seconds.
        """
        deadline = time.monotonic() + NOTICE
        while any(process.poll() is None for process in self.processes.values()):
            if any(self.has(host, "started") for host in HOSTS):
                return False
            if time.monotonic() > deadline:
                waiting = [host for host, process in self.processes.items() if process.poll() is None]
                self.stop(*waiting)
                return len(waiting) < len(HOSTS)
            time.sleep(0.05)
        return False

    def codes(self) -> dict[str, int]:
        """By host; raises ``TimeoutExpired``."""
        deadline = time.monotonic() + PATIENCE
        return {host: process.wait(max(0.1, deadline - time.monotonic())) for host, process in self.processes.items()}

    def kill(self) -> None:
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        for process in self.processes.values():
            process.wait()

    def left(self) -> dict[int, str]:
        """Processes of the job, by pid."""
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                environ = Path(f"/proc/{name}/environ").read_bytes()
                words = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if self.token.encode() in environ and words and int(name) != os.getpid():
                found[int(name)] = words.replace(b"\0", b" ").decode(errors="replace")
        return found


def until(job: Job, condition: Callable[[], Any], what: str, pause: float = 0.01) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        over = all(process.poll() is not None for process in job.processes.values())
        if time.monotonic() > deadline or (over and not condition()):
            raise TimeoutError(f"not reached: {what}")
        time.sleep(pause)


Reached = tuple[str, ...]
"""The hosts of which one, drawn by lot, is stopped at a moment."""


class Moment(NamedTuple):
    """``reach`` brings a job to a moment of its way; it is stopped up to ``most`` seconds later.

    ``both``: the platform stops both hosts; else one of them, drawn by lot. ``kind``: what the program does.
    """

    reach: Callable[[Job, random.Random], Reached]
    most: float
    both: bool = False
    kind: str = "works"
    installs: bool = False
    uploads: bool = False


def _spawned(job: Job, dice: random.Random) -> Reached:
    job.start()
    return HOSTS


def _names(job: Job, dice: random.Random) -> Reached:
    (job.folder / "hosts").write_text("")
    job.start()
    return HOSTS


def _installing(job: Job, dice: random.Random) -> Reached:
    job.start()
    until(job, lambda: any("pip" in words for words in job.left().values()), "pip runs", 0.05)
    return HOSTS


def _roll_call(job: Job, dice: random.Random) -> Reached:
    """One host waits, the other comes about when the first is stopped, and is told."""
    first, second = dice.sample(HOSTS, 2)
    job.start(first)
    until(job, lambda: job.listens() if first == HOSTS[0] else "waiting for" in job.log(first), "one host waits")
    job.start(second)
    return (first,)


def _forked(job: Job, dice: random.Random) -> Reached:
    job.start()
    until(job, lambda: "hosts are here" in job.log("algo-1"), "the roster", 0.002)
    until(job, lambda: job.children("algo-1"), "a rank is forked", 0.0005)
    return HOSTS


def _all(name: str) -> Callable[[Job, random.Random], Reached]:
    def reach(job: Job, dice: random.Random) -> Reached:
        job.start()
        until(job, lambda: all(job.has(host, name) for host in HOSTS), f"all ranks have {name}", 0.005)
        return HOSTS

    return reach


def _barrier(job: Job, dice: random.Random) -> Reached:
    job.start()
    until(job, lambda: job.has("algo-1", "done") and job.has("algo-2", "armed"), "one host's rank has ended", 0.005)
    return HOSTS


def _saving(job: Job, dice: random.Random) -> Reached:
    """A host is stopped, and saves; both are told to stop a moment later."""
    _all("armed")(job, dice)
    job.stop(dice.choice(HOSTS))
    return HOSTS


def _one_done(job: Job, dice: random.Random) -> Reached:
    job.start()
    until(job, lambda: any(job.has(host, "done") for host in HOSTS), "a rank is about to end", 0.001)
    return HOSTS


MOMENTS: dict[str, Moment] = {
    "before handlers": Moment(_spawned, 0.15, both=True),
    "roll call": Moment(_roll_call, 0.5),
    "fork and exec": Moment(_forked, 0.01),
    "the program starts": Moment(_all("started"), 0.1),
    "training": Moment(_all("armed"), 0.3),
    "barrier": Moment(_barrier, 0.4, kind="barrier"),
    "saving, another host stops": Moment(_saving, 0.25, both=True),
    "the last rank ends": Moment(_one_done, 0.05, kind="ends"),
    "names": Moment(_names, 1.0, both=True),
    "installing": Moment(_installing, 1.0, installs=True),
    "collective": Moment(_all("met"), 0.3, kind="collective"),
    "uploading": Moment(_all("done"), 0.5, kind="uploads", uploads=True),
}
"""A run goes through them again and again; those first that take a second."""


def fuzz(seed: int, inputs: int, parts: tuple[str, ...] = tuple(MOMENTS)) -> Findings:
    wrong: list[str] = []
    found: dict[str, list[tuple[float, str]]] = {name: [] for name in parts}
    store = _store(inputs, parts)
    try:
        for number in range(inputs):
            name = parts[number % len(parts)]
            texts, seconds, how = one(name, random.Random(f"{seed} {number}"), store)
            found[name].append((seconds, how))
            wrong += [f"stop {number} of seed {seed}, {name}: {text}" for text in texts]
            if len(wrong) >= MOST_WRONG:
                break
    finally:
        if store is not None:
            store.close()
    for name, ends in found.items():
        if ends:
            kinds = sorted({how for _, how in ends})
            counts = ", ".join(f"{how}: {sum(how == one for _, one in ends)}" for how in kinds)
            print(f"  {name:28} {len(ends):4} stops, the end at most {max(ends)[0]:.1f} s later; {counts}", flush=True)
    return Findings(sum(map(len, found.values())), tuple(wrong[:MOST_WRONG]))


def _store(inputs: int, parts: tuple[str, ...]) -> Any:
    """A real S3 API where outputs are uploaded, if an input needs one."""
    if not any(MOMENTS[name].uploads for name in parts[:inputs]):
        return None
    done = subprocess.run([ROOT / "scripts" / "setup", "s3"], stdout=subprocess.PIPE, text=True, check=True)
    sys.path.insert(0, str(ROOT))
    s3: Any = importlib.import_module("tests.hosts.s3")
    store = s3.S3(Path(done.stdout.splitlines()[-1]))
    store.bucket("jobs")
    store.python = str(Path(done.stdout.splitlines()[-1]) / "python")
    store.environ = {**s3.CREDENTIALS, "AWS_ENDPOINT_URL_S3": store.url, "MUSTER_PYTHON": store.python}
    return store


def one(name: str, dice: random.Random, store: Any) -> tuple[list[str], float, str]:
    """What went wrong with one stop; seconds until the end; how both hosts ended."""
    moment = MOMENTS[name]
    folder = Path(tempfile.mkdtemp(prefix="muster-stops-"))
    job = Job(folder, moment.kind, store.environ if moment.uploads else {}, moment.installs)
    try:
        lot = moment.reach(job, dice)
        time.sleep(dice.random() * moment.most)
        began = time.monotonic()
        done, armed = ({host for host in HOSTS if job.has(host, word)} for word in ("done", "armed"))
        job.stop(*(HOSTS if moment.both else [dice.choice(lot)]))
        late = job.stop_the_late()
        codes = job.codes()
        how = _words(codes) + (" (one host by a stop of its own)" if late else "")
        return list(_wrong(job, codes, done, armed)), time.monotonic() - began, how
    except (subprocess.TimeoutExpired, TimeoutError) as error:
        logs = "\n".join(f"{host}: {job.log(host)[-2000:]}" for host in job.processes)
        return [f"no end, or no beginning: {error}; {job.left()}\n{logs}"], PATIENCE, "none"
    finally:
        job.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _words(codes: dict[str, int]) -> str:
    """The codes; a host whose handlers weren't set yet counts as stopped: the signal ended it, as it ends others."""
    return " and ".join(
        str(code) for code in sorted({143 if code == -signal.SIGTERM else code for code in codes.values()})
    )


def _wrong(job: Job, codes: dict[str, int], done: set[str], armed: set[str]) -> Any:
    """``done``, ``armed``: the hosts whose ranks had ended, or had set their handlers, before the stop."""
    logs = "; ".join(f"{host}: ...{job.log(host)[-500:]!r}" for host in job.processes)
    ended = _words(codes)
    all_done = all(job.has(host, "done") for host in HOSTS)
    if job.stopped and ended not in (("0", "143") if all_done else ("143",)):
        yield f"codes {codes}; ranks that ended well: {all_done}; {logs}"
    if not job.stopped and ended != "0":
        yield f"codes {codes} without a stop; {logs}"
    for host in HOSTS:
        checkpoint = job.folder / host / "model" / "checkpoint"
        if checkpoint.exists() and checkpoint.stat().st_size != SIZE:
            yield f"the checkpoint of {host} is cut at {checkpoint.stat().st_size} of {SIZE} bytes; {logs}"
        if host in armed - done and not job.has(host, "done") and not checkpoint.exists():
            yield f"{host} has no checkpoint, though its rank was ready to write one; {logs}"
        if (job.folder / host / "output" / "failure").exists():
            yield f"{host} left a failure file; {logs}"
    if left := job.left():
        yield f"processes are left: {left}"
    if files := [str(path) for path in (job.folder / "tmp").rglob("*") if not path.is_dir() and not _is_free(path)]:
        yield f"temporary files are left: {files}"
    if sockets := [line for line in Path("/proc/net/unix").read_text().splitlines() if str(job.folder) in line]:
        yield f"sockets are left: {sockets}"


def _is_free(path: Path) -> bool:
    """Whether it is the lock of installations, which stays for the next one, and nobody holds it."""
    if not path.name.startswith("musterpoint-install-"):
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True
