"""Programs of ours beside the job, as real processes."""

from __future__ import annotations

import os
import sys
from typing import Iterator

import pytest

from musterpoint.base.loop import Loop
from musterpoint.core.processes import tree
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.sidecars import Sidecars

ECHO = """
import sys
print("here", flush=True)
for line in sys.stdin:
    print("heard", line.strip(), flush=True)
sys.exit(3)
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


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.sidecars.close()
    made.loop.close()


@pytest.mark.timeout(600)
def test_lines_go_both_ways_and_it_ends_when_it_is_dismissed(bench: Bench) -> None:
    pid = bench.start(ECHO)
    bench.until("here")
    bench.sidecar.send("a word")
    bench.until("heard a word")
    assert bench.sidecars.pids == {pid}
    bench.sidecar.dismiss()
    while not bench.codes:
        bench.loop.turn()
    assert (bench.codes, bench.sidecar.code, bench.sidecars.pids) == ([3], 3, set())
    bench.sidecar.send("nobody is there")


@pytest.mark.timeout(600)
def test_its_status_may_have_been_taken_by_a_wait_for_every_child(bench: Bench) -> None:
    pid = bench.start(ECHO)
    bench.sidecar.dismiss()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert bench.sidecars.ended(pid, status)
    assert (bench.codes, bench.lines) == ([3], ["here"])
    assert not bench.sidecars.ended(1, 0)


@pytest.mark.timeout(600)
def test_killing_the_job_spares_it(bench: Bench) -> None:
    pid = bench.start(STAYS)
    bench.until("here")
    assert pid not in {stat.pid for stat in tree.descendants(os.getpid(), spared=bench.sidecars.pids)}
    bench.sidecars.close(0.05)
    assert bench.codes == [-9]
    assert tree.read_stat(pid) is None


def test_a_program_that_is_not_there(bench: Bench) -> None:
    with pytest.raises(CannotStart):
        bench.sidecars.start(("/nowhere/at/all",), {}, bench.lines.append, bench.codes.append)


@pytest.mark.timeout(600)
def test_a_pid_that_is_used_again_is_another_process(bench: Bench) -> None:
    pid = bench.start(ECHO)
    bench.sidecar.dismiss()
    while not bench.codes:
        bench.loop.turn()
    assert not bench.sidecars.ended(pid, 9)
    assert bench.codes == [3]
