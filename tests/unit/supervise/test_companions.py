"""Programs of ours beside the job, as real processes."""

from __future__ import annotations

import os
import sys
from typing import Iterator

import pytest

from musterpoint.loop import Loop
from musterpoint.supervise import tree
from musterpoint.supervise.companions import Companions
from musterpoint.supervise.process import CannotStart

ECHO = """
import sys
print("here", flush=True)
for line in sys.stdin:
    print("heard", line.strip(), flush=True)
sys.exit(3)
"""
DEAF = "import time\nprint('here', flush=True)\ntime.sleep(60)"


class Heard:
    """A loop with companions, and what they said."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.companions = Companions(self.loop)
        self.lines: list[str] = []
        self.codes: list[int] = []

    def start(self, text: str) -> int:
        argv = (sys.executable, "-I", "-S", "-c", text)
        self.companion = self.companions.start(argv, os.environ, self.lines.append, self.codes.append)
        return self.companion.pid

    def until(self, line: str) -> None:
        while line not in self.lines:
            self.loop.turn()


@pytest.fixture
def heard() -> Iterator[Heard]:
    made = Heard()
    yield made
    made.companions.close()
    made.loop.close()


@pytest.mark.timeout(120)
def test_it_is_heard_told_and_ends_when_it_is_dismissed(heard: Heard) -> None:
    pid = heard.start(ECHO)
    heard.until("here")
    heard.companion.tell("a word")
    heard.until("heard a word")
    assert heard.companions.pids == {pid}
    heard.companion.dismiss()
    while not heard.codes:
        heard.loop.turn()
    assert (heard.codes, heard.companion.code, heard.companions.pids) == ([3], 3, set())
    heard.companion.tell("nobody is there")


@pytest.mark.timeout(120)
def test_who_waits_for_every_child_may_be_first(heard: Heard) -> None:
    pid = heard.start(ECHO)
    heard.companion.dismiss()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert heard.companions.ended(pid, status)
    assert (heard.codes, heard.lines) == ([3], ["here"])
    assert not heard.companions.ended(1, 0)


@pytest.mark.timeout(120)
def test_killing_the_job_spares_it(heard: Heard) -> None:
    pid = heard.start(DEAF)
    heard.until("here")
    assert pid not in {stat.pid for stat in tree.descendants(os.getpid(), spared=heard.companions.pids)}
    heard.companions.close(0.05)
    assert heard.codes == [-9]
    assert tree.read_stat(pid) is None


def test_a_program_that_is_not_there(heard: Heard) -> None:
    with pytest.raises(CannotStart):
        heard.companions.start(("/nowhere/at/all",), {}, heard.lines.append, heard.codes.append)


@pytest.mark.timeout(120)
def test_a_number_that_is_given_again_is_somebody_elses(heard: Heard) -> None:
    pid = heard.start(ECHO)
    heard.companion.dismiss()
    while not heard.codes:
        heard.loop.turn()
    assert not heard.companions.ended(pid, 9)
    assert heard.codes == [3]
