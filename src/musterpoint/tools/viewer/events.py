"""What each event of ``timeline.json`` means, in a sentence with the event's own facts.

A sentence names facts in braces. ``{job}`` is the job, or the attempt that it is about; ``{hosts:hosts}`` is a number
of hosts, with the word. Attempts count from 0 in ``timeline.json``, and from 1 in sentences.
:func:`placed` gives each of a job's events, which are on one clock, the attempt that it belongs to.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Literal, Mapping, NamedTuple, Sequence

from musterpoint.base.exit_codes import signal_name

Kind = Literal["step", "network", "process", "failure", "stop", "end", "note"]
"""What an event belongs to; the page gives each kind a colour."""
_MOST_ATTEMPTS = 1_000_000
"""A larger number in a timeline is no attempt's."""


class Meaning(NamedTuple):
    """``text``: a sentence with facts in braces. ``main``: in the table also without ``--all``."""

    kind: Kind
    text: str
    main: bool = True


EVENTS: dict[str, Meaning] = {
    "phase": Meaning("step", "the job is {status}"),
    "entry-point-started": Meaning("step", "the entry point started, musterpoint {version}"),
    "code-fetched": Meaning("step", "the code was fetched from {source} in {seconds} s"),
    "installing": Meaning("step", "{installer} began to install {what}", False),
    "installed": Meaning("step", "{installer} installed {what} in {seconds} s"),
    "host-prepared": Meaning("step", "this host was ready to meet the others"),
    "rollcall-started": Meaning("step", "the roll call of {hosts:hosts} began, at {leader}"),
    "rollcall-done": Meaning("step", "the roll call was complete after {seconds} s"),
    "rollcall-failed": Meaning("failure", "the roll call failed: {reason}"),
    "name-resolved": Meaning("network", "the name {of} was found at {address}, try {tries}", False),
    "host-excused": Meaning("step", "this host started nothing: {why}"),
    "hosts-met": Meaning("note", "all hosts were of one start, {start}", False),
    "host-here": Meaning("network", "{of} was here, from {address}"),
    "seated": Meaning("network", "the leader {leader} gave this host its seat"),
    "hello-refused": Meaning("network", "{of} at {address} was refused: {reason}"),
    "caller-refused": Meaning("network", "a caller from {address} was refused: {reason}"),
    "connection-ended": Meaning("network", "the connection to {of} ended: {why}"),
    "session-resumed": Meaning("network", "{of} was connected again, from {address}"),
    "asked-for-a-sign": Meaning("network", "{of} was asked whether it lives", False),
    "protocol-broken": Meaning("network", "{address} {why}"),
    "internal-error": Meaning("failure", "an internal error: {error}"),
    "host-silent": Meaning("network", "{of} was silent for {seconds} s"),
    "host-back": Meaning("network", "{of} was back"),
    "host-lost": Meaning("failure", "{of} was lost: {why}"),
    "peer-lost": Meaning("failure", "{of} was given up: {why}", False),
    "rank-started": Meaning("process", "rank {rank} started, pid {pid}"),
    "program-ready": Meaning("step", "the program of {role} here was ready"),
    "role-ready": Meaning("step", "heard that {role} was ready", False),
    "launcher-started": Meaning("process", "{name} started, pid {pid}"),
    "service-started": Meaning("process", "{name} started, pid {pid}"),
    "rank-registered": Meaning("process", "rank {rank} of {world_size} was started by the launcher", False),
    "ranks-never-started": Meaning("failure", "{ranks:ranks} were awaited here, and nobody started them"),
    "rank-overdue": Meaning("failure", "rank {rank} hasn't ended since it raised, so it ends the job"),
    "rank-raised": Meaning("failure", "rank {rank} told of the exception that ends it"),
    "service-raised": Meaning("failure", "{name} told of the exception that ends it"),
    "rank-left": Meaning("process", "rank {rank} left its MPI without MPI_Finalize", False),
    "exception-hidden": Meaning("failure", "rank {rank} ended with 0, though a Python in it ended with {error}"),
    "left-cut-off": Meaning("failure", "the program's end cut off what it had left running: {programs}"),
    "worlds-apart": Meaning("failure", "{launcher} made worlds of {size} of its own, not the job's of {world}"),
    "rank-late": Meaning("failure", "rank {rank} was not in the call that others waited in: {where}"),
    "rank-ended-unseen": Meaning("failure", "rank {rank} ended with {status} before its program was started"),
    "stub-lost": Meaning("process", "what stood for rank {rank} was gone"),
    "entry-point-lost": Meaning("failure", "the entry point of rank {rank} was gone"),
    "launcher-signal": Meaning("process", "the launcher sent {signal} to rank {rank}, which was kept from it"),
    "daemon-asked": Meaning("process", "mpirun asked for its daemon on {of}", False),
    "ssh-session": Meaning("process", "{name} began: {command}"),
    "launch-began": Meaning("process", "launch {launch} began in the program of rank {rank}"),
    "launch-ended": Meaning("end", "a launch in the program ended with code {code}"),
    "ranks-met": Meaning("process", "the ranks had met at the master port {port} by now"),
    "rank-ended": Meaning("end", "rank {rank} ended with {status}"),
    "launcher-ended": Meaning("end", "{name} ended with {status}"),
    "service-ended": Meaning("end", "{name} ended with {status}"),
    "failure-seen": Meaning("failure", "a failure here, code {code}"),
    "job-failed": Meaning("stop", "heard that {job} failed on {of}, code {code}"),
    "root-cause-due": Meaning("failure", "waited no longer for another host's failure", False),
    "stalled": Meaning("failure", "the job stood still: {reason}"),
    "stop-asked": Meaning("stop", "was told to stop by {signal}"),
    "job-stopped": Meaning("stop", "heard that {of} was told to stop by {signal}"),
    "ranks-signalled": Meaning("stop", "sent {signal} to {ranks} of its ranks"),
    "service-signalled": Meaning("stop", "sent {signal} to {name}"),
    "stop-grace-over": Meaning("stop", "the time to end was over"),
    "processes-killed": Meaning("stop", "killed {processes:processes}"),
    "outputs-synced": Meaning("step", "outputs were written to S3 in {seconds} s", False),
    "longest-silence": Meaning("note", "nothing was written for {seconds} s"),
    "group-ended": Meaning("end", "the ranks of all hosts of the group {group} had ended", False),
    "waiting-for-hosts": Meaning("note", "was done, and waited for {hosts}"),
    "all-hosts-done": Meaning("end", "every host was done"),
    "leave-due": Meaning("end", "waited no longer for the other hosts"),
    "job-ended": Meaning("end", "{job} ended here with code {code}"),
    "attempt-over": Meaning("end", "attempt {attempt} was over after {seconds} s with code {code}"),
    "restart": Meaning("step", "attempt {attempt} began, with master port {master_port}"),
    "host-called-again": Meaning("note", "{of} called again, from {address}"),
    "host-rejoined": Meaning("note", "{of} has its seat back, from the next attempt on"),
    "host-ended": Meaning("end", "{of} ended with code {code}"),
    "checkpoint-uploaded": Meaning("step", "the checkpoint {name} went up in {seconds} s, {bytes} bytes", False),
    "checkpoint-kept": Meaning("step", "the checkpoint {name} is whole at its place, {bytes} bytes", False),
    "checkpoints-over": Meaning("step", "the last checkpoint was finished in {seconds} s"),
}
_UNKNOWN = Meaning("note", "")


