"""The leader's end of the channel: gets every host's reports, finds the root cause and sends it to all hosts."""

from __future__ import annotations

from typing import Any, Callable, Collection, cast

from musterpoint.base import exit_codes
from musterpoint.base.failure import NO_FAILURES, Failure, Secondary, after_others, lost_host
from musterpoint.base.loop import Timer
from musterpoint.base.untrusted import printable
from musterpoint.core.channel import codec, wire
from musterpoint.core.channel.clocks import ClockDifference
from musterpoint.core.channel.connection_log import Sampler
from musterpoint.core.channel.link import Context, Link
from musterpoint.core.channel.other_hosts import HostEvents, JobHosts, Newcomers, OtherHosts
from musterpoint.core.channel.peers import (
    AllDone,
    EventQueue,
    JobFailed,
    PeerBack,
    PeerEvent,
    PeerLost,
    PeerSilent,
    StopAll,
)
from musterpoint.core.channel.root_cause import Announce, AskRaised, Decision, RootCauseFinder, loss_by_silence
from musterpoint.core.channel.session import OVER, UP, Action, Back, HostState, Lost, Silent
from musterpoint.core.channel.topic import Api, Topic, World, world_of
from musterpoint.core.channel.topic_table import FROM_WORKERS, TOPICS
from musterpoint.core.channel.topics import attempts, ended_groups, raised_ranks
from musterpoint.core.channel.topics.attempts import LeadersAttempts, NextAttempt, NoRestart, Ready
from musterpoint.core.channel.topics.ended_groups import LeadersEndedGroups
from musterpoint.core.channel.topics.raised_ranks import LeadersRaised

_MOST_FAILURES = 4096
_MOST_COUNTED = 65536  # as many ranks as a host may have


