"""Between two attempts of a job: waits until all hosts have ended the last one, and hears from the leader what follows.

The leader decides once for all hosts (:mod:`musterpoint.core.supervise.restart_rules`). The channel stays open
meanwhile.
"""

from __future__ import annotations

import os
import signal
import stat
import time
from typing import Callable, Iterable, Mapping

from musterpoint.base import exit_codes
from musterpoint.base.failure import Failure, lost_host
from musterpoint.base.loop import Loop, Timer
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.peers import PeerBack, PeerEvent, Peers, PeerSilent, StopAll
from musterpoint.core.channel.topics import attempts
from musterpoint.core.channel.topics.attempts import AllReady, NextAttempt, NoRestart, Progress, Ready, SeatChange
from musterpoint.core.processes.received_signals import STOPPING
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.supervise.restart_rules import (
    End,
    EndedAttempt,
    Restart,
    RestartRules,
    Wait,
    attempts_sentence,
    decide_restart,
)
from musterpoint.core.supervise.state import Outcome, first_line
from musterpoint.core.supervise.supervisor import Supervisor

DRAIN_SECONDS = 60.0
"""How long killed processes may take to leave the kernel; one that is stuck there holds its device."""
READY_SECONDS = 180.0
"""What the leader waits for hosts that are connected and don't say that they are ready."""
STOP_SECONDS = 15.0
"""What a stopped host waits for the leader's word: who is silent for as long is silent indeed."""
MOST_ENTRIES = 20_000
_MOST_SECONDS = 2.0
"""A directory that is larger, or slower to read, says nothing: the channel's beats have to go on."""

Fingerprint = frozenset[tuple[str, int, int]]


class Between(NamedTuple):
    """What is needed between two attempts.

    ``route_signals`` sends this process's signals to a function. ``free_ports`` are this host's for servers of the
    launcher's framework; ``master_port`` gives another one than the last, on the leader. ``checkpoints`` gives the
    files that are where checkpoints go. ``stop_code`` is the exit code of a stopped job.
    """

    loop: Loop
    say: Callable[[str], None]
    record: Callable[..., None]
    route_signals: Callable[[Callable[[int], None]], None]
    free_ports: Callable[[], tuple[int, ...]]
    master_port: Callable[[int], int]
    checkpoints: Callable[[], Fingerprint | None]
    stop_code: int


