"""Whether ranks met, from recorded tables of TCP connections."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.failure import Failure
from musterpoint.base.loop import Loop
from musterpoint.core.code.program_files import CodeDirectory
from musterpoint.core.diagnosis import DiagnosisContext
from musterpoint.core.launch.launch_plan import Meeting
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.pump import Pump
from musterpoint.core.supervise.ranks_met import MeetingWatch, rows

from .bench import context_for

MEETING = Meeting(7777, ("10.77.1.3", "fd00::2"), False, "libtorch", ("torch", "accelerate"), "call it")
PORT = "1E61"
OWN = "02014D0A"
"""10.77.1.2"""
ROW = (
    "   {at}: {local} {remote} {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0 20 4 30 10 -1"
)
RANKS = {500: 1, 501: 1, 510: 500}
"""Pids and their parents; 510 is the Python of a rank that is a shell."""


class Machine:
    """A /proc of two ranks, and a watch on it."""

    def __init__(self, folder: Path, **meeting: Any) -> None:
        self.proc, self.said, self.recorded = folder / "proc", [], []
        (self.proc / "net").mkdir(parents=True)
        self.table()
        for pid, parent in RANKS.items():
            (self.proc / str(pid) / "fd").mkdir(parents=True)
            (self.proc / str(pid) / "stat").write_text(f"{pid} (python) S {parent} 1 1")
            (self.proc / str(pid) / "maps").write_text("7f00-7f01 r-xp 0 0 0 /usr/lib/libc.so.6\n")
        self.loop = Loop()
        context = context_for(self.loop, Pump(), lambda event, **facts: self.recorded.append(event))
        self.context = context._replace(
            say=self.said.append,
            context_of_diagnosis=lambda: DiagnosisContext("algo-1", files=CodeDirectory(str(folder))),
        )
        self.folder = folder
        self.meeting = MEETING._replace(**meeting)

    def table(self, *lines: tuple[str, str, str, int], name: str = "tcp") -> None:
        """Rows of local and remote endpoint, state and inode."""
        rows = [
            ROW.format(at=at, local=local, remote=remote, state=state, inode=inode)
            for at, (local, remote, state, inode) in enumerate(lines)
        ]
        (self.proc / "net" / name).write_text("\n".join(["  sl  local_address ...", *rows]) + "\n")

    def owns(self, pid: int, inode: int) -> None:
        (self.proc / str(pid) / "fd" / str(inode)).symlink_to(f"socket:[{inode}]")

    def watch(self) -> MeetingWatch:
        return MeetingWatch(self.context, self.meeting, 4, lambda: [500, 501], str(self.proc))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


ROWS: dict[str, tuple[tuple[str, str, str, int], int, bool]] = {
    # a row, the owner of its socket, and whether it shows that ranks met
    "a rank at the port": ((f"{OWN}:9000", f"{OWN}:{PORT}", "01", 77), 500, True),
    "what a rank started": ((f"{OWN}:9000", f"{OWN}:{PORT}", "01", 77), 510, True),
    "the launcher at the port": ((f"{OWN}:9000", f"{OWN}:{PORT}", "01", 77), 0, False),
    "a launcher that listens": ((f"00000000:{PORT}", "00000000:0000", "0A", 77), 0, False),
    "a rank that tries": ((f"{OWN}:9000", f"{OWN}:{PORT}", "02", 77), 500, False),
    "closed by a rank": ((f"{OWN}:9000", f"{OWN}:{PORT}", "06", 0), 0, True),
    "closed by the server": ((f"{OWN}:{PORT}", f"{OWN}:9000", "06", 0), 0, True),
    "a rank and another host": ((f"{OWN}:9000", "03014D0A:2222", "01", 77), 500, True),
    "somebody and another host": ((f"{OWN}:9000", "03014D0A:2222", "01", 77), 0, False),
    "a rank and the world outside": ((f"{OWN}:9000", "08080808:01BB", "01", 77), 500, False),
    "a rank with itself": (("0100007F:9000", "0100007F:9000", "01", 77), 500, False),
}


@pytest.mark.parametrize("name", ROWS)
def test_which_connections_show_it(machine: Machine, name: str) -> None:
    row, owner, met = ROWS[name]
    watch = machine.watch()
    machine.table(row)
    if owner:
        machine.owns(owner, row[3])
    watch.look()
    assert watch.met is met
    assert machine.recorded == ["ranks-met"] * met


def test_connections_of_two_ranks_with_each_other(machine: Machine) -> None:
    watch = machine.watch()
    machine.table(("0100007F:9000", "0100007F:9001", "01", 1), ("0100007F:9001", "0100007F:9000", "01", 2))
    machine.owns(500, 1)
    machine.owns(510, 2)  # below the same rank
    watch.look()
    assert not watch.met
    (machine.proc / "510/fd/2").unlink()
    machine.owns(501, 2)
    watch.look()
    assert watch.met


TO_HOST = ("02014D0A:9002", "03014D0A:2222", "01", 3)


@pytest.mark.parametrize(
    ("rows", "thread", "warned"),
    [([], "pt_gloo_runloop", True), ([], "pt_tcpstore_uv", True), ([], "pt_autograd_0", False),
     ([TO_HOST], "pt_gloo_runloop", False), ([(*TO_HOST[:2], "06", 0)], "pt_gloo_runloop", False)],
    ids=["a world of its own", "its store", "no world", "of several hosts", "that ended"],
)  # fmt: skip
def test_programs_that_may_be_independent_are_told_of_worlds_apart(
    machine: Machine, rows: list[tuple[str, str, str, int]], thread: str, warned: bool
) -> None:
    machine.meeting = machine.meeting._replace(port=0, modules=(), apart=True)
    watch = machine.watch()
    machine.table(*rows)
    for row in rows:
        machine.owns(510, row[3])
    (machine.proc / "510/task/511").mkdir(parents=True)
    (machine.proc / "510/task/511/comm").write_text(f"{thread}\n")
    watch.look()
    assert end(watch) is None
    assert [text[:44] for text in machine.said] == ["warning: torch.distributed ran on algo-1 wit"] * warned


@pytest.mark.parametrize(
    "remote",
    [
        "0000000000000000FFFF000003014D0A",  # 10.77.1.3, mapped into IPv6
        "000000FD000000000000000002000000",  # fd00::2
    ],
)
def test_addresses_of_ipv6(machine: Machine, remote: str) -> None:
    watch = machine.watch()
    machine.table((f"{0:032X}:9000", f"{remote}:2222", "01", 77), name="tcp6")
    machine.owns(501, 77)
    watch.look()
    assert watch.met


def test_what_an_earlier_job_left_does_not_count(machine: Machine) -> None:
    machine.table((f"{OWN}:9000", f"{OWN}:{PORT}", "06", 0))
    watch = machine.watch()
    watch.look()
    assert not watch.met


OF_TORCH = """
import sys, torch.distributed as dist
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("world", "warned"), [(OF_TORCH, True), ("import sys, torch\nprint(flush=True)\nsys.stdin.read()", False)]
)
def test_a_real_world_of_one_host(machine: Machine, world: str, warned: bool) -> None:
    meeting = machine.meeting._replace(port=0, modules=(), apart=True)
    words = [sys.executable, "-c", world]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as rank:
        watch = MeetingWatch(machine.context, meeting, 2, lambda: [rank.pid])
        assert rank.stdout is not None and rank.stdout.readline()
        watch.look()
        rank.communicate()
    assert watch.rank_ended(True, last=True) is None
    assert len(machine.said) == warned


