"""The leader's end of the channel: hears every host, finds the verdict, tells it to all."""

from __future__ import annotations

import time
from typing import Any

from musterpoint.channel import session as rules
from musterpoint.channel import wire
from musterpoint.channel.barriers import LONGEST, MOST_EVER, MOST_OPEN, Barriers
from musterpoint.channel.host_state import SHARES, Beats, HostState
from musterpoint.channel.journal import Journal, Tally
from musterpoint.channel.link import Link, say_bye
from musterpoint.channel.peers import (
    AllDone,
    Arrived,
    EventQueue,
    JobFailed,
    PeerBack,
    PeerEvent,
    PeerLost,
    PeerSilent,
    StopAll,
)
from musterpoint.channel.root_cause import Action as Judgement
from musterpoint.channel.root_cause import Announce, RootCause, of_silence
from musterpoint.channel.start_requests import Requests
from musterpoint.channel.timeouts import Timeouts
from musterpoint.failure import NO_FAILURES, Failure, Secondary, lost_host
from musterpoint.loop import Loop, Timer
from musterpoint.rollcall.late_callers import LateCallers
from musterpoint.rollcall.listener import Listener
from musterpoint.rollcall.roster import MOST_SLOTS, Roster

_MOST_FAILURES = 4096


class LeaderChannel(EventQueue):
    """``members`` are all other hosts by name; ``packed`` is the roster as it was sent. ``goes_on`` says that a failure
    doesn't end the job.
    """

    def __init__(
        self, loop: Loop, listener: Listener, roster: Roster, packed: bytes, members: dict[str, HostState],
        goes_on: bool, timeouts: Timeouts, journal: Journal,
    ) -> None:  # fmt: skip
        super().__init__(loop)
        self._listener = listener
        self._roster = roster
        self._members = members
        self._goes_on = goes_on
        self._timeouts = timeouts
        self._record = journal.record
        self._backs = Tally()
        self._silent: set[str] = set()
        self._verdict = RootCause(timeouts.hold, timeouts.patience, _opaque(roster, members))
        self._points = Barriers(seat.name for seat in roster.group)
        self._requests = Requests(members, self._emit)
        self._lost: set[str] = set()
        self._losses: dict[str, Failure] = {}
        self._code: int | None = None
        self._failures = Secondary()
        self._stopped = False
        self._all_done = False
        self._due: Timer | None = None
        self._asked = False
        self._unheard: set[str] = set()
        self._last_sweep = loop.clock()
        self._period = timeouts.beat / SHARES
        self._beats = Beats(members.values())
        self._sweeper = loop.call_later(self._period, self._sweep)
        restarted = "it was started anew while the job ran"
        LateCallers(
            loop, listener, roster, packed, members, self._verdict, timeouts.asked, journal, self._go_on,
            lambda member: self._gone(member, restarted),
        )  # fmt: skip
        for member in members.values():
            if member.link is not None:
                member.link.on_frame, member.link.on_end = self._frame, self._ended

    # what this host says

    def failed(self, failure: Failure) -> None:
        if failure.is_symptom and not self._asked:
            self._asked = True
            self._unheard = set(self._members)
            for member in self._members.values():
                member.beat()
        self._judge(self._verdict.failed(failure, self._loop.clock()))

    def stopping(self, signal: int) -> None:
        self._stop(self._roster.me, signal)

    def arrive(self, point: str) -> None:
        self._reached(self._points.arrive(self._roster.me, point))

    def done(self, code: int, failures: Secondary = NO_FAILURES) -> None:
        self._code = code
        self._count(self._roster.me, failures)

    def start(self, host: str, number: int, words: tuple[str, ...]) -> None:
        self._requests.ask(host, number, words)

    def close(self) -> None:
        self._deafen()
        self._sweeper.cancel()
        if self._due is not None:
            self._due.cancel()
        for member in self._members.values():
            if member.session.state != rules.OVER:
                member.post(wire.pack("bye"))
                member.session.over()
        self._listener.close()
        say_bye([member.link for member in self._members.values() if member.link is not None], self._timeouts.flush)

    # what the others say

    def _frame(self, link: Link, payload: bytes) -> None:
        member: HostState = link.owner
        session = member.session
        self._unheard.discard(member.name)
        if session.state == rules.UP:
            session.heard_at = self._loop.clock()
        else:
            self._act(member, session.heard(self._loop.clock()))
        if wire.is_beat(payload):
            member.mailbox.acknowledge(wire.beat_count(payload))
            return
        message = wire.unpack(payload)
        member.mailbox.received += 1
        self._hear(member, message)

    def _hear(self, member: HostState, message: dict[str, Any]) -> None:
        kind = message["t"]
        if kind == "failed":
            member.failed += 1
            if member.failed > _MOST_FAILURES:
                raise wire.WireError(f"more than {_MOST_FAILURES} failures")
            failure = wire.failure(message, "failure")
            loss = self._losses.get(failure.host) if failure.cause == "host" else None
            # a host speaks for itself only; of a lost one it repeats what it was told
            self.failed(loss or failure._replace(host=member.name))
        elif kind in ("stopping", "abandon"):
            self._stop(member.name, wire.stop_signal(message))
        elif kind == "arrive":
            if self._points.waits(member.name) >= MOST_OPEN:
                raise wire.WireError(f"that it waits at more than {MOST_OPEN} points")
            if self._points.opened >= MOST_EVER:
                raise wire.WireError(f"one of more than {MOST_EVER} points")
            self._reached(self._points.arrive(member.name, wire.text(message, "point", LONGEST)))
        elif kind == "done":
            if member.code is not None:
                raise wire.WireError("twice that it is done")
            code, failures = wire.number(message, "code", 255), wire.numbers(message, "failures", 0, MOST_SLOTS, 3)
            member.code = code
            self._count(member.name, Secondary(*failures))
        elif kind in ("started", "ended"):
            self._requests.answer(member.name, message)
        elif kind == "bye":
            self._leave(member)
        elif kind == "leaving":
            self._gone(member, "it reached its roll call's deadline just before the roster came")
        else:
            raise wire.WireError(f"an unknown message {kind!r}")

    def _leave(self, member: HostState) -> None:
        if member.code is None and not self._settled:
            self._gone(member, "it left before its ranks were done")
            return
        member.session.over()
        self._cut(member)
        self._requests.gone(member.name, f"host {member.name} has left")
        self._recount(member.name)

    # connections

    def _ended(self, link: Link, why: str, eof: bool) -> None:
        member: HostState = link.owner
        if member.link is not link:
            return
        member.link = None
        self._record("connection-ended", host=member.name, why=why)
        if member.session.state != rules.OVER:
            if member.code is None:
                self._verdict.cut(member.name)
            self._act(member, member.session.ended(self._loop.clock(), eof))

    def _go_on(self, link: Link, member: HostState, got: int, replies: list[bytes]) -> None:
        self._cut(member)
        self._unheard.discard(member.name)
        member.mailbox.acknowledge(got)
        member.link = link
        link.owner = member
        link.frames.limit = wire.MEMBER_LIMIT
        link.on_frame, link.on_end = self._frame, self._ended
        for data in (*replies, *member.mailbox.unacknowledged()):
            link.send(data)
        self._record("session-resumed", host=member.name, address=link.peer)
        self._act(member, member.session.resumed(self._loop.clock()))

    def _cut(self, member: HostState) -> None:
        if member.link is not None:
            member.link.close()
            member.link = None

    def _now(self) -> float:
        """The time, at which silence may be counted: what this host itself stood still is forgiven first."""
        now = self._loop.clock()
        late = now - self._last_sweep - self._period
        if late > self._timeouts.beat:
            self._last_sweep = now
            for member in self._members.values():
                member.session.forgive(late, now)
        return now

    def _sweep(self) -> None:
        now = self._now()
        self._last_sweep = now
        silence = self._timeouts.silence
        for member in self._beats.next():
            member.beat()
        for member in self._members.values():
            session = member.session
            if session.state != rules.UP or now - session.heard_at >= silence:
                self._act(member, session.tick(now))
        self._sweeper = self._loop.call_later(self._period, self._sweep)

    def _act(self, member: HostState, actions: list[rules.Action]) -> None:
        for action in actions:
            if isinstance(action, rules.Silent):
                self._silent.add(member.name)
                self._quiet(PeerSilent(member.name, action.seconds), member)
                if member.code is None:
                    self._judge(self._verdict.silent(member.name))
            elif isinstance(action, rules.Back):
                self._verdict.back(member.name)
                if member.name in self._silent or self._backs.count(member.name):
                    self._silent.discard(member.name)
                    self._quiet(PeerBack(member.name), member)
                self._judge([])
            elif isinstance(action, rules.Lost):
                self._gone(member, action.why, action.silence)

    def _quiet(self, event: PeerEvent, member: HostState) -> None:
        if member.code is None:
            self._emit(event)

    # what follows

    @property
    def _settled(self) -> bool:
        """How the job ends is known: a host that goes now is no news."""
        return self._verdict.fallen is not None or self._stopped or self._all_done

    def _gone(self, member: HostState, why: str, silence: float = 0.0) -> None:
        """``member`` is lost, for a reason or, after so many seconds, for mere ``silence``."""
        if not silence:
            self._lose(member, PeerLost(member.name, why))
            return
        there = [other for other in self._members.values() if other is not member and not other.session.is_away]
        later = member.session.heard_at + 1.5 * self._timeouts.beat
        heard = [other.name for other in there if other.session.heard_at > later]
        unheard = [other.name for other in there if other.session.heard_at <= later]
        self._lose(member, of_silence(self._roster.me, member.name, silence, heard, unheard))

    def _lose(self, member: HostState, loss: PeerLost) -> None:
        """``member`` is lost; one that was done, or that goes when all is decided, is only gone."""
        member.session.over()
        self._cut(member)
        if member.code is None and not self._settled and member.name not in self._lost:
            self._lost.add(member.name)
            self._record("host-lost", host=member.name, why=loss.why)
            failure = self._losses[loss.host] = lost_host(loss.host, loss.why, time.time(), loss.apart_from)
            self._judge(self._verdict.lost(member.name, failure))
            if self._verdict.fallen is None:
                self._emit(loss)
                self._tell(wire.pack("lost", host=loss.host, why=loss.why))
        self._verdict.back(member.name)
        self._requests.gone(member.name, f"host {member.name} was lost: {loss.why}")
        self._recount(member.name)

    def _judge(self, judgements: list[Judgement]) -> None:
        for judgement in [*judgements, *self._verdict.tick(self._loop.clock(), self._is_any_mute())]:
            if isinstance(judgement, Announce):
                self._emit(JobFailed(judgement.failure, judgement.secondary))
                self._tell(
                    wire.pack("verdict", failure=judgement.failure._asdict(), secondary=judgement.secondary)
                )  # fmt: skip
                if not self._goes_on:
                    self._press()
            else:
                member = self._members[judgement.host]
                silence = 0.0 if member.session.closed else self._timeouts.silence
                self._gone(member, "its connection was closed and it did not come back", silence)
        due = self._verdict.due
        if self._due is not None:
            self._due.cancel()
        self._due = self._loop.call_at(due, lambda: self._judge([])) if due is not None else None

    def _is_any_mute(self) -> bool:
        """Whether a host that seems well has not been heard since a symptom was told."""
        return any(
            member.session.state == rules.UP and member.code is None
            for member in map(self._members.__getitem__, self._unheard)
        )

    def _stop(self, host: str, signal: int) -> None:
        if self._stopped:
            return
        self._stopped = True
        if host != self._roster.me:
            self._emit(StopAll(host, signal))
        self._tell(wire.pack("stop", host=host, signal=signal), but=host)
        self._press()

    def _press(self) -> None:
        """How the job ends is known, so a host that is silent is waited for no longer."""
        for member in self._members.values():
            self._act(member, member.session.pressed(self._now()))

    def _count(self, host: str, failures: Secondary) -> None:
        """``host`` is done."""
        self._failures = self._failures.plus(failures)
        self._verdict.done(host)
        self._judge([])
        self._recount(host)

    def _reached(self, points: list[str]) -> None:
        for point in points:
            self._emit(Arrived(point))
            self._tell(wire.pack("arrived", point=point))

    def _recount(self, host: str) -> None:
        """``host`` is done or gone: what were the others waiting for?"""
        self._reached(self._points.through(host))
        if not self._all_done and self._code is not None and all(map(self._is_through, self._members)):
            self._all_done = True
            self._tell(wire.pack("alldone", failures=self._failures))
            self._emit(AllDone(self._failures))

    def _is_through(self, host: str) -> bool:
        """Nobody needs to wait for it any more: done, left or lost."""
        member = self._members.get(host)
        if member is None:
            return self._code is not None
        return member.code is not None or member.session.state == rules.OVER

    def _tell(self, data: bytes, but: str = "") -> None:
        for member in self._members.values():
            if member.session.state != rules.OVER and member.name != but:
                member.post(data)


def _opaque(roster: Roster, members: dict[str, HostState]) -> set[str]:
    """The hosts whose programs may start ranks by themselves: those of the group of a ``script`` job."""
    if not any(member.hello.offer.launcher == "script" for member in members.values()):
        return set()
    return {seat.name for seat in roster.group}