def meaning_of(event: str) -> Meaning:
    """The row of ``event``; one without a sentence where this version doesn't know it."""
    return EVENTS.get(event, _UNKNOWN)


def sentence(event: str, facts: Mapping[str, Any], attempt: int = 1, attempts: int = 1) -> str:
    """``event`` in words. Facts that it lacks are ``?``; an event of another version is its name and facts.

    ``attempt``: in which of the job's ``attempts`` it happened, from 1.
    """
    text = meaning_of(event).text
    if not text:
        return event + "".join(f", {name} {value}" for name, value in facts.items())
    words = _Facts((name, Word(_word(name, value, attempts))) for name, value in facts.items())
    words["job"] = Word("the job" if attempt == attempts else numbered(attempt, attempts))
    return text.format_map(words)


def numbered(attempt: int, attempts: int) -> str:
    """``attempt 2 of 3``."""
    return f"attempt {attempt} of {attempts}"


class Word(str):
    """A fact as a word; a number of things has them behind it: ``{hosts:hosts}`` is ``1 host`` or ``2 hosts``."""

    def __format__(self, things: str) -> str:
        return f"{self} {_ONE.get(things, things) if self == '1' else things}" if things else str(self)


_ONE = {"hosts": "host", "ranks": "rank", "processes": "process"}


