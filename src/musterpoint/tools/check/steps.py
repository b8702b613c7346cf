"""The steps of a check that several hosts take together: facts, calls to ports, clocks, findings.

The leader decides at each step; the others do what it answers. Between hosts, named tuples are JSON by the types of
their fields (:func:`to_json`, :func:`from_json`), and what another host sends is checked.
"""

from __future__ import annotations

import json
import math
import time
from functools import partial
from typing import Any, Callable, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from musterpoint.base.errors import MusterError, StoppedEarly
from musterpoint.base.exit_codes import HOST_LOST
from musterpoint.base.loop import Loop
from musterpoint.base.untrusted import printable
from musterpoint.core.channel.names import Answer, Names
from musterpoint.core.channel.peers import AllDone, PeerEvent, PeerLost, Peers, Report, StopAll
from musterpoint.core.channel.topics import consultations
from musterpoint.core.processes.received_signals import STOPPING
from musterpoint.core.rollcall.roster import Roster
from musterpoint.tools.check.fact_rules import Clock, clock_of, grown_findings, host_findings, job_findings
from musterpoint.tools.check.facts import HostFacts, Links, Subject, survey_links
from musterpoint.tools.check.findings import Finding, finding, in_order
from musterpoint.tools.check.port_calls import Call, Calls, Endpoint, Listeners, called_by, ephemeral_ports
from musterpoint.tools.check.port_rules import port_findings

CLOCK_EXCHANGES = 4
LOOK = 90.0
"""Seconds in which every host looks at itself and at names: a resolver that drops its answers takes 10 s a name."""
CLOCK = 10.0
WHEN = "during the check"
STEP = 30.0
"""Seconds that the leader waits for the hosts at a step."""
_END = 5.0
_MOST_TEXT = 4096
_MOST_ITEMS = 65536
T = TypeVar("T")


class LeaderLost(MusterError):
    """The leader is gone, so nobody decides."""

    code = HOST_LOST


class JointSteps:
    """This host's part in the steps. ``lost``: hosts that were lost meanwhile, and why."""

    def __init__(self, loop: Loop, peers: Peers, me: str) -> None:
        self.lost: dict[str, str] = {}
        self._loop, self._peers, self._me = loop, peers, me
        self._stop: StoppedEarly | None = None
        self._done = False
        peers.listen(self._on_event)

    def on_signal(self, signo: int) -> None:
        """A signal came to this process; a stop ends the check on all hosts."""
        if signo in STOPPING:
            self._peers.stopping(signo)
            self._stop = self._stop or StoppedEarly(self._me, signo, WHEN)

    def _on_event(self, event: PeerEvent) -> None:
        if isinstance(event, PeerLost):
            self.lost[event.host] = event.why
        elif isinstance(event, StopAll):
            self._stop = self._stop or StoppedEarly(event.host, event.signal, WHEN)
        elif isinstance(event, AllDone):
            self._done = True

    def step(self, point: str, text: str, decide: Callable[[dict[str, Report]], str], seconds: float = STEP) -> str:
        """Reports ``text`` at ``point``; what the leader's ``decide`` made of all reports.

        Raises:
            LeaderLost: there will be no answer.
            StoppedEarly: this host or another was told to stop.
        """
        answers: list[consultations.Answer | None] = []
        errors: list[Exception] = []

        def decided(reports: dict[str, Report]) -> consultations.Answer:
            try:
                return consultations.Answer(point, decide(reports))
            except Exception as error:  # the channel would blame the host whose report came last
                errors.append(error)
                return consultations.Answer(point, "")

        self._peers.topic(consultations.TOPIC).consult(consultations.Ask(point, text), decided, answers.append, seconds)
        self.wait(lambda: bool(answers))
        if errors:
            raise errors[0]
        if answers[0] is None:
            why = "; ".join(f"{host}: {why}" for host, why in self.lost.items())
            raise LeaderLost(f"the leader was lost during the check ({why})")
        return answers[0].text

    def check(self) -> None:
        """Raises StoppedEarly where this host or another was told to stop."""
        if self._stop is not None:
            raise self._stop

    def wait(self, is_over: Callable[[], Any]) -> None:
        """Turns the loop until ``is_over``.

        Raises:
            StoppedEarly: this host or another was told to stop.
        """
        while not is_over():
            self.check()
            self._loop.turn()

    def close(self, code: int) -> None:
        """Tells the others that this host is done, and waits a little until all are."""
        self._peers.done(code)
        until = self._loop.clock() + _END
        while not self._done and (left := until - self._loop.clock()) > 0:
            self._loop.turn(left)
        self._peers.close()


