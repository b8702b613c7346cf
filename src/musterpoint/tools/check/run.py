"""``muster check``: this host, or all hosts of the job, from the platform's settings to the findings.

Every host looks at itself, tells the leader, calls the others' ports and has its clock read; the leader makes the
findings of all that, and every host gets them.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from musterpoint import __version__
from musterpoint.base import probe, settings
from musterpoint.base.errors import RollCallError
from musterpoint.base.probe import Answer
from musterpoint.core.channel.peers import Peers
from musterpoint.core.job.read import read_job
from musterpoint.core.rollcall.roll_call import RollCall
from musterpoint.core.rollcall.roster import Offer, Participant, Roster
from musterpoint.core.runtime import Request, Runtime
from musterpoint.tools.check.fact_rules import host_findings
from musterpoint.tools.check.facts import Subject, subject_of
from musterpoint.tools.check.findings import Finding, finding, in_order
from musterpoint.tools.check.machine import System
from musterpoint.tools.check.steps import Checked, JointSteps, Steps

PROGRAM = "check"
"""Stands for the job's program, which isn't started: only the hosts of the job are needed."""
LOOPBACK = "127.0.0.1"


def check_hosts(request: Request, ports: tuple[int, ...] = (), system: System | None = None) -> Checked:
    """Checks this host, or all hosts of the job that the platform's settings or options name. ``ports``: more ports to
    call on every host.

    Raises:
        UsageError: options or the platform's settings are wrong.
        StoppedEarly: this host or another was told to stop.
        MusterError: the leader was lost.
    """
    runtime = Runtime(request)
    try:
        options = settings.from_environ(request.environ, request.given)
        job = read_job(request.environ, options, "", PROGRAM, ())
        if job.started is not None and job.started.local_rank:
            return Checked(job.hosts, (finding("looked-at", "ok", "", "by this host's entry point of local rank 0"),))
        subject = subject_of(job, options, request.environ, runtime.ask, ports, system)
        return _masked(_check(runtime, subject), runtime.masker.mask)
    finally:
        runtime.close()


def _masked(checked: Checked, mask: Callable[[str], str]) -> Checked:
    """Findings quote variables, such as a proxy's URL, of this host and of others."""

    def hidden(each: Finding) -> Finding:
        return each._replace(found=mask(each.found), expected=mask(each.expected), advice=mask(each.advice))

    return checked._replace(findings=tuple(map(hidden, checked.findings)))


def _check(runtime: Runtime, subject: Subject) -> Checked:
    for note in subject.job.notes:
        if note.level == "warning":
            runtime.console.say(f"warning: {note.text}")
    try:
        roster, peers = _call_the_roll(runtime, subject)
    except RollCallError as error:
        return _without_others(subject, error)
    joint = JointSteps(runtime.loop, peers, roster.me)

    def ask(words: Sequence[str], environ: Mapping[str, str], cwd: str, errors: bool) -> Answer:
        return probe.ask(words, environ, cwd, errors, runtime.loop, joint.check)

    subject = subject._replace(job=roster.settled(subject.job), ask=ask)
    runtime.signals.route_to(joint.on_signal)
    code = 1
    try:
        if len(roster.seats) > 1:
            checked = Steps(runtime.loop, subject, roster, joint).run()
        else:
            checked = _alone(subject, roster)
        code = 0
    finally:
        joint.close(code)
    return checked


def _alone(subject: Subject, roster: Roster) -> Checked:
    """This host only: the job has no other."""
    return Checked((roster.me,), in_order(host_findings(subject.facts(roster.me, roster.master_address))))


def _without_others(subject: Subject, error: RollCallError) -> Checked:
    """The roll call has failed: who isn't here by its table, and what this host finds on itself."""
    job, text = subject.job, str(error)
    rows = [line.split(None, 1) for line in text.splitlines()[1:]]
    missing = [row[0] for row in rows if len(row) == 2 and row[0] in job.hosts]
    details = dict(row for row in rows if len(row) == 2)
    expected = f"every host within {subject.options.rollcall_timeout:g} s"
    found = [finding("host-missing", "fail", host, details[host], expected) for host in missing]
    found = found or [finding("host-missing", "fail", "", text, expected)]
    return Checked(job.hosts, in_order([*found, *host_findings(subject.facts(job.own_name, LOOPBACK))]))


def _call_the_roll(runtime: Runtime, subject: Subject) -> tuple[Roster, Peers]:
    job = subject.job
    offer = Offer(job.name, "", subject.slots, __version__)
    participant = Participant.of(job, offer, subject.options)
    say, ports = runtime.console.say, runtime.ports
    call = RollCall(runtime.loop, participant, say, _record, ports, master_port=job.master_port)

    def on_signal(signo: int) -> None:
        if not call.stop(signo):
            runtime.signals.keep(signo)

    runtime.check_stop(job.own_name)
    runtime.signals.route_to(on_signal)
    return call.run()


def _record(_name: str, **_facts: Any) -> None:
    """A check leaves no timeline: the job that follows has its own."""