class _Facts(dict[str, Word]):
    def __missing__(self, name: str) -> Word:
        return Word("?")


def _word(name: str, value: Any, attempts: int) -> str:
    if name == "attempt" and isinstance(value, int):
        return f"{value + 1} of {attempts}" if attempts > value else str(value + 1)
    if name == "status" and isinstance(value, int):
        return f"exit code {value}" if value >= 0 else signal_name(-value)
    if name == "status" and value is None:
        return "nobody knows what"
    if name == "signal" and isinstance(value, int):
        return signal_name(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


class Event(NamedTuple):
    """One event. ``at``: seconds since the job began. ``facts``: what it tells beside its name."""

    at: float
    host: str
    event: str
    facts: Mapping[str, Any]


class Moment(NamedTuple):
    """An :class:`Event` that has its place. ``attempt``: in which attempt it happened, from 1. ``text``: a sentence."""

    at: float
    host: str
    event: str
    facts: Mapping[str, Any]
    attempt: int
    text: str


def placed(events: Sequence[Event]) -> tuple[Moment, ...]:
    """``events``, oldest first, each with its attempt.

    A host says itself when an attempt begins there. One that doesn't, such as a host that took a lost one's place, or
    the control plane, is in the attempt that has begun elsewhere.
    """
    begins = _begins(events)
    attempts = max((number for own in begins.values() for _, number in own), default=1)
    everywhere = begins.get("", [])
    found = []
    for event in events:
        own = begins.get(event.host, everywhere) if event.host else everywhere
        before = bisect_right(own, event.at, key=lambda begin: begin[0])
        attempt = own[before - 1][1] if before else 1
        found.append(Moment(*event, attempt, sentence(event.event, event.facts, attempt, attempts)))
    return tuple(found)


def _begins(events: Sequence[Event]) -> dict[str, list[tuple[float, int]]]:
    """When which attempt began, for each host that says so; and for the others, by the name of no host."""
    own: dict[str, dict[int, float]] = {}
    everywhere: dict[int, float] = {}
    for event in events:
        if event.event != "restart" or not event.host:
            continue
        here = own.setdefault(event.host, {})
        told = event.facts.get("attempt")
        number = max(here, default=1) + 1
        if isinstance(told, int) and number <= told + 1 < _MOST_ATTEMPTS:
            number = told + 1
        here[number] = event.at
        everywhere.setdefault(number, event.at)
    return {"": _ascending(everywhere), **{host: _ascending({**everywhere, **here}) for host, here in own.items()}}


def _ascending(begins: Mapping[int, float]) -> list[tuple[float, int]]:
    """In the order of time; a number never falls."""
    found: list[tuple[float, int]] = []
    for at, number in sorted((at, number) for number, at in begins.items()):
        found.append((at, max(number, found[-1][1] if found else 1)))
    return found
