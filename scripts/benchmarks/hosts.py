"""Jobs of several hosts that are processes on this machine, by `muster local` and by plain torchrun.

The ranks are connected to the first one, as those of a collective are: who loses that connection fails. They need the
standard library only, so that 64 hosts fit on a small machine.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

from benchmarks import trial
from benchmarks.peers import kill

SIZES, QUICK_SIZES = (2, 8, 64), (2, 8)
LIMIT = 600.0
RANK = """\
import os, select, signal, socket, time

folder, rank, world = os.environ["BENCH_FOLDER"], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def mark(name, text=None):
    with open(os.path.join(folder, "." + name), "w") as file:
        file.write(repr(time.monotonic()) if text is None else text)
    os.rename(os.path.join(folder, "." + name), os.path.join(folder, name))

def until(number, start):
    while len([name for name in os.listdir(folder) if name.startswith(start)]) < number:
        time.sleep(0.02)

def told(*_):
    mark(f"told-{rank}")
    os._exit(1)

signal.signal(signal.SIGTERM, told)
if rank == 0:
    server = socket.create_server(("127.0.0.1", 0), backlog=world)
    mark("port", str(server.getsockname()[1]))
    others = [server.accept()[0] for _ in range(world - 1)]
else:
    until(1, "port")
    with open(os.path.join(folder, "port")) as file:
        others = [socket.create_connection(("127.0.0.1", int(file.read())))]
mark(f"ready-{rank}", str(os.getppid()))
if rank == world - 1 and os.environ["BENCH_FAULT"] == "fails":
    until(world, "ready-")
    time.sleep(0.5)
    mark("struck")
    os._exit(3)
select.select(others if os.environ["BENCH_FAULT"] == "fails" else [], [], [])
told()
"""


def ours(bench: trial.Bench, hosts: int) -> list[list[str]]:
    where = ["--hosts", str(hosts), "--slots", "1", "--backend", "process", "--launcher", "ranks", "--output", "job"]
    return [[str(bench.python), "-m", "musterpoint", "local", *where, "rank.py"]]


def torchrun(bench: trial.Bench, hosts: int) -> list[list[str]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    shape = [f"--nnodes={hosts}", "--nproc-per-node=1", "--rdzv-id=1", "--rdzv-backend=c10d", "--local-addr=127.0.0.1"]
    where = [*shape, f"--rdzv-endpoint=127.0.0.1:{port}"]
    return [[str(bench.python), "-m", "torch.distributed.run", *where, "rank.py"] for _ in range(hosts)]


class Job:
    """The commands of all hosts, running in ``folder``."""

    def __init__(self, commands: list[list[str]], folder: Path, fault: str, hosts: int) -> None:
        self.folder, self.marks = folder, folder / "marks"
        self.marks.mkdir()
        (folder / "code").mkdir()
        (folder / "code" / "rank.py").write_text(RANK)
        env = trial.environment(BENCH_FOLDER=str(self.marks), BENCH_FAULT=fault, OMP_NUM_THREADS="1")
        self.said = (folder / "said").open("wb")
        self.processes = [
            subprocess.Popen(command, cwd=folder / "code", env=env, stdout=self.said, stderr=self.said,
                             stdin=subprocess.DEVNULL)
            for command in commands
        ]  # fmt: skip
        self.hosts = hosts

    def until(self, start: str, count: int) -> None:
        """Waits until ``count`` marks begin with ``start``."""
        end = time.monotonic() + LIMIT
        while len([*self.marks.glob(f"{start}*")]) < count:
            if time.monotonic() > end or all(process.poll() is not None for process in self.processes):
                raise SystemExit(f"{len([*self.marks.glob(f'{start}*')])} of {count} {start}: {self.words()}")
            time.sleep(0.01)

    def ended(self) -> float:
        """When the last command had ended."""
        for process in self.processes:
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                raise SystemExit(f"a host has not ended after {LIMIT:.0f} s: {self.words()}") from None
        return time.monotonic()

    def at(self, name: str) -> float:
        return float((self.marks / name).read_text())

    def words(self) -> str:
        return (self.folder / "said").read_text(errors="replace")[-400:]

    def close(self) -> None:
        kill(f"BENCH_FOLDER={self.marks}\0".encode())
        for process in self.processes:
            process.wait()
        self.said.close()


def sizes(bench: trial.Bench) -> tuple[int, ...]:
    return QUICK_SIZES if bench.quick else SIZES


def runs(bench: trial.Bench) -> int:
    return 2 if bench.quick else 3


def supervisor(job: Job, rank: int) -> int:
    """The process that started a rank."""
    return int((job.marks / f"ready-{rank}").read_text())


def send(pid: int, signo: int) -> float:
    """Sends a signal; returns when."""
    began = time.monotonic()
    os.kill(pid, signo)
    return began
