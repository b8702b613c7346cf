"""Two to five jobs that begin on one machine at nearly the same time, under every launcher, as two users.

What must hold: each job's world is its own, each ends with the right code, and a port or directory that two were given
by name is one job's alone. A job's program is a world of its ranks over TCP: rank 0 listens at MASTER_PORT after a
while, as frameworks do after their import, and all tell each other which job they are of.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from fuzzers.findings import MOST_WRONG, Findings
from musterpoint.core.ports import any_free

PROGRAM = """
import json, os, random, socket, time

ME = os.environ["JOB"]


def meet(address, rank, size):
    if rank:
        until = time.monotonic() + 60
        while True:
            try:
                call = socket.create_connection(address, 60)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < until, f"nobody listens at {address}"
                time.sleep(0.02)
        call.sendall(f"{ME} {rank}\\n".encode())
        said = call.makefile().readline().split()
    else:
        time.sleep(random.random())
        calls = []
        with socket.create_server(("", address[1])) as listener:
            listener.settimeout(60)
            for _ in range(1, size):
                calls.append(listener.accept()[0])
        said = [ME, *(call.makefile().readline().split()[0] for call in calls)]
        for call in calls:
            call.sendall((" ".join(said) + "\\n").encode())
    print("world", *said, flush=True)


if "TF_CONFIG" in os.environ:
    config = json.loads(os.environ["TF_CONFIG"])
    servers = config["cluster"]["worker"]
    host, _, port = servers[0].rpartition(":")
    if config["task"]["index"]:
        own = int(servers[config["task"]["index"]].rpartition(":")[2])
        time.sleep(random.random())
        socket.create_server(("", own)).close()
    meet((host, int(port)), config["task"]["index"], len(servers))
elif os.environ.get("WITH_TORCH"):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    said = [None] * dist.get_world_size()
    dist.all_gather_object(said, ME)
    dist.barrier()
    dist.destroy_process_group()
    print("world", *said, flush=True)
else:
    local = os.environ.get("OMPI_COMM_WORLD_RANK", "0"), os.environ.get("OMPI_COMM_WORLD_SIZE", "1")
    rank, size = os.environ.get("RANK", local[0]), os.environ.get("WORLD_SIZE", local[1])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])) if int(size) > 1 else ("", 0)
    meet(address, int(rank), int(size))
"""


class Way(NamedTuple):
    """A way to start a job: ``words`` behind ``muster``, once for each of ``places``; ``ranks`` are all of the job's.

    ``takes_port``: it may be given a port by name. ``torch``: its ranks meet by torch.
    """

    words: tuple[str, ...]
    ranks: int
    places: int = 1
    takes_port: bool = False
    torch: bool = False


WAYS: dict[str, Way] = {
    "ranks": Way(("launch", "--launcher", "ranks", "--slots", "2"), 2, takes_port=True),
    "script": Way(("launch", "--launcher", "script"), 1, takes_port=True),
    "tensorflow": Way(("local", "--hosts", "2", "--launcher", "tensorflow"), 2),
    "local": Way(("local", "--hosts", "2", "--launcher", "ranks"), 2),
    "hosts": Way(
        ("launch", "--launcher", "ranks", "--nnodes", "2", "--node-rank", "{place}", "--rollcall-leader", "127.0.0.1")
        + ("--rollcall-port", "{rollcall}"),
        2,
        places=2,
    ),
    "torchrun": Way(("launch", "--launcher", "torchrun", "--slots", "2"), 2, takes_port=True, torch=True),
    "standalone": Way(("torchrun", "--standalone", "--nproc-per-node", "2"), 2, torch=True),
    "mpi": Way(("launch", "--launcher", "mpi", "--slots", "2"), 2),
}
AS_ANOTHER = ("setpriv", "--reuid=65534", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--")
"""Another user, who can read where this one's Python is."""
PATIENCE = 120.0


class Job(NamedTuple):
    """A job of a group: ``port`` and ``name`` are given to it (0 and empty: none), ``after`` seconds it begins."""

    label: str
    way: str
    port: int
    name: str
    other_user: bool
    after: float