class Restarts:
    """The attempts of a job on this host. ``rules`` count on the leader; the others do as it says.

    ``answer``: what the leader said of the attempt that is over.
    """

    def __init__(self, between: Between, peers: Peers, roster: Roster, rules: RestartRules) -> None:
        self._between, self._peers, self._roster, self._rules = between, peers, roster, rules
        self._loop = between.loop
        self._lasted: float | None = None
        self._stopped: tuple[str, int] | None = None
        self._stopped_at: float | None = None
        self.answer: NextAttempt | NoRestart | None = None
        self._all: AllReady | None = None
        self._decided = False
        self._ended: EndedAttempt
        self._supervisor: Supervisor
        self._timers: list[Timer] = []
        self._waits: tuple[str, ...] = ()
        self._time_is_over = False
        self.begin()

    def begin(self) -> None:
        """An attempt begins."""
        self._before = self._between.checkpoints()
        self._began = self._loop.clock()

    def after(self, supervisor: Supervisor, outcome: Outcome) -> Roster | Outcome:
        """What follows an attempt: the roster of the next one, or how the job ends.

        Returns when nothing of the attempt is left on any host, or when there is no other attempt.
        """
        if outcome.failure is not None:
            self.ask(supervisor, outcome.failure)
            while self.answer is None:
                self._loop.turn()
        return self.follow(outcome)

    def ask(self, supervisor: Supervisor, failure: Failure) -> None:
        """Ends what is left of an attempt here, and says that this host is ready; :attr:`answer` comes in the loop."""
        self._prepare(supervisor, failure)
        left = supervisor.drain(DRAIN_SECONDS)
        found = progress(self._before, self._between.checkpoints())
        self._between.record(
            "attempt-over",
            attempt=self._ended.number,
            host=failure.host,
            rank=failure.rank,
            code=failure.code,
            reason=first_line(failure),
            seconds=round(self._ended.seconds, 3),
            progress=found,
            left=left,
        )
        self._between.route_signals(self._on_signal)
        self._peers.listen(self._on_event)
        if supervisor.first_stop is not None:
            self._stop(*supervisor.first_stop)
        self._timers.append(self._loop.call_later(READY_SECONDS, self._nobody_else_is_ready))
        self._peers.topic(attempts.TOPIC).ready(Ready(found, self._between.free_ports(), left))

    def follow(self, outcome: Outcome) -> Roster | Outcome:
        """What follows from the answer; an attempt that ended well asks for none."""
        if self.answer is None:
            return outcome._replace(attempts=self._roster.attempt + 1)
        for timer in self._timers:
            timer.cancel()
        answer, self.answer = self.answer, None
        return self._result(answer, outcome)

    def _prepare(self, supervisor: Supervisor, failure: Failure) -> None:
        seconds = self._loop.clock() - self._began
        self._ended = EndedAttempt(self._roster.attempt, seconds, self._lasted, failure)
        self._lasted = seconds
        self._supervisor = supervisor
        self.answer = self._all = None
        self._decided = False
        self._timers, self._waits, self._time_is_over = [], (), False

    def _result(self, answer: NextAttempt | NoRestart, outcome: Outcome) -> Roster | Outcome:
        attempts = self._roster.attempt + 1
        if isinstance(answer, NextAttempt) and self._stopped is None:
            self._roster = self._roster.next(answer)
            self._between.record("restart", attempt=answer.number, master_port=answer.master_port)
            most = self._roster.max_restarts
            assert outcome.failure is not None
            self._between.say(f"restart {answer.number} of at most {most}, on all hosts: {first_line(outcome.failure)}")
            self.begin()
            return self._roster
        end = answer if isinstance(answer, NoRestart) else NoRestart(None)
        if end.why and not (attempts == 1 and outcome.failure is not None and outcome.failure.cause == "muster"):
            self._between.say(f"no restart: {end.why}")
        stopped = (end.stopped_by, end.signal) if end.stopped_by else self._stopped
        if stopped is not None and end.failure is None:
            code = exit_codes.of_job(0, stopped[1], self._between.stop_code)
            at = self._stopped_at if self._stopped_at is not None else outcome.stopped_at
            return Outcome(code, None, stopped[0], stopped_at=at, attempts=attempts, cut_off=outcome.cut_off)
        failure = end.failure or outcome.failure
        assert failure is not None
        sentence = attempts_sentence(attempts, end.why)
        return outcome._replace(failure=failure, code=failure.code, attempts=attempts, no_restart=sentence)

    # what happens meanwhile

    def _on_signal(self, signo: int) -> None:
        if signo == signal.SIGCHLD:
            self._supervisor.reap()
        elif signo in STOPPING:
            self._stop(self._roster.me, signal.SIGINT if signo == signal.SIGINT else signal.SIGTERM)

    def _stop(self, host: str, signo: int) -> None:
        if self._stopped is not None:
            return
        self._stopped, self._stopped_at = (host, signo), self._loop.clock()
        self._ended = self._ended._replace(stopped=True)
        if host == self._roster.me:
            self._peers.stopping(signo)
        if host == self._roster.me and not self._leads:
            self._timers.append(self._loop.call_later(STOP_SECONDS, self._stop_alone))
        self._decide()

    def _stop_alone(self) -> None:
        self.answer = self.answer or NoRestart(None, "the job was told to stop, and the leader doesn't answer")

    def _on_event(self, event: PeerEvent) -> None:
        if isinstance(event, (NextAttempt, NoRestart)):
            self.answer = event
            self._peers.hold()
        elif isinstance(event, StopAll):
            self._stop(event.host, event.signal)
        elif isinstance(event, AllReady):
            me = self._roster.me
            self._all = event._replace(hosts={name or me: ready for name, ready in event.hosts.items()})
            self._decide()
        elif isinstance(event, PeerSilent):
            self._between.say(f"no word from {event.host} for {event.seconds:.0f} s; waiting for it to come back")
        elif isinstance(event, PeerBack):
            self._between.say(f"{event.host} is back")

    # what the leader decides

    @property
    def _leads(self) -> bool:
        return self._roster.me == self._roster.leader

    def _decide(self) -> None:
        """Once all are ready; a stop waits for nobody, as nothing begins after it."""
        if self._decided or (self._all is None and not (self._leads and self._stopped)):
            return
        hosts, gone, left = self._all or AllReady({})
        decision = decide_restart(self._rules, self._ended, hosts, gone, left)
        if isinstance(decision, Wait):
            self._wait(decision.hosts)
        elif isinstance(decision, Restart):
            self._decided = self._restart(hosts)
        else:
            self._end(decision)

    def _restart(self, hosts: Mapping[str, Ready]) -> bool:
        port = self._between.master_port(self._roster.master_port)
        before = {seat.name: (seat.address, seat.ports) for seat in self._roster.seats}
        seats = [
            SeatChange(seat.name, hosts[seat.name].address or seat.address, hosts[seat.name].ports)
            for seat in self._roster.seats
            if seat.name in hosts
        ]
        seats = [each for each in seats if (each.address, each.ports) != before[each.host]]
        return self._peers.topic(attempts.TOPIC).restart(NextAttempt(self._roster.attempt + 1, port, tuple(seats)))

    def _end(self, decision: End) -> None:
        stopped = self._stopped if decision.stopped else None
        failure = None if stopped is not None else self._ended.failure
        self._say_no(NoRestart(failure, decision.why, *(stopped or ())))

    def _say_no(self, end: NoRestart) -> None:
        self._decided = True
        self._peers.topic(attempts.TOPIC).end_attempts(end)

    def _wait(self, hosts: tuple[str, ...]) -> None:
        """Hosts are lost: they may come back within the time for it."""
        seconds = self._rules.rejoin_timeout
        if hosts != self._waits and not self._time_is_over and seconds:
            names = " and ".join(hosts)
            self._between.say(f"waiting up to {seconds:g} s for {names} to come back (--rejoin-timeout)")
        if not self._waits:
            self._timers.append(self._loop.call_later(seconds, self._nobody_came))
        self._waits = hosts

    def _nobody_came(self) -> None:
        self._time_is_over = True
        if self._decided or self._all is None or not self._all.gone:
            return
        name, seconds = self._all.gone[0], self._rules.rejoin_timeout
        failure = self._ended.failure
        if failure.cause != "host" or failure.host not in self._all.gone:
            failure = lost_host(name, "it was lost while the job was to be started again", at=time.time())
        within = f" within {seconds:g} s (--rejoin-timeout)" if seconds else ""
        self._say_no(NoRestart(failure, f"{name} is lost and did not come back{within}"))

    def _nobody_else_is_ready(self) -> None:
        if self._all is None and not self._decided and self._leads:
            why = f"not every host ended the attempt within {READY_SECONDS:.0f} s"
            self._say_no(NoRestart(self._ended.failure, why))


def fingerprint(directories: Iterable[str]) -> Fingerprint | None:
    """The files there: path, size and time of the last change (ns). None: they are too many, or take too long."""
    found: set[tuple[str, int, int]] = set()
    until = time.monotonic() + _MOST_SECONDS
    for directory in filter(None, directories):
        for folder, folders, names in os.walk(directory):
            if len(found) + len(names) + len(folders) > MOST_ENTRIES or time.monotonic() > until:
                return None
            found.update(filter(None, (_row(os.path.join(folder, name)) for name in names)))
    return frozenset(found)


def _row(path: str) -> tuple[str, int, int] | None:
    try:
        facts = os.lstat(path)
    except OSError:
        return None
    return None if stat.S_ISDIR(facts.st_mode) else (path, facts.st_size, facts.st_mtime_ns)


def progress(before: Fingerprint | None, after: Fingerprint | None) -> Progress:
    """What became of the directories: a new or changed file is progress, one that is gone isn't.

    Unknown where nothing is there: the job may keep its checkpoints elsewhere.
    """
    if before is None or not after:
        return "unknown"
    return "made" if after - before else "none"
