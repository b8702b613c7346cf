"""A job that a fault strikes: its hosts and processes while it runs, and what it left when it is over."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

from ..hosts.conftest import Local, Ran, eventually
from .fault import Cell
from .launchers import NONE

HERE = Path(__file__).resolve().parent
PREAMBLE = (HERE / "programs" / "preamble.py").read_text()
PATIENCE = 200.0
"""Seconds after which a job that shows no event is given up."""
StackPath = Callable[[str], Path]
"""The bin directory of a stack, by its name."""


class Times(NamedTuple):
    """Seconds that checkpoints take, and for which a host can't be heard before it is back."""

    save: float
    cut: float


class Job:
    """The job of ``cell`` in ``folder``, an empty directory, while it runs."""

    def __init__(self, cell: Cell, folder: Path, environ: dict[str, str], stack: StackPath, times: Times) -> None:
        self.fault, self.launcher = cell
        self.folder, self.long = folder, times.cut
        self.hosts = [f"algo-{number + 1}" for number in range(self.launcher.hosts)]
        self.ranks = self.launcher.hosts * self.launcher.slots
        self.local = Local(sys.executable, dict(environ), folder)
        for name in ("events", "scratch"):
            (folder / name).mkdir()
        hosts = json.dumps(self.fault.hosts._asdict())
        victim = f"{self.fault.victim} {self.launcher.slots - 1}"
        self.local.environ.update(
            self.fault.environ, FAULT_FOLDER=str(folder / "events"), FAULT_VICTIM=victim, FAULT_HOSTS=hosts,
            FAULT_RANKS=str(self.ranks), FAULT_SAVE=str(min(times.save, self.fault.longest_save)),
            TMPDIR=str(folder / "scratch"), OMP_NUM_THREADS="1",
        )  # fmt: skip
        python = sys.executable
        if self.launcher.stack:
            bin = stack(self.launcher.stack)
            python = str(bin / "python")
            self.local.environ.update(MUSTER_PYTHON=python, PATH=f"{bin}{os.pathsep}{self.local.environ['PATH']}")
            # four ranks and two daemons share two processors with other tests: who waits should sleep
            self.local.environ["OMPI_MCA_mpi_yield_when_idle"] = "1"
        program = self.local.program(PREAMBLE + (self.launcher.collective or NONE) + self.fault.body)
        for name, text in self.launcher.files.items():
            self.local.program(text.replace("{python}", python), name)
        self.program = self.local.folder / next(iter(self.launcher.files), program.name)
        self.local.command = self.command  # type: ignore[method-assign]
        self.process: subprocess.Popen[str] | None = None
        self.began = 0.0

    def command(self, *words: str | Path, output: Path | None = None) -> list[str]:
        cgroup = ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(self.group)] if self.group else []
        plane = [sys.executable, str(HERE / "control_plane.py"), "local", "--output", str(self.local.output)]
        return [*cgroup, *plane, *map(str, words)]

    group: Path | None = None
    """A memory cgroup that the whole job runs in."""

    def start(self) -> None:
        slots = ["--slots", str(self.launcher.slots)] if self.launcher.slots_option else []
        self.began = time.time()
        self.process = self.local.start(
            "--backend", "netns", "--hosts", str(self.launcher.hosts), *slots, *self.launcher.options,
            *self.fault.options, self.program,
        )  # fmt: skip

    # -- events, and what is done from outside --

    def marked(self, name: str) -> bool:
        return (self.folder / "events" / name).exists()

    def mark(self, name: str, text: str = "") -> None:
        draft = self.folder / "events" / f".{name}"
        draft.write_text(text)
        draft.rename(draft.with_name(name))

    def told(self, name: str) -> str:
        return (self.folder / "events" / name).read_text()

    def until(self, check: Callable[[], bool]) -> None:
        def holds() -> bool:
            over = self.process is not None and self.process.poll() is not None
            held = check()
            assert held or not over, "the job ended before"
            return held

        eventually(holds, PATIENCE)

    def until_all_work(self) -> None:
        self.until(lambda: all(self.marked(f"here-{rank}") for rank in range(self.ranks)))

    def strike(self, victim: str = "") -> None:
        """Says that the fault comes now."""
        self.mark("victim", victim)
        self.mark("struck", str(time.time()))

    def log(self, host: str) -> str:
        path = self.local.output / "hosts" / host / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def init(self, host: str) -> int:
        """The pid of a host's PID 1, as this machine numbers it."""
        for pid, words in self._processes(host):
            if "init.py" in words and self._numbers(pid)[-1] == "1":
                return pid
        raise AssertionError(f"{host} has no PID 1")

    def supervisor(self, host: str) -> int:
        """The pid of a host's entry point."""
        init = self.init(host)
        children = Path(f"/proc/{init}/task/{init}/children").read_text().split()
        return int(children[0])

    def all_of(self, host: str) -> list[int]:
        """The pids of a host's processes, its PID 1 first."""
        init = self.init(host)
        namespace = os.readlink(f"/proc/{init}/ns/pid")
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with contextlib.suppress(OSError):
                if pid != init and os.readlink(f"/proc/{pid}/ns/pid") == namespace:
                    found.append(pid)
        return [init, *sorted(found)]

    def _processes(self, host: str) -> Iterator[tuple[int, str]]:
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
                ours = f"MUSTER_TEST_TOKEN={self.local.token}".encode() in environ
                if ours and f"HOSTNAME={host}".encode() in environ:
                    yield int(name), Path(f"/proc/{name}/cmdline").read_text(errors="replace")

    def _numbers(self, pid: int) -> list[str]:
        """A process's numbers in all namespaces, the innermost last."""
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            return next(line for line in status.splitlines() if line.startswith("NSpid")).split()[1:]
        return [""]

    def launched(self, host: str) -> int:
        """The pid of the launcher on a host: torchrun's agent, mpirun, or what else started its ranks."""
        mark = self.launcher.program
        found = [pid for pid, words in self._processes(host) if mark and re.search(mark, words.replace("\0", " "))]
        assert found, f"{self.launcher.name} does not run on {host}"
        return min(found)

    def firewall(self, host: str, add: bool) -> None:
        """Drops every packet to and from ``host``, or no longer."""
        tool = ["nsenter", "-t", str(self.init(host)), "--net", "iptables", "-w"]
        for rule in (["INPUT", "-i", "eth0", "-j", "DROP"], ["OUTPUT", "-o", "eth0", "-j", "DROP"]):
            subprocess.run([*tool, "-A" if add else "-D", *rule], check=True)

    def signal_all(self, host: str, signo: int) -> None:
        for pid in self.all_of(host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signo)

    def stop(self) -> None:
        """As StopTrainingJob does it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def finish(self) -> Seen:
        assert self.process is not None
        ran = self.local.finish(self.process, PATIENCE + self.fault.wait)
        return Seen(self, ran, time.time())


class Seen(NamedTuple):
    """A job that is over: the ``job``, what ``ran``, and when that had ``ended``, in seconds since the epoch."""

    job: Job
    ran: Ran
    ended: float

    @property
    def rank(self) -> str:
        """The victim's rank; empty: there was none."""
        return self.job.told("victim") if self.job.marked("victim") else ""

    @property
    def struck(self) -> float:
        return float(self.job.told("struck")) if self.job.marked("struck") else self.job.began

    @property
    def launching(self) -> float:
        """Seconds that this job took until the fault."""
        return self.struck - self.job.began

    @property
    def reports(self) -> tuple[str, ...]:
        """The hosts that tell how the job ended."""
        return self.job.fault.survivors or tuple(self.job.hosts)

    @property
    def logs(self) -> str:
        return "".join(self.job.log(host) for host in self.job.hosts)

    def code(self, host: str) -> int:
        """The exit code of a host's entry point, as its control plane saw it."""
        (found,) = [each["ExitCode"] for each in self.ran.job["Hosts"] if each["Host"] == host]
        assert isinstance(found, int)
        return found

    def outcome(self, host: str) -> dict[str, Any]:
        return self.ran.outcome(host)

    def reason(self, host: str) -> str:
        text: str = self.outcome(host)["reason"]
        return text


def memory_group(limit: int) -> Path:
    """A new memory cgroup (v1 or v2) below the root, with a limit in bytes."""
    name = f"muster-fault-{uuid.uuid4().hex[:12]}"
    root = Path("/sys/fs/cgroup")
    one = (root / "memory").is_dir()
    group = (root / "memory" if one else root) / name
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if one else "memory.max")).write_text(str(limit))
        if not one:
            (group / "memory.swap.max").write_text("0")
    except OSError:
        group.rmdir()
        raise
    return group
