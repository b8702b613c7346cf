"""Programs of ours beside the job, as real processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.base.loop import Loop
from musterpoint.core.processes import process_tree, sidecars
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.sidecars import Sidecars

ECHO = """
import sys
print("here", flush=True)
for line in sys.stdin:
    print("heard", line.strip(), flush=True)
sys.exit(3)
"""
READS_LATE = """
import sys
print("here", flush=True)
open({gate!r}).close()  # waits for a writer
for number, line in enumerate(sys.stdin):
    if number == 0:
        print("reads", flush=True)
    word, _, rest = line.rstrip().partition(" ")
    if word == "last":
        print(number, "lines came before the last", flush=True)
    elif word != str(number) or len(rest) != {size}:
        print("line", number, "is", word, "of", len(rest), flush=True)
"""
STAYS = "import time\nprint('here', flush=True)\ntime.sleep(60)"


class Bench:
    """A loop with sidecars, and what they said."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.sidecars = Sidecars(self.loop)
        self.lines: list[str] = []
        self.codes: list[int] = []

    def start(self, text: str) -> int:
        argv = (sys.executable, "-I", "-S", "-c", text)
        self.sidecar = self.sidecars.start(argv, os.environ, self.lines.append, self.codes.append)
        return self.sidecar.pid

    def until(self, line: str) -> None:
        while line not in self.lines:
            self.loop.turn()

    def wait(self) -> None:
        while not self.codes:
            self.loop.turn()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.sidecars.close()
    made.loop.close()


def test_lines_go_both_ways_and_it_ends_when_it_is_dismissed(bench: Bench) -> None:
    pid = bench.start(ECHO)
    bench.until("here")
    bench.sidecar.send("a word")
    bench.until("heard a word")
    assert bench.sidecars.pids == {pid}
    bench.sidecar.dismiss()
    bench.wait()
    assert (bench.codes, bench.sidecar.code, bench.sidecars.pids) == ([3], 3, set())
    bench.sidecar.send("nobody is there")


@pytest.mark.parametrize(("lines", "size"), [(20_000, 20), (3, 300_000)], ids=["many-lines", "long-lines"])
def test_no_line_is_lost_where_it_reads_late(bench: Bench, tmp_path: Path, lines: int, size: int) -> None:
    """More than a pipe takes; what is sent when it has begun to read comes after it."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    bench.start(READS_LATE.format(gate=str(gate), size=size))
    bench.until("here")
    for number in range(lines):
        bench.sidecar.send(f"{number} {'x' * size}")
    gate.write_text("")
    bench.until("reads")
    bench.sidecar.send("last")
    while not bench.lines[-1].endswith("before the last"):
        bench.loop.turn()
    assert bench.lines == ["here", "reads", f"{lines} lines came before the last"]


def test_it_ends_while_lines_wait(bench: Bench) -> None:
    bench.start(STAYS)
    bench.until("here")
    bench.sidecar.send("x" * 1024**2)
    os.kill(bench.sidecar.pid, 9)
    bench.wait()
    bench.sidecar.send("nobody is there")
    assert bench.lines == ["here"]


def test_one_that_never_reads_is_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever started it is told why, and may start another."""
    monkeypatch.setattr(sidecars, "MOST_UNREAD", 2 * 1024**2)
    bench.start(STAYS)
    bench.until("here")
    for _ in range(3):
        bench.sidecar.send("x" * 1024**2)
    bench.wait()
    assert (bench.codes, bench.lines) == ([-9], ["here", "it doesn't read what it is told: 2 MiB wait"])


def test_its_status_may_have_been_taken_by_a_wait_for_every_child(bench: Bench) -> None:
    pid = bench.start(ECHO)
    bench.sidecar.dismiss()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert bench.sidecars.ended(pid, status)
    assert (bench.codes, bench.lines) == ([3], ["here"])
    assert not bench.sidecars.ended(1, 0)


def test_killing_the_job_spares_it(bench: Bench) -> None:
    pid = bench.start(STAYS)
    bench.until("here")
    assert pid not in {stat.pid for stat in process_tree.descendants(os.getpid(), spared=bench.sidecars.pids)}
    bench.sidecars.close(0.05)
    assert bench.codes == [-9]
    assert process_tree.read_stat(pid) is None


def test_a_program_that_is_not_there(bench: Bench) -> None:
    with pytest.raises(CannotStart):
        bench.sidecars.start(("/nowhere/at/all",), {}, bench.lines.append, bench.codes.append)


def test_a_pid_that_is_used_again_is_another_process(bench: Bench) -> None:
    pid = bench.start(ECHO)
    bench.sidecar.dismiss()
    bench.wait()
    assert not bench.sidecars.ended(pid, 9)
    assert bench.codes == [3]
