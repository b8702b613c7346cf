"""The quick part of a check before a launch (``--check``, ``MUSTER_CHECK``): what takes milliseconds.

Every host looks at itself; where there is a channel the leader compares all hosts, so that each has the same findings.
"""

from __future__ import annotations

import json
from typing import Callable

from musterpoint.base.errors import CheckError
from musterpoint.base.loop import Loop
from musterpoint.base.settings import Settings
from musterpoint.core.channel.peers import Peers, Report
from musterpoint.core.channel.topics.consultations import TOPIC, Answer, Ask
from musterpoint.core.job.model import Job
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.runtime import Request, Runtime
from musterpoint.tools.check.fact_rules import host_findings, job_findings
from musterpoint.tools.check.facts import HostFacts, Subject, subject_of
from musterpoint.tools.check.findings import Finding, in_order
from musterpoint.tools.check.steps import from_json, to_json

POINT = "check"
SECONDS = 10.0
"""How long the leader waits for the facts of the others; without those of a host it goes on."""
_LATE = 5.0


class Waiting:
    """Where this host waits for the others. ``interrupted``: whether something else comes first, such as a stop."""

    def __init__(self, loop: Loop, peers: Peers, interrupted: Callable[[], bool]) -> None:
        self._loop, self._peers, self._interrupted = loop, peers, interrupted

    def answer(self, text: str, decide: Callable[[dict[str, Report]], str]) -> str | None:
        """What the leader makes of all hosts' ``text``; None where it doesn't come, or no more matters."""
        answers: list[Answer | None] = []

        def decided(reports: dict[str, Report]) -> Answer:
            return Answer(POINT, decide(reports))

        self._peers.topic(TOPIC).consult(Ask(POINT, text), decided, answers.append, SECONDS)
        until = self._loop.clock() + SECONDS + _LATE
        while not answers and not self._peers.has_events() and not self._interrupted():
            left = until - self._loop.clock()
            if left <= 0:
                break
            self._loop.turn(left)
        return answers[0].text if answers and answers[0] is not None else None


def look_at_all(runtime: Runtime, request: Request, job: Job, options: Settings, roster: Roster, peers: Peers) -> None:
    """The check of a job that is about to start.

    Raises:
        CheckError: as of :func:`check_before_launch`.
    """
    subject = subject_of(job, options, request.environ, runtime.ask)
    waiting = Waiting(runtime.loop, peers, lambda: runtime.signals.has_kept)
    check_before_launch(subject, roster, waiting, runtime.console.say)


def check_before_launch(subject: Subject, roster: Roster, waiting: Waiting, say: Callable[[str], None]) -> None:
    """Says what is wrong here, and on the leader what is wrong with all hosts together.

    Raises:
        CheckError: a finding fails and ``--check fail`` was given; the same on every host.
    """
    facts = subject.facts(roster.me, roster.master_address, whole=False)
    hosts = [seat.name for seat in roster.seats]
    answer = waiting.answer(json.dumps(to_json(facts)), lambda reports: _decide(reports, hosts))
    found = _read(answer) if answer is not None else tuple(host_findings(facts))
    leads = roster.me == roster.leader
    bad = [each for each in found if each.severity != "ok"]
    for each in bad:
        if each.host == roster.me or (not each.host and leads):
            say(f"{'error' if each.severity == 'fail' else 'warning'}: check: {each.sentence}")
    failed = [each for each in bad if each.severity == "fail"]
    if failed and subject.options.check == "fail":
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise CheckError(f"--check fail: {failed[0].sentence}{more}")


def _decide(reports: dict[str, Report], hosts: list[str]) -> str:
    """The findings about all hosts; facts that can't be read are left out, as are those that didn't come."""
    facts = []
    for host in hosts if len(reports) > 1 else list(reports):
        try:
            its = from_json(HostFacts, json.loads(reports[host].said.text))
            facts.append(its._replace(host=host) if host else its)
        except (KeyError, ValueError):
            continue
    found = [finding for each in facts for finding in host_findings(each)]
    found += job_findings(facts)
    return json.dumps([each for each in in_order(found) if each.severity != "ok"])


def _read(answer: str) -> tuple[Finding, ...]:
    try:
        return tuple(map(Finding.from_wire, json.loads(answer)))
    except (TypeError, ValueError):
        return ()