def fuzz(seed: int, inputs: int, ways: tuple[str, ...] = ()) -> Findings:
    """``inputs`` groups of jobs, of these ``ways``; empty: all that this machine has."""
    draw, wrong, tried = random.Random(seed), list[str](), 0
    known = ways or tuple(way for way in WAYS if way != "mpi" or shutil.which("mpirun"))
    while tried < inputs and len(wrong) < MOST_WRONG:
        number = draw.randrange(10**6)
        wrong += [f"seed {number}: {text}" for text in group(number, known)]
        tried += 1
    return Findings(tried, tuple(wrong))


def group(number: int, ways: tuple[str, ...]) -> list[str]:
    """What is wrong with the group of jobs that this number stands for."""
    draw = random.Random(number)
    port, others = any_free(), os.geteuid() == 0 and shutil.which("setpriv") is not None
    jobs = []
    for place in range(draw.randint(2, 5)):
        way = draw.choice(ways)
        jobs.append(
            Job(
                f"job{place}",
                way,
                port if WAYS[way].takes_port and draw.random() < 0.3 else 0,
                draw.choice(("", f"named-{place}", "the-same")),
                others and draw.random() < 0.4 and (way != "mpi" or is_open(Path(sys.executable))),
                draw.choice((0.0, draw.uniform(0, 1.5))),
            )
        )
    with tempfile.TemporaryDirectory(prefix="muster-together-") as folder:
        os.chmod(folder, 0o777)
        for user in ("0", "1"):
            Path(folder, user).mkdir()
            os.chmod(Path(folder, user), 0o777)
            Path(folder, user, "program.py").write_text(PROGRAM, encoding="utf-8")
        with ThreadPoolExecutor(8) as pool:
            ended = list(pool.map(lambda job: run(job, Path(folder)), jobs))
    return judged(jobs, ended)


class End(NamedTuple):
    """How a job's processes ended; what all of them printed."""

    codes: tuple[int, ...]
    text: str


def run(job: Job, folder: Path) -> End:
    """Runs a job, all of its hosts."""
    way, rollcall = WAYS[job.way], any_free()
    time.sleep(job.after)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "SM_"))}
    environ.update(JOB=job.label, TMPDIR=str(folder), HOME=str(folder))
    if way.torch:
        environ["WITH_TORCH"] = "1"
    ends: list[tuple[int, str]] = []

    def host(place: int) -> None:
        words = [word.format(place=place, rollcall=rollcall) for word in way.words]
        words += ["--master-port", str(job.port)] if job.port else []
        name = ("--muster-job-name" if way.words[0] == "torchrun" else "--job-name", job.name)
        words += [*name] if job.name else []
        command = [*(AS_ANOTHER if job.other_user else ()), sys.executable, "-m", "musterpoint", *words, "program.py"]
        where = folder / str(int(job.other_user))
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command, cwd=where, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            try:
                code = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()
                code = -1
            output.seek(0)
            ends.append((code, output.read().decode(errors="replace")))

    threads = [threading.Thread(target=host, args=(place,)) for place in range(way.places)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return End(tuple(code for code, _ in ends), "".join(text for _, text in ends))


def is_open(python: Path) -> bool:
    """Whether everybody may start it: Open MPI asks so itself, whatever a capability allows."""
    return all(each.stat().st_mode & 1 for path in (python, python.resolve()) for each in path.parents)


def judged(jobs: list[Job], ended: list[End]) -> list[str]:
    """What is wrong, a text for each job."""
    wrong = []
    for job, end in zip(jobs, ended, strict=True):
        way = WAYS[job.way]
        worlds = [found.split() for found in re.findall(r"^(?:\S+ *\| )?world (.*)", end.text, re.MULTILINE)]
        if set(end.codes) == {0}:
            expected = [[job.label] * way.ranks] * way.ranks
            if sorted(worlds) != expected:
                wrong.append(f"{job} has the worlds {worlds}, expected {expected}")
        elif not refused(job, jobs, end):
            wrong.append(f"{job} ended with {end.codes}:\n{end.text[-3000:]}")
    return wrong


def refused(job: Job, jobs: list[Job], end: End) -> bool:
    """Whether a job was rightly refused: what it was given by name is another's."""
    others = [other for other in jobs if other is not job]
    same_port = job.port and any(other.port for other in others)
    same_name = any(other.name == job.name for other in others) and (bool(job.name) or WAYS[job.way].places > 1)
    if 64 not in end.codes or not set(end.codes) <= {64, 69}:
        return False
    return bool(
        (same_port and f"--master-port {job.port}: " in end.text)
        or (same_name and any(text in end.text for text in ("in use", "something in it already", "still runs")))
    )