class Checked(NamedTuple):
    """The outcome, the same on every host. ``findings``: the worst first."""

    hosts: tuple[str, ...]
    findings: tuple[Finding, ...]


class Told(NamedTuple):
    """A host's first report: its facts, and the ports at which it listens."""

    facts: HostFacts
    ports: tuple[int, ...] = ()


class _Calls(NamedTuple):
    """A host's report of its calls; of names: those whose address here isn't that of the roster, and the addresses of
    its own.
    """

    calls: tuple[Call, ...] = ()
    names: tuple[str, ...] = ()
    own: tuple[str, ...] = ()


class Steps:
    """One check of all hosts of ``roster``; :meth:`run` is it."""

    def __init__(self, loop: Loop, subject: Subject, roster: Roster, joint: JointSteps) -> None:
        self._loop, self._subject, self._roster, self._joint = loop, subject, roster, joint
        self._hosts = tuple(seat.name for seat in roster.seats)
        self._leader = roster.leader
        self._me = roster.me
        self._told: dict[str, Told] = {}
        self._calls: list[Call] = []
        self._names: dict[str, list[str]] = {}
        self._clocks: dict[str, list[tuple[float, float, float]]] = {}
        self._asked_at = 0.0
        self._found: list[Finding] = []

    def run(self) -> Checked:
        """Takes every step.

        Raises:
            LeaderLost: nobody decides any more.
            StoppedEarly: this host or another was told to stop.
        """
        agreed = self._agreed_ports()
        listeners = Listeners(self._loop, self._roster.session, (*agreed, *ephemeral_ports(self._subject.system.root)))
        try:
            facts = self._subject.facts(self._me, self._roster.master_address)
            book = self._step("facts", Told(facts, listeners.ports), self._hear_facts, LOOK)
            mine = self._call(json.loads(book))
            self._step("calls", mine, self._hear_calls)
        finally:
            listeners.close()
        for number in range(CLOCK_EXCHANGES):
            point = f"clock-{number}"
            self._joint.step(point, repr(self._subject.system.time()), self._hear_clock, CLOCK)
        now = survey_links(facts.links.toward, self._subject.system.root)
        verdict = json.loads(self._step("findings", now, self._decide))
        return Checked(self._hosts, tuple(map(Finding.from_wire, verdict)))

    def _step(self, point: str, value: Any, decide: Callable[[dict[str, Report]], str], seconds: float = 30.0) -> str:
        return self._joint.step(point, json.dumps(to_json(value)), decide, seconds)

    def _agreed_ports(self) -> dict[int, str]:
        """The ports that every host is called at, and what they are for."""
        ports = {self._roster.master_port: "the master port"}
        return {**ports, **dict.fromkeys(self._subject.ports, "asked for")}

    # what the leader makes of the reports

    def _hear_facts(self, reports: dict[str, Report]) -> str:
        for host, report in reports.items():
            try:
                told = from_json(Told, json.loads(report.said.text))
            except ValueError as error:
                why = f"its facts can't be read: {error}"
                self._found.append(finding("host-silent", "fail", host, why, "its facts"))
                continue
            self._told[host] = told._replace(facts=told.facts._replace(host=host))
        return json.dumps({host: told.ports for host, told in self._told.items()})

    def _hear_calls(self, reports: dict[str, Report]) -> str:
        for host, report in reports.items():
            try:
                heard = from_json(_Calls, json.loads(report.said.text))
            except ValueError:
                continue
            self._calls += [call._replace(caller=host) for call in heard.calls if call.called in self._hosts]
            if host in self._told:
                facts = self._told[host].facts
                facts = facts._replace(own_addresses=heard.own, name_looked_up=self._subject.named)
                self._told[host] = self._told[host]._replace(facts=facts)
            for name in heard.names:
                if name in self._hosts:
                    self._names.setdefault(name, []).append(host)
        self._asked_at = time.time()
        return ""

    def _hear_clock(self, reports: dict[str, Report]) -> str:
        """Each host has reported its clock as soon as it had our last answer."""
        for host, report in reports.items():
            try:
                there = float(report.said.text)
            except ValueError:
                continue
            if host != self._me and there == there:
                self._clocks.setdefault(host, []).append((self._asked_at, there, report.at))
        self._asked_at = time.time()
        return ""

    def _decide(self, reports: dict[str, Report]) -> str:
        facts = [self._told[host].facts for host in self._hosts if host in self._told]
        found = [*self._found, *self._absent(reports)]
        for each in facts:
            found += host_findings(each)
            if each.host in reports:
                found += grown_findings(each.host, each.links, _links(reports[each.host]))
        clocks = [clock for host, each in self._clocks.items() if (clock := clock_of(host, each)) is not None]
        found += job_findings(facts, (Clock(self._me, 0.0, 0.0), *clocks) if clocks else ())
        found += port_findings(self._calls, self._leader, self._agreed_ports(), self._hosts)
        for name, others in self._names.items():
            where = f"{', '.join(others[:8])} find it at another address than the one that reached it"
            found.append(finding("name-differs", "warn", name, where, "one address on all hosts"))
        return json.dumps(in_order(found))

    def _absent(self, reports: dict[str, Report]) -> list[Finding]:
        """Hosts that joined and then gave no facts, or didn't come to the last step."""
        found = []
        said = {each.host for each in self._found if each.code == "host-silent"}
        for host in self._hosts:
            if host in said or (host in self._told and host in reports):
                continue
            why = "nothing came from it in time" if host in self._told else f"nothing came from it within {LOOK:g} s"
            found.append(finding("host-silent", "fail", host, self._joint.lost.get(host, why), "an answer"))
        return found

    # what every host does

    def _call(self, ports: dict[str, list[int]]) -> _Calls:
        place = self._hosts.index(self._me)
        called = [self._roster.seats[other] for other in called_by(place, len(self._hosts))]
        endpoints = [
            Endpoint(seat.name, seat.address, port, place)
            for seat in called
            for place, port in enumerate(ports.get(seat.name, ()))
        ]
        calls = Calls(self._loop, self._me, self._roster.session, endpoints)
        # names are looked up meanwhile, which may take as long as the resolver
        found: dict[str, tuple[str, ...]] = {}
        looked_up = (*called, self._roster.seat) if self._subject.named else ()
        wanted = {seat.name: seat.address for seat in looked_up if seat.name != seat.address}
        resolver = Names(self._loop, {})

        def answered(name: str, answer: Answer) -> None:
            found[name] = answer.addresses

        for name in wanted:
            resolver.look_up_both(name, partial(answered, name))
        until = self._loop.clock() + LOOK / 3
        self._loop.call_at(until, lambda: None)
        self._joint.wait(
            lambda: calls.done is not None and (found.keys() >= wanted.keys() or self._loop.clock() >= until)
        )
        own = found.pop(self._me, ())
        if self._subject.named and self._me not in wanted:  # its name is an address
            own = (self._me,)
        differing = [name for name, addresses in found.items() if addresses and wanted[name] not in addresses]
        return _Calls(calls.done or (), tuple(differing), own)


