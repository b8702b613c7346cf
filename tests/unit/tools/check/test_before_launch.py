"""The quick check before a launch, without a network: who says what, and when the job doesn't start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base import probe
from musterpoint.base.errors import CheckError
from musterpoint.base.loop import Loop
from musterpoint.base.settings import Settings
from musterpoint.core.channel.lone import LoneChannel
from musterpoint.core.channel.peers import Report
from musterpoint.core.channel.topics.consultations import Answer, Ask
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.job.model import EntryPoint, Job
from musterpoint.core.rollcall.roster import Roster, Seat
from musterpoint.tools.check.before_launch import Waiting, _decide, _read, check_before_launch
from musterpoint.tools.check.facts import HostFacts, Subject
from musterpoint.tools.check.findings import Finding
from musterpoint.tools.check.machine import MachineState, Space
from musterpoint.tools.check.steps import to_json

from .test_machine import Recorded

HOSTS = ("algo-1", "algo-2")


def subject(root: Path, shm: int, check: Any) -> Subject:
    job = Job("plain", "job", HOSTS, "algo-1", HOSTS, EntryPoint("x"))
    system = Recorded(root, {}, {"/dev/shm": Space(shm << 20, shm << 20)})
    return Subject(job, Settings(check=check), {}, Devices(cpus=8), probe.ask, system=system)


def roster(me: str) -> Roster:
    return Roster("job", "s", tuple(Seat(host, "127.0.0.1", 1) for host in HOSTS), "127.0.0.1", 7777, me)


def checked(loop: Loop, root: Path, shm: int, check: str, me: str = "algo-1") -> list[str]:
    said: list[str] = []
    waiting = Waiting(loop, LoneChannel(loop), lambda: False)
    try:
        check_before_launch(subject(root, shm, check), roster(me), waiting, said.append)
    except CheckError as error:
        said.append(f"raised {error}")
    return said


def test_a_sound_host_says_nothing(loop: Loop, tmp_path: Path) -> None:
    assert checked(loop, tmp_path, 4096, "fail") == []


@pytest.mark.parametrize(("shm", "check", "says"), [
    (32, "warn", ["error: check: shm-small on"]), (64, "fail", ["warning: check: shm-small on"]),
    (32, "fail", ["error: check: shm-small on", "raised --check fail: shm-small on"]),
])  # fmt: skip
def test_what_is_said(loop: Loop, tmp_path: Path, shm: int, check: str, says: list[str]) -> None:
    for line, begins in zip(checked(loop, tmp_path, shm, check), says, strict=True):
        assert line.startswith(begins)


class Answering:
    """Peers whose leader answers with ``text``; none at all, or an event that waits, where it is None."""

    def __init__(self, loop: Loop, text: str | None, event: bool = False) -> None:
        self._loop, self._text, self._event = loop, text, event

    def topic(self, topic: Any) -> Answering:
        return self

    def consult(self, report: Ask, decide: Any, on_answer: Any, seconds: float) -> None:
        answer = None if self._text is None else Answer(report.point, self._text)
        if not self._event:
            self._loop.call_later(0, lambda: on_answer(answer))

    def has_events(self, *kinds: type) -> bool:
        return self._event


@pytest.mark.parametrize("answer", [None, "no json", "[[1]]", "{}"])
def test_an_answer_that_cannot_be_read_lets_the_job_start(loop: Loop, tmp_path: Path, answer: str | None) -> None:
    peers: Any = Answering(loop, answer)
    said: list[str] = []
    waiting = Waiting(loop, peers, lambda: False)
    check_before_launch(subject(tmp_path, 4096, "fail"), roster("algo-1"), waiting, said.append)
    assert said == []


@pytest.mark.parametrize(("event", "interrupted"), [(True, False), (False, True)])
def test_what_matters_more_ends_the_wait(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, event: bool, interrupted: bool
) -> None:
    peers: Any = Answering(loop, "x", event)
    monkeypatch.setattr(loop, "turn", lambda seconds: pytest.fail(f"it waits for {seconds} s"))
    assert Waiting(loop, peers, lambda: interrupted).answer("", lambda reports: "") is None


def test_reports_of_hosts_that_are_gone_or_broken_are_left_out() -> None:
    facts = HostFacts("x", machine=MachineState(shm_total=32 << 20))
    texts = {"algo-1": "[1]", "algo-3": json.dumps(to_json(facts))}
    reports = {host: Report(Ask("check", text), 0.0) for host, text in texts.items()}
    found: tuple[Finding, ...] = _read(_decide(reports, ["algo-1", "algo-2", "algo-3"]))
    assert [(each.code, each.host) for each in found] == [("shm-small", "algo-3")], "by the name of the seat"
