"""Measures collectives between hosts, in pairs: one process of torch per rank, which the hosts command together.

The ranks get the variables that they would have in the job, as its launch plan sets them.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any, Mapping, NamedTuple

from musterpoint.base.errors import MusterError
from musterpoint.base.loop import Loop
from musterpoint.base.settings import without_own
from musterpoint.core.channel.peers import Report
from musterpoint.core.code.workspace import Workspace
from musterpoint.core.fabric.network_interface import interface_toward
from musterpoint.core.launch.choose import Choice
from musterpoint.core.launch.plan import LaunchPlan, ProcessPlan
from musterpoint.core.prepare import PreparedHost, plan_host
from musterpoint.core.processes.sidecars import Sidecar, Sidecars
from musterpoint.core.rollcall.roster import Roster
from musterpoint.embedded.programs.registry import Texts, fact_of
from musterpoint.tools.check.bandwidth_rules import Measured, bandwidth_findings, next_pairs
from musterpoint.tools.check.blame import Pair
from musterpoint.tools.check.findings import Finding, Severity, finding
from musterpoint.tools.check.joint_steps import JointSteps
from musterpoint.tools.check.links import survey_links
from musterpoint.tools.check.records import from_json, to_json
from musterpoint.tools.check.subject import Subject

START = 120.0
"""Seconds in which torch is to be imported and the GPU found: on a network file system that takes a minute."""
LATER = 60.0
"""Seconds that the others may need more for that than the leader."""
PAIR = 20.0
"""Seconds for a pair: rendezvous, and each operation."""
_SLACK = 10.0
_ENDING = 0.5


class _State(NamedTuple):
    """What a host reports before each round.

    ``port``: of its store; ``ranks``: how many it has; ``failed``: why it can't measure. The rest is about the last
    round, where it took part: what its first rank measured, and what went wrong.
    """

    port: int = 0
    ranks: int = 0
    failed: str = ""
    backend: str = ""
    all_reduce: float = 0.0
    broadcast: float = 0.0
    latency: float = 0.0
    waited: float = 0.0
    error: str = ""


class _Round(NamedTuple):
    """The leader's answer: the pairs of a round, and the ports of the stores of all hosts. Without pairs it is over,
    and ``measured`` has all.
    """

    pairs: tuple[tuple[str, ...], ...] = ()
    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    measured: tuple[Measured, ...] = ()


def measure(
    loop: Loop, subject: Subject, roster: Roster, joint: JointSteps
) -> tuple[tuple[Measured, ...], list[Finding]]:
    """Measures with the other hosts until enough is known; on the leader also the findings.

    Raises:
        LeaderLost, StoppedEarly: as :meth:`JointSteps.step`.
    """
    ranks = _Ranks(loop, subject, roster)
    deciding = _Leader(tuple(seat.name for seat in roster.group), joint)
    try:
        ranks.start()
        joint.wait(ranks.is_ready)
        state, number = ranks.state(), 0
        while True:
            answer = joint.step(
                f"bandwidth-{number}", json.dumps(to_json(state)), deciding.decide, LATER if not number else PAIR + 30
            )
            this = from_json(_Round, json.loads(answer))
            if not this.pairs:
                break
            number += 1
            ranks.begin(this, number)
            joint.wait(ranks.is_over)
            state = ranks.state()
    finally:
        ranks.close()
    root = subject.system.root
    used = survey_links(interface_toward(roster.master_address, root), root).used
    link_speed = used.speed / 8e3 if used is not None else 0.0
    found = bandwidth_findings(deciding.able, this.measured, subject.wanted.expected, link_speed)
    return this.measured, [*deciding.unable, *found]


class _Leader:
    """``able``: hosts that can measure; ``unable``: findings about the others."""

    def __init__(self, hosts: tuple[str, ...], joint: JointSteps) -> None:
        self.able: tuple[str, ...] = ()
        self.unable: list[Finding] = []
        self._hosts = hosts
        self._lost = joint.lost
        self._measured: list[Measured] = []
        self._pairs: tuple[Pair, ...] = ()
        self._rounds = 0

    def decide(self, reports: dict[str, Report]) -> str:
        """The next round, from what all hosts report of the last one."""
        states = {host: _read(reports.get(host)) for host in self._hosts}
        if not self._rounds:
            self._count(states)
        for first, second in self._pairs:
            self._measured.append(self._result(first, second, states))
        self._pairs = next_pairs(self.able, self._measured, self._rounds)
        self._rounds += 1
        ports = tuple(states[host].port for host in self.able)
        ranks = tuple(states[host].ranks for host in self.able)
        return json.dumps(to_json(_Round(self._pairs, self.able, ports, ranks, tuple(self._measured))))

    def _count(self, states: Mapping[str, _State]) -> None:
        self.able = tuple(host for host in self._hosts if not states[host].failed)
        for host in self._hosts:
            if states[host].failed:
                severity: Severity = "fail" if self.able else "warn"
                self.unable.append(
                    finding(
                        "bandwidth-unmeasured", severity, host, states[host].failed, "torch, and a rank that starts"
                    )
                )
        backends = {states[host].backend for host in self.able}
        if len(backends) > 1:
            what = ", ".join(f"{host}: {states[host].backend}" for host in self.able)
            self.unable.append(
                finding(
                    "bandwidth-unmeasured",
                    "fail",
                    "",
                    f"the hosts' backends differ ({what})",
                    "GPUs on all hosts, or on none",
                )
            )
            self.able = ()

    def _result(self, first: str, second: str, states: Mapping[str, _State]) -> Measured:
        one, two = states[first], states[second]
        lost = [f"{host} was lost" for host in (first, second) if host in self._lost]
        error = "; ".join(dict.fromkeys(filter(None, (*lost, one.error, two.error, one.failed, two.failed))))
        if not error and not (one.all_reduce and one.broadcast):
            error = "no result"
        ranks = max(2, one.ranks + two.ranks)
        if error:
            return Measured(first, second, ranks, backend=one.backend, error=error)
        waited = (one.waited, two.waited)
        return Measured(first, second, ranks, one.all_reduce, one.broadcast, one.latency, one.backend, "", waited)


def _read(report: Report | None) -> _State:
    try:
        return (
            from_json(_State, json.loads(report.text))
            if report is not None
            else _State(failed="it sent no report in time")
        )
    except ValueError as error:
        return _State(failed=f"its report can't be read: {error}")


class _Child:
    """One rank's process. ``ready``: what it said of itself; ``answer``: of the last command; ``said``: other lines."""

    def __init__(self) -> None:
        self.sidecar: Sidecar | None = None
        self.ready: dict[str, Any] | None = None
        self.answer: dict[str, Any] | None = None
        self.said: list[str] = []
        self.failed = ""

    def on_line(self, line: str) -> None:
        message = fact_of(line)
        if message is None:
            self.said = [*self.said[-4:], line]
        elif isinstance(message.get("ready"), dict):
            self.ready = message["ready"]
        elif "failed" in message:
            self.failed = str(message["failed"])
        elif "done" in message:
            self.answer = message

    def on_end(self, code: int) -> None:
        self.sidecar = None
        self.failed = self.failed or f"its rank ended with {code}: {' '.join(self.said[-2:])}"


