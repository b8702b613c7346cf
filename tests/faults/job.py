"""A job that a fault strikes: its hosts and processes while it runs, and what it left when it is over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Callable, NamedTuple

from ..hosts.conftest import Local, Ran, with_py_spy
from .fault import Cell
from .launchers import NONE
from .machines import Machines, shared
from .namespaces import Namespaces

HERE = Path(__file__).resolve().parent
PROGRAM = "code/program.py"
PREAMBLE = (HERE / "programs" / "preamble.py").read_text()
PATIENCE = 200.0
"""Seconds after which a job that shows no event is given up, on a machine whose processors have no queue."""
LONGEST_QUEUE = 6.0
LOOK = 0.05
"""Seconds between two looks for an event."""
SPELL = 5.0
"""Seconds between two looks at the queue while a job ends."""


class Stacks(NamedTuple):
    """Where frameworks are: the bin directory of a stack, and the tag of an image, by their names."""

    path: Callable[[str], Path]
    image: Callable[[str], str]


class Times(NamedTuple):
    """Seconds that checkpoints take, and for which a host can't be heard before it is back."""

    save: float
    cut: float


def queue() -> float:
    """How many processes there are for one that runs, on a machine loaded to more than twice its processors."""
    waiting = os.getloadavg()[0] / (2 * (os.cpu_count() or 1))
    return min(max(1.0, waiting), LONGEST_QUEUE)


class Job:
    """The job of ``cell`` in ``folder``, an empty directory, while it runs."""

    def __init__(self, cell: Cell, folder: Path, environ: dict[str, str], stacks: Stacks, times: Times) -> None:
        self.fault, self.launcher = cell
        self.folder, self.long = folder, times.cut
        self.hosts = [f"algo-{number + 1}" for number in range(self.launcher.hosts)]
        self.ranks = self.launcher.hosts * self.launcher.slots
        self.local = Local(sys.executable, dict(environ), folder)
        self.events = shared(folder)
        for place in (self.events, folder / "scratch", folder / "code"):
            place.mkdir(parents=True)
        hosts = json.dumps(self.fault.hosts._asdict())
        victim = f"{self.fault.victim} {self.launcher.slots - 1}"
        self.variables = {
            **self.fault.environ, "FAULT_VICTIM": victim, "FAULT_RANKS": str(self.ranks),
            "FAULT_SAVE": str(min(times.save, self.fault.longest_save)), "OMP_NUM_THREADS": "1",
            # four ranks and two daemons share two processors with other tests: who waits should sleep
            "OMPI_MCA_mpi_yield_when_idle": "1", "MUSTER_TEST_TOKEN": self.local.token,
        }  # fmt: skip
        self.local.environ.update(
            self.variables, FAULT_FOLDER=str(self.events), FAULT_HOSTS=hosts, TMPDIR=str(folder / "scratch")
        )
        if self.fault.py_spy:
            self.local.environ["PATH"] = with_py_spy(self.local.environ["PATH"])
        python = sys.executable
        if self.launcher.stack:
            bin = stacks.path(self.launcher.stack)
            python = str(bin / "python")
            self.local.environ.update(MUSTER_PYTHON=python, PATH=f"{bin}{os.pathsep}{self.local.environ['PATH']}")
        program = self.local.program(PREAMBLE + (self.launcher.collective or NONE) + self.fault.body, PROGRAM)
        for name, text in self.launcher.files.items():
            self.local.program(text.replace("{python}", python), f"{program.parent.name}/{name}")
        self.program = program.with_name(next(iter(self.launcher.files), program.name))
        self.machines = self._machines(stacks)
        self.local.command = self.command  # type: ignore[method-assign]
        self.process: subprocess.Popen[str] | None = None
        self.began = 0.0

    def _machines(self, stacks: Stacks) -> Machines:
        if not self.launcher.image:
            return Namespaces(self.local.token, self.folder, bool(self.launcher.outlives))
        from .containers import Containers

        return Containers(f"faults-{uuid.uuid4().hex[:12]}", stacks.image(self.launcher.image), self.folder)

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
            *self.machines.options(self.variables, self.fault.memory), "--hosts", str(self.launcher.hosts), *slots,
            *self.launcher.options, *self.fault.options, self.program,
        )  # fmt: skip

    # -- events, and what is done from outside --

    def marked(self, name: str) -> bool:
        return (self.events / name).exists()

    def mark(self, name: str, text: str = "") -> None:
        draft = self.events / f".{name}"
        draft.write_text(text)
        draft.rename(draft.with_name(name))

    def told(self, name: str) -> str:
        return (self.events / name).read_text()

    def until(self, check: Callable[[], bool]) -> None:
        patience = PATIENCE
        while not check():
            over = self.process is not None and self.process.poll() is not None
            assert check() or not over, "the job ended before"
            assert patience > 0, f"not within {PATIENCE} s"
            time.sleep(LOOK)
            patience -= LOOK / queue()

    def until_all_work(self) -> None:
        self.until(lambda: all(self.marked(f"here-{rank}") for rank in range(self.ranks)))

    def strike(self, victim: str = "") -> None:
        """Says that the fault comes now."""
        self.mark("victim", victim)
        self.mark("struck", str(time.time()))

    def log(self, host: str) -> str:
        path = self.local.output / "hosts" / host / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> None:
        """As StopTrainingJob does it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def finish(self) -> Seen:
        assert self.process is not None
        patience = PATIENCE + self.fault.wait
        while patience > 0:
            try:
                texts = self.process.communicate(timeout=SPELL)
            except subprocess.TimeoutExpired:
                patience -= SPELL / queue()
            else:
                done = subprocess.CompletedProcess(self.process.args, self.process.returncode, *texts)
                return Seen(self, Ran(self.local.output, done, time.time() - self.began), time.time())
        ran = self.local.finish(self.process, SPELL)  # which says what it said so far
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