def _links(report: Report) -> Links:
    try:
        return from_json(Links, json.loads(report.said.text))
    except ValueError:
        return Links()


def to_json(value: Any) -> Any:
    """``value`` as JSON has it: named tuples become objects."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: to_json(getattr(value, name)) for name in value._fields}
    if isinstance(value, (tuple, list)):
        return [to_json(each) for each in value]
    return value


def from_json(kind: type[T], value: Any) -> T:
    """Decoded JSON as a named tuple ``kind``. Missing fields get their defaults; unknown ones are left out.

    Raises:
        ValueError: a field is missing that has no default, or has another type.
    """
    built: T = _value(kind, value, kind.__name__)
    return built


def _value(kind: Any, value: Any, what: str) -> Any:
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind is int and type(value) is int and abs(value) < 2**63:
        return value
    if kind is bool and type(value) is bool:
        return value
    if kind is str and type(value) is str:
        return printable(value, _MOST_TEXT)
    if get_origin(kind) is Literal and type(value) is str and value in get_args(kind):
        return value
    if get_origin(kind) is tuple and isinstance(value, list) and len(value) <= _MOST_ITEMS:
        each, *_ = get_args(kind)
        return tuple(_value(each, one, what) for one in value)
    if hasattr(kind, "_fields") and isinstance(value, dict):
        hints = get_type_hints(kind)
        given = {name: _value(hints[name], value[name], f"{what}.{name}") for name in kind._fields if name in value}
        try:
            return kind(**given)
        except TypeError:
            raise ValueError(f"{what} lacks a field") from None
    raise ValueError(f"{what} is {printable(repr(value), 80)}")
