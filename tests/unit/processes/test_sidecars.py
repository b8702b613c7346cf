"""Programs of ours beside the job, as real processes."""

from __future__ import annotations

import os
import sys
from typing import Iterator

import pytest

from musterpoint.loop import Loop
from musterpoint.processes import tree
from musterpoint.processes.process import CannotStart
from musterpoint.processes.sidecars import Sidecars

ECHO = """
import sys
print("here", flush=True)
for line in sys.stdin:
    print("heard", line.strip(), flush=True)
sys.exit(3)
"""
DEAF = "import time\nprint('here', flush=True)\ntime.sleep(60)"


class Heard:
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
def heard() -> Iterator[Heard]:
    made = Heard()
    yield made
    made.sidecars.close()
    made.loop.close()


@pytest.mark.timeout(120)
def test_it_is_heard_told_and_ends_when_it_is_dismissed(heard: Heard) -> None:
    pid = heard.start(ECHO)
    heard.until("here")
    heard.sidecar.send("a word")
    heard.until("heard a word")
    assert heard.sidecars.pids == {pid}
    heard.sidecar.dismiss()
    while not heard.codes:
        heard.loop.turn()
    assert (heard.codes, heard.sidecar.code, heard.sidecars.pids) == ([3], 3, set())
    heard.sidecar.send("nobody is there")


@pytest.mark.timeout(120)
def test_who_waits_for_every_child_may_be_first(heard: Heard) -> None:
    pid = heard.start(ECHO)
    heard.sidecar.dismiss()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert heard.sidecars.ended(pid, status)
    assert (heard.codes, heard.lines) == ([3], ["here"])
    assert not heard.sidecars.ended(1, 0)


@pytest.mark.timeout(120)
def test_killing_the_job_spares_it(heard: Heard) -> None:
    pid = heard.start(DEAF)
    heard.until("here")
    assert pid not in {stat.pid for stat in tree.descendants(os.getpid(), spared=heard.sidecars.pids)}
    heard.sidecars.close(0.05)
    assert heard.codes == [-9]
    assert tree.read_stat(pid) is None


def test_a_program_that_is_not_there(heard: Heard) -> None:
    with pytest.raises(CannotStart):
        heard.sidecars.start(("/nowhere/at/all",), {}, heard.lines.append, heard.codes.append)


@pytest.mark.timeout(120)
def test_a_number_that_is_given_again_is_somebody_elses(heard: Heard) -> None:
    pid = heard.start(ECHO)
    heard.sidecar.dismiss()
    while not heard.codes:
        heard.loop.turn()
    assert not heard.sidecars.ended(pid, 9)
    assert heard.codes == [3]