class LeaderChannel(EventQueue):
    """``goes_on``: a failure doesn't end the job. ``close_listener`` closes the port where hosts reconnect."""

    def __init__(self, context: Context, hosts: JobHosts, goes_on: bool, close_listener: Callable[[], None]) -> None:
        super().__init__(context.loop)
        self._timeouts = context.timeouts
        self._wall = context.wall
        self._own_clock = ClockDifference.none()
        self._record = context.log.record
        self.me = hosts.me
        self._hosts = hosts
        self._newcomers = Newcomers(hosts.me)
        events = HostEvents(self._heard, self._act, self._message, self._cut)
        self._members = OtherHosts(context, hosts.others, self._newcomers, events)
        self._ranks = hosts.ranks
        self._goes_on = goes_on
        self._close_listener = close_listener
        self._returns = Sampler()
        self._stopped = False
        self._due: Timer | None = None
        self._begin()
        self._halves: dict[str, Any] = {topic.name: topic.leader(self) for topic in TOPICS}
        self._loop.call_later(0, self._members.beat)  # compares clocks before anything can fail

    def _begin(self) -> None:
        """What is known of one attempt; before the first, and again before each later one."""
        hold, patience, order = self._timeouts.hold, self._timeouts.patience, self._timeouts.order
        self._causes = RootCauseFinder(hold, patience, self._hosts.opaque, order)
        self._lost: set[str] = set()
        self._losses: dict[str, Failure] = {}
        self._code: int | None = None
        self._failures = Secondary()
        self._all_done = self._through = False
        self._asked = False
        self._unanswered: set[str] = set()
        self._goodbyes: set[str] = set()
        self._late_stop = False
        self._unfinished: list[HostState] | None = None
        if self._due is not None:
            self._due.cancel()
            self._due = None

    # what this host reports

    def failed(self, failure: Failure) -> None:
        if self._through and not self._goes_on:  # who keeps a failure back tells it late
            return
        if failure.is_symptom and not self._asked:
            self._asked = True
            self._unanswered = set(self._members.by_name)
            self._members.beat()
        member = self._members.by_name.get(failure.host)
        clock = self._own_clock if member is None else member.clock
        age = clock.age(failure.at, self._wall())
        self._decide(self._causes.failed(failure, self._loop.clock(), age))

    def stopping(self, signal: int) -> None:
        self._stop(self.me, signal)

    def done(self, code: int, failures: Secondary = NO_FAILURES) -> None:
        self._code = code
        self._count(self.me, failures)

    def close(self) -> None:
        self._stop_listening()
        if self._all_done:
            self._members.wait_until_heard(self._timeouts.flush if self._stopped else self._timeouts.confirm)
        self._members.stop_watching()
        if self._due is not None:
            self._due.cancel()
        self._newcomers.leave()
        self._members.say_goodbye()
        self._close_listener()
        self._members.close()

    # hosts that were started anew

    def follow_restarts(self, roster_of: Callable[[NextAttempt], bytes]) -> None:
        """``roster_of`` gives the packed roster of an attempt, for the hosts that join in it."""
        self._newcomers.roster_of = roster_of

    def rejoined(self, member: HostState, ready: Ready) -> None:
        """``member`` has the seat of a host that was lost. It gets its roster with the next attempt."""
        member.done(exit_codes.HOST_LOST)  # of this attempt it has no part
        self._members.replace(member)
        self._goodbyes.discard(member.name)
        self._record("host-rejoined", host=member.name)
        self.emit(PeerBack(member.name))
        cast(LeadersAttempts, self.topic(attempts.TOPIC)).is_ready(member.name, ready)

    def awaits_roster(self, host: str) -> bool:
        """Whether ``host`` has a seat from the next attempt on."""
        return host in self._newcomers

    # what topics have of it

    def topic(self, topic: Topic[Api]) -> Api:
        half: Api = self._halves[topic.name]
        return half

    @property
    def others(self) -> Collection[str]:
        return self._members.by_name.keys()

    @property
    def group(self) -> frozenset[str]:
        return self._hosts.group

    @property
    def worlds(self) -> tuple[World, ...]:
        return self._hosts.worlds or (World("", self._hosts.group),)

    @property
    def away(self) -> frozenset[str]:
        return frozenset(member.name for member in self._members if member.session.state == OVER)

    def is_away(self, host: str) -> bool:
        return host != self.me and self._members[host].session.state == OVER

    @property
    def goodbyes(self) -> frozenset[str]:
        return frozenset(self._goodbyes)

    def is_done(self, host: str) -> bool:
        return (self._code if host == self.me else self._members[host].code) is not None

    def wall(self) -> float:
        return self._wall()

    def check(self, message: Any) -> None:
        codec.check_bounds(message, wire.LEADER_LIMIT)

    def broadcast(self, message: Any) -> None:
        self._members.broadcast(codec.pack(message))

    def send(self, host: str, message: Any) -> None:
        member = self._members[host]
        if member.session.state != OVER:
            member.post(codec.pack(message))

    def begin_attempt(self, attempt: NextAttempt) -> bool:
        if self._stopped or self._late_stop:
            return False
        self._begin()
        for half in self._halves.values():
            half.begin()
        self.broadcast(attempt)
        for member in self._members:
            member.begin()
        self._newcomers.join(attempt)
        return True

    def tell_end(self, end: NoRestart) -> None:
        self.broadcast(end)
        self._newcomers.dismiss(end)

    # what the others report

    def _heard(self, member: HostState) -> None:
        self._unanswered.discard(member.name)

    def _cut(self, member: HostState) -> None:
        if member.code is None:
            self._causes.cut(member.name)

    def _message(self, member: HostState, message: dict[str, Any]) -> None:
        kind = message["t"]
        if kind == "failed":
            self._failure(member, message)
        elif kind in ("stopping", "abandon"):
            self._stop(member.name, wire.stop_signal(message))
        elif kind == "done":
            if member.code is not None:
                raise wire.WireError("twice that it is done")
            code, failures = wire.number(message, "code", 255), wire.numbers(message, "failures", 0, _MOST_COUNTED, 3)
            member.done(code)
            self._count(member.name, Secondary(*failures))
        elif kind == "bye":
            self._leave(member)
        elif kind == "leaving":
            self._gone(member, "it reached its roll call's deadline just before the roster came")
        elif kind in FROM_WORKERS:
            topic, message_type = FROM_WORKERS[kind]
            half = self._halves[topic.name]
            try:
                half.hear(member.name, codec.unpack(message_type, message))
            except wire.WireError as error:
                if not half.is_owed:
                    raise
                self._gone(member, printable(f"it sent {error}", 200))
        else:
            raise wire.WireError(f"an unknown message {kind!r}")

    def _failure(self, member: HostState, message: dict[str, Any]) -> None:
        if member.count_failure() > _MOST_FAILURES:
            raise wire.WireError(f"more than {_MOST_FAILURES} failures")
        failure = wire.failure(message, "failure")
        loss = self._losses.get(failure.host) if failure.cause == "host" else None
        # a host reports failures of ranks, which a launch in its program may have on other hosts, too, or repeats the
        # loss of another host that we announced
        known = failure.cause != "host" and (failure.host == self.me or failure.host in self._members.by_name)
        self.failed(loss or (failure if known else failure._replace(host=member.name)))

    def _leave(self, member: HostState) -> None:
        if member.code is None and not self._settled:
            self._gone(member, "it left before its ranks were done")
            return
        self._goodbyes.add(member.name)
        self._members.end(member)
        self._is_gone(member.name, f"host {member.name} has left")
        self._left(member.name)

    # connections

    def resume(self, member: HostState, link: Link, got: int, replies: list[bytes]) -> None:
        """A worker calls again: its session goes on, see :meth:`OtherHosts.resume`."""
        self._members.resume(member, link, got, replies)

    def restarted(self, member: HostState) -> None:
        """The container of ``member`` was restarted, so the host of this session is lost."""
        self._gone(member, "it was started anew while the job ran")

    @property
    def root_cause(self) -> Announce | None:
        """The root cause that was announced to all hosts; None before."""
        return self._causes.announced

    def _act(self, member: HostState, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Silent):
                self._emit_unless_done(PeerSilent(member.name, action.seconds), member)
                if member.code is None:
                    self._decide(self._causes.silent(member.name))
            elif isinstance(action, Back):
                self._causes.back(member.name)
                if not self._is_ending:
                    member.session.job_goes_on()
                if self._asked:  # what it couldn't deliver comes before the beat that answers this one
                    self._unanswered.add(member.name)
                    self._members.ask(member)
                if action.reported or self._returns.count(member.name):
                    self._emit_unless_done(PeerBack(member.name), member)
                self._decide([])
            elif isinstance(action, Lost):
                self._gone(member, action.why, action.silence)

    def _emit_unless_done(self, event: PeerEvent, member: HostState) -> None:
        if member.code is None:
            self.emit(event)

    # what follows from it

    @property
    def _is_ending(self) -> bool:
        return self._stopped or self._through or (self._causes.announced is not None and not self._goes_on)

    @property
    def _settled(self) -> bool:
        """Whether it is known how the job ends, so that losing a host changes nothing."""
        return self._causes.announced is not None or self._stopped or self._all_done or self._through

    def _gone(self, member: HostState, why: str, silence: float = 0.0) -> None:
        """``member`` is lost: for the reason ``why``, or only because of ``silence`` seconds without a byte."""
        if not silence:
            self._lose(member, PeerLost(member.name, why))
            return
        connected = [other for other in self._members if other is not member and not other.session.is_away]
        later = member.session.received_at + 1.5 * self._timeouts.beat
        answering = [other.name for other in connected if other.session.received_at > later]
        silent = [other.name for other in connected if other.session.received_at <= later]
        self._lose(member, loss_by_silence(self.me, member.name, silence, answering, silent))

    def _lose(self, member: HostState, loss: PeerLost) -> None:
        """Ends the session of ``member``; it counts as lost unless it was done or it is known how the job ends."""
        self._members.end(member)
        if member.code is None and not self._settled and member.name not in self._lost:
            self._lost.add(member.name)
            self._record("host-lost", host=member.name, why=loss.why)
            role = world_of(self.worlds, loss.host).name
            failure = self._losses[loss.host] = lost_host(loss.host, loss.why, self._wall(), loss.apart_from, role)
            self._decide(self._causes.lost(member.name, failure))
            if self._causes.announced is None:
                self.emit(loss)
                self._members.broadcast(wire.pack("lost", host=loss.host, why=loss.why))
        self._causes.back(member.name)
        self._is_gone(member.name, f"host {member.name} was lost: {loss.why}")
        self._left(member.name)

    def _decide(self, decisions: list[Decision]) -> None:
        """Carries out ``decisions`` about the root cause, and those that are due."""
        for decision in [*decisions, *self._causes.tick(self._loop.clock(), self._is_any_unanswered())]:
            if isinstance(decision, Announce):
                if self._stopped:
                    continue
                failure = self._explained(decision.failure)
                self.emit(JobFailed(failure, decision.secondary))
                self._members.broadcast(wire.pack("verdict", failure=failure._asdict(), secondary=decision.secondary))
                if not self._goes_on:
                    self._members.job_ending()
            elif isinstance(decision, AskRaised):
                self.topic(raised_ranks.TOPIC).ask()
            else:
                self._members.hurry(self._members[decision.host])
        due = self._causes.due
        if self._due is not None:
            self._due.cancel()
        self._due = self._loop.call_at(due, lambda: self._decide([])) if due is not None else None

    def _explained(self, failure: Failure) -> Failure:
        """Adds to ``failure``, a symptom without a cause, which ranks had ended with 0 or were late."""
        if failure.kind != "peer":
            return failure
        codes = {self.me: self._code, **{member.name: member.code for member in self._members}}
        world = world_of(self.worlds, failure.host)
        ranks = {host: numbers for host, numbers in self._ranks.items() if host in world.hosts}
        ended = [rank for host, numbers in ranks.items() if codes.get(host) == 0 for rank in numbers]
        failure = after_others(failure, ended, sum(map(len, ranks.values())))
        return cast(LeadersRaised, self.topic(raised_ranks.TOPIC)).explained(failure)

    def _is_any_unanswered(self) -> bool:
        """Tells whether a healthy host still looks, or has sent nothing since a symptom."""
        return bool(cast(LeadersRaised, self.topic(raised_ranks.TOPIC)).awaits()) or any(
            member.session.state == UP and member.code is None
            for member in map(self._members.__getitem__, self._unanswered)
        )

    def _stop(self, host: str, signal: int) -> None:
        """A stop ends the job unless it is ending: all hosts end as what came first here."""
        if self._stopped:
            return
        self._decide(self._causes.settle())
        if self._all_done or (self._causes.announced is not None and not self._goes_on):
            if self._hosts.max_restarts:  # it comes before the next attempt
                self._late_stop = True
                if host != self.me:
                    self.emit(StopAll(host, signal))
            return
        self._stopped = True
        if host != self.me:
            self.emit(StopAll(host, signal))
        self._members.broadcast(wire.pack("stop", host=host, signal=signal), but=host)
        self._newcomers.stop(host, signal)
        self._members.job_ending()

    def _count(self, host: str, failures: Secondary) -> None:
        """``host`` is done, with so many failures."""
        self._failures = self._failures.plus(failures)
        self._causes.done(host)
        self._decide([])
        self._left(host)

    def _left(self, host: str) -> None:
        """``host`` is done or gone: every host may be done now."""
        for half in self._halves.values():
            half.left(host)
        self._settle_roles()
        if not self._all_done and self._code is not None and self._all_others_are_over():
            self._all_done = True
            self._members.broadcast(wire.pack("alldone", failures=self._failures, stopped=self._stopped))
            self.emit(AllDone(self._failures, self._stopped))
        for half in self._halves.values():
            half.changed()

    def _settle_roles(self) -> None:
        """The first counts here: a failure, or the end of the job's own roles. Later ends of those that served them are
        no failures.
        """
        ended = cast(LeadersEndedGroups, self.topic(ended_groups.TOPIC)).all_ended
        if not self._hosts.worlds or not ended or self._through or self._stopped:
            return
        if not self._goes_on:
            self._decide([] if self._lost else self._causes.settle(symptoms=True))
        if self._goes_on or not (self._lost or self._causes.announced):
            self._through = True
            self._members.job_ending()

    def _all_others_are_over(self) -> bool:
        """Who is over stays so in an attempt: none is looked at twice, as that would take the square of the hosts."""
        if self._unfinished is None:
            self._unfinished = list(self._members)
        while self._unfinished and _is_over(self._unfinished[-1]):
            self._unfinished.pop()
        return not self._unfinished

    def _is_gone(self, host: str, why: str) -> None:
        for half in self._halves.values():
            half.gone(host, why)


def _is_over(member: HostState) -> bool:
    """Whether it is done, has left or is lost, so that the end of the job doesn't wait for it."""
    return member.code is not None or member.session.state == OVER