def end(watch: MeetingWatch, well: bool = True) -> Failure | None:
    """Both ranks end."""
    assert watch.rank_ended(True, last=False) is None
    return watch.rank_ended(well, last=True)


def test_ranks_that_end_together_are_one_reason_to_look(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look reads every process of the machine, and reads it once for all ranks."""
    walks: list[str] = []
    read = process_tree._all_stats
    monkeypatch.setattr(process_tree, "_all_stats", lambda proc: walks.append(proc) or read(proc))
    watch = machine.watch()
    for _ in range(3):
        assert watch.rank_ended(True, last=False) is None
    assert walks == []
    machine.table((f"{OWN}:9000", f"{OWN}:{PORT}", "01", 77))
    machine.owns(501, 77)
    machine.loop.turn(1)
    assert walks == [str(machine.proc)]
    assert watch.met


def test_ranks_that_have_to_meet(machine: Machine) -> None:
    machine.meeting = MEETING._replace(required=True)
    failure = end(machine.watch())
    assert failure is not None
    assert (failure.code, failure.cause) == (72, "muster")
    assert "4 ranks" in failure.reason and "port 7777" in failure.reason and failure.reason.endswith("; call it")
    assert end(machine.watch(), well=False) is None


def test_a_program_that_has_the_library_is_warned_about(machine: Machine) -> None:
    (machine.proc / "510/maps").write_text("7f00-7f01 r-xp 0 0 0 /x/torch/lib/libtorch_cpu.so\n")
    machine.watch().look()
    watch = machine.watch()
    watch.look()
    assert end(watch) is None
    assert [text[:32] for text in machine.said] == ["warning: none of the 4 ranks con"]


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("from accelerate import Accelerator", True),
        ("if True:\n    import torch.distributed as dist", True),
        ("import os\nprint('import torch')", False),
        ("import torchless", False),
    ],
)
def test_so_is_one_whose_source_imports_it(machine: Machine, text: str, warned: bool) -> None:
    (machine.folder / "train.py").write_text(text)
    assert end(machine.watch()) is None
    assert len(machine.said) == warned


@pytest.mark.parametrize(
    ("program", "files", "warned"),
    [
        ("train.py", {"train.py": "print(1)", "other.py": "import torch"}, False),
        ("train.py", {"train.py": "import other", "other.py": "import torch"}, True),
        ("train.py", {"train.py": "from model import net", "model/__init__.py": "from . import net",
                      "model/net.py": "from torch import nn"}, True),
        ("train.py", {"train.py": "import model.net", "model/__init__.py": "", "model/net.py": "import torch"}, True),
        ("pkg/train", {"pkg/train.py": "from .data import x", "pkg/data.py": "import torch", "a.py": ""}, True),
        ("pkg/train", {"pkg/train.py": "from .data import x", "pkg/data.py": "", "a.py": "import torch"}, False),
        ("pkg", {"pkg/__main__.py": "import torch"}, True),
        ("src/train.py", {"src/train.py": "import lib", "src/lib.py": "import accelerate"}, True),
        ("train.py", {"train.py": "try:\n    import torch\nexcept ImportError:\n    torch = None"}, False),
        ("train.py", {"train.py": "import a", "a.py": "import train"}, False),
        ("train.py", {"train.py": "def (", "a.py": "import torch"}, False),
        ("gone.py", {"a.py": "import torch"}, False),
        ("", {"a.py": "import torch"}, True),  # a shell script may start any of them
    ],
)  # fmt: skip
def test_a_neighbour_that_nobody_imports_says_nothing(
    machine: Machine, program: str, files: dict[str, str], warned: bool
) -> None:
    machine.meeting = MEETING._replace(program=program)
    for name, text in files.items():
        (machine.folder / name).parent.mkdir(exist_ok=True)
        (machine.folder / name).write_text(text)
    assert end(machine.watch()) is None
    assert len(machine.said) == warned


def test_it_is_looked_for_while_the_ranks_run(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("musterpoint.core.supervise.ranks_met.LOOKS", (0.0, 0.001))
    watch = machine.watch()
    machine.loop.turn(1)
    machine.loop.turn(1)
    assert not watch.met
    machine.table((f"{OWN}:9000", f"{OWN}:{PORT}", "08", 0))
    while not watch.met:
        machine.loop.turn(1)
    machine.table()
    assert end(watch) is None
    assert machine.said == []


def test_where_there_are_no_tables_nothing_is_said(machine: Machine) -> None:
    (machine.proc / "net" / "tcp").unlink()
    machine.meeting = MEETING._replace(required=True)
    assert end(machine.watch()) is None
    assert list(rows(str(machine.proc))) == []