class _Ranks:
    """This host's ranks, none outside the distribution group; they are started again where one had to be killed."""

    def __init__(self, loop: Loop, subject: Subject, roster: Roster) -> None:
        self._loop, self._subject, self._roster = loop, subject, roster
        self._sidecars, self._texts = Sidecars(loop), Texts()
        self._children: list[_Child] = []
        self._failed = ""
        self._until = 0.0
        self._pair: tuple[str, ...] = ()

    def start(self) -> None:
        """Starts every rank that isn't there."""
        try:
            plan = self._plan() if not self._children else None
            processes = plan.processes if plan else ()
            if plan is not None:
                self._environ = _environment(plan, without_own(self._subject.environ))
                self._processes: tuple[ProcessPlan, ...] = tuple(each for each in processes if each.role == "rank")
                self._children = [_Child() for _ in self._processes]
            path = self._texts.path("collectives")
            for process, child in zip(self._processes, self._children, strict=True):
                if child.sidecar is None:
                    child.ready, child.failed = None, ""
                    own = {setting.name: setting.value for setting in process.environment if setting.ours is None}
                    argv = (self._subject.interpreter, path)
                    child.sidecar = self._sidecars.start(argv, {**self._environ, **own}, child.on_line, child.on_end)
        except MusterError as error:
            self._failed = str(error)
        self._until = self._loop.clock() + START
        self._loop.call_at(self._until, lambda: None)

    def _plan(self) -> LaunchPlan:
        """The plan of a job that starts these ranks, for its variables."""
        subject = self._subject
        workspace = Workspace("python", "check", (subject.interpreter, "check"), "/", subject.interpreter)
        host = PreparedHost(workspace, subject.devices, Choice("ranks", self._roster.seat.slots, "muster check"))
        return plan_host(subject.job, subject.options, host, self._roster, subject.environ)

    def is_ready(self) -> bool:
        """Whether every rank has said that it is ready, or that it can't be."""
        return self._loop.clock() >= self._until or all(child.ready or child.failed for child in self._children)

    def begin(self, this: _Round, number: int) -> None:
        """Commands the ranks to measure with the host that ``this`` pairs this one with, if any."""
        me = self._roster.me
        self._pair = next((pair for pair in this.pairs if me in pair), ())
        for child in self._children:
            child.answer = None
        self._until = self._loop.clock() + PAIR + _SLACK
        self._loop.call_at(self._until, lambda: None)
        if not self._pair:
            return
        first, second = self._pair
        ranks = dict(zip(this.hosts, this.ranks, strict=True))
        store = [self._address(first), dict(zip(this.hosts, this.ports, strict=True))[first]]
        for at, child in enumerate(self._children):
            if child.sidecar is not None:
                command = {
                    "run": number,
                    "store": store,
                    "rank": at + (ranks[first] if me == second else 0),
                    "size": ranks[first] + ranks[second],
                    "other": ranks[first],
                    "seconds": PAIR,
                }
                child.sidecar.send(json.dumps(command))

    def is_over(self) -> bool:
        """Whether every rank of this round has answered or ended, or the time is over."""
        if not self._pair:
            return True
        if self._loop.clock() < self._until:
            return all(child.answer or child.sidecar is None for child in self._children)
        for child in self._children:
            if child.answer is None and child.sidecar is not None:
                child.failed = f"no end within {PAIR:g} s"
                os.kill(child.sidecar.pid, signal.SIGKILL)
        return True

    def state(self) -> _State:
        """What to report; ranks that have ended meanwhile are started again."""
        errors = [str(child.answer["error"]) for child in self._children if child.answer and "error" in child.answer]
        if self._pair:
            errors += [child.failed for child in self._children if child.answer is None and child.failed]
            gone = [child for child in self._children if child.answer is None]
            if gone:
                self._again(gone)
        failed = self._failed or next((child.failed for child in self._children if not child.ready), "")
        if not self._children and not failed:
            failed = "it takes no part in the distribution"
        if failed or not all(child.ready for child in self._children):
            return _State(failed=failed or f"torch wasn't ready within {START:g} s", error="; ".join(errors))
        ready = self._children[0].ready or {}
        state = _State(int(ready["port"]), len(self._children), "", str(ready["backend"]), error="; ".join(errors))
        answer = self._children[0].answer
        if not self._pair or not answer or errors:
            return state
        return state._replace(
            all_reduce=float(answer["all_reduce"]),
            broadcast=float(answer["broadcast"]),
            latency=float(answer["latency"]),
            waited=max(float((child.answer or {}).get("waited", 0.0)) for child in self._children),
        )

    def _again(self, gone: list[_Child]) -> None:
        """Starts ranks again that were killed or died in the last round, and waits until they are ready."""
        for child in gone:
            while child.sidecar is not None:
                self._loop.turn(1.0)
        self.start()
        while not self.is_ready():
            self._loop.turn()

    def _address(self, host: str) -> str:
        return next(seat.address for seat in self._roster.seats if seat.name == host)

    def close(self) -> None:
        self._sidecars.close(_ENDING)
        self._texts.close()


def _environment(plan: LaunchPlan, environ: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in environ.items() if name not in plan.unset}
    found.update((setting.name, setting.value) for setting in plan.environment if setting.ours is None)
    found.setdefault("OMP_NUM_THREADS", "1")
    return found
