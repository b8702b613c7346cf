"""A worker's end of the channel: reports to the leader, follows its orders, reconnects when the connection breaks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from musterpoint.base.failure import MOST_REASON, NO_FAILURES, Failure, Secondary, lost_host
from musterpoint.base.position import Position
from musterpoint.base.settings import MOST_HOSTS, Settings
from musterpoint.base.untrusted import is_host_name, printable
from musterpoint.core.channel import start_requests, wire
from musterpoint.core.channel.barriers import LONGEST, MOST_EVER
from musterpoint.core.channel.beats import Sweeper
from musterpoint.core.channel.clocks import microseconds
from musterpoint.core.channel.connection_log import Sampler
from musterpoint.core.channel.consultations import LONGEST_POINT, MOST_ANSWER, pack_report
from musterpoint.core.channel.dial import Miss
from musterpoint.core.channel.link import Context, Link, LinkOwner, say_bye
from musterpoint.core.channel.peers import (
    MOST_NAMED,
    AllDone,
    AllLooked,
    Arrived,
    Decide,
    EventQueue,
    JobFailed,
    LookAsked,
    OnAnswer,
    PeerBack,
    PeerLost,
    PeerSilent,
    RuleReport,
    Stalled,
    StartAsked,
    StillRunning,
    StopAll,
)
from musterpoint.core.channel.redial import DialerMaker, Dialled, Membership, Redial
from musterpoint.core.channel.root_cause import loss_by_silence, root_cause_without_leader
from musterpoint.core.channel.session import OVER, Action, Back, Dial, PeerState, Session, Silent

if TYPE_CHECKING:
    from musterpoint.core.channel.attempts import NoRestart, Ready

_LONGEST_WHY = 600
_MOST_STARTS = 1024
_MOST_WAITING = 32 * 1024 * 1024
"""Most open start requests, unacknowledged messages included, and most bytes of them."""


class WorkerChannel(EventQueue):
    """Once the leader is lost or has left, this behaves like a lone host.

    ``dialer`` makes what dials the leader; ``link`` is the roll call's connection.
    """

    def __init__(
        self, context: Context, dialer: DialerMaker, link: Link, membership: Membership, settings: Settings
    ) -> None:
        super().__init__(context.loop)
        self._context = context
        self._timeouts = context.timeouts
        self._record = context.log.record
        self._membership = membership
        self._leader = membership.leader
        self._goes_on = settings.on_failure == "finish"
        self._returns = Sampler()
        session = Session(self._loop.clock(), True, settings.silence_timeout, self._timeouts)
        self._peer = PeerState(self._leader, link, session)
        dialled = Dialled(self._resumed, self._over, self._missed)
        received = lambda: self._peer.mailbox.received  # noqa: E731
        self._redial = Redial(context, dialer, membership, settings, received, dialled)
        self._owner = LinkOwner(self._frame, self._ended)
        link.hand_over(self._owner)
        self._stopped = self._alone = False
        self._questions: dict[str, OnAnswer] = {}
        self._begin()
        self._loss = PeerLost(self._leader, "")
        self._sweeper = Sweeper(context, session.forgive, self._sweep)

    def _begin(self) -> None:
        """What is known of one attempt; before the first, and again before each later one."""
        self._pending: list[Failure] = []
        self._points: list[str] = []
        self._once: set[tuple[str, str]] = set()
        self._reached = 0
        self._starts: dict[int, int] = {}
        self._done = self._announced = self._all_done = self._ready = False
        self._end: NoRestart | None = None

    # what this host reports

    def failed(self, failure: Failure) -> None:
        self._pending.append(failure)
        if self._alone:
            self._announce_without_leader()
        elif not self._announced:
            self._post(wire.pack("failed", failure=failure._asdict()))
            self._job_ending()

    def stopping(self, signal: int) -> None:
        self._stopped = True
        self._post(wire.pack("stopping", signal=signal))
        self._job_ending()

    def arrive(self, point: str) -> None:
        if self._alone:
            self._emit(Arrived(point))
            return
        self._points.append(point)
        self._post(wire.pack("arrive", point=point))

    def done(self, code: int, failures: Secondary = NO_FAILURES) -> None:
        self._done = True
        if self._alone:
            self._emit(AllDone(failures, self._stopped))
        else:
            self._post(wire.pack("done", code=code, failures=failures))

    def started(self, number: int) -> None:
        self._post(start_requests.pack_started(number))

    def start_ended(self, number: int, status: int, said: str = "") -> None:
        self._starts.pop(number, None)
        self._post(start_requests.pack_ended(number, status, said))

    def quiet(self, on: bool) -> None:
        if not self._alone:
            self._post(wire.pack("quiet", on=on))
        elif on:
            self._emit(LookAsked())

    def looked(self, positions: tuple[Position, ...] | None) -> None:
        if self._alone:
            self._emit(AllLooked(positions))
        else:
            self._post(wire.pack("looked", positions=positions))

    def rule_state(self, report: RuleReport) -> None:
        if not self._alone:
            self._post(wire.pack("rule", report=report))

    def ask_running(self) -> None:
        if not self._alone:
            self._post(wire.pack("whoruns"))

    def stalled(self, sentence: str) -> None:
        self._emit(Stalled(sentence))  # without a leader this host looks for itself

    def ready(self, ready: Ready) -> None:
        if self._end is not None:
            self._emit(self._end)
        elif self._alone:
            self._no_restart()
        else:
            self._ready = True
            from musterpoint.core.channel.attempt_messages import pack_ready

            self._post(pack_ready(ready))

    def consult(self, point: str, text: str, decide: Decide, on_answer: OnAnswer, seconds: float) -> None:
        if self._alone:
            self._loop.call_later(0, partial(on_answer, None))
            return
        self._post(pack_report(point, text))
        self._questions[point] = on_answer

    def close(self) -> None:
        self._stop_listening()
        self._post(wire.pack("bye"))
        self._end_session()
        if self._peer.link is not None:
            say_bye([self._peer.link], self._timeouts.flush)
            self._peer.disconnect()

    # what the leader sends

    def _frame(self, _link: Link, payload: bytes) -> None:
        self._act(self._peer.session.received(self._loop.clock()))
        if wire.is_beat(payload):
            beat = wire.read_beat(payload)
            self._peer.mailbox.acknowledge(beat.received)
            self._peer.beat(beat.asked, microseconds(self._context.wall()))
            return
        message = wire.unpack(payload)
        self._peer.mailbox.count_received()
        kind = message["t"]
        if kind == "verdict":
            self._check_first(kind)
            self._root_cause(message)
        elif kind == "stop":
            self._check_first(kind)
            self._stopped = True
            self._emit(StopAll(self._host(message), wire.stop_signal(message)))
            self._job_ending()
        elif kind == "lost":
            why, host = printable(wire.text(message, "why"), _LONGEST_WHY), self._host(message)
            self._check_first(kind, host)
            self._emit(PeerLost(host, why))
        elif kind == "arrived":
            self._arrived(wire.text(message, "point", LONGEST))
        elif kind == "start":
            number, words = start_requests.read_start(message)
            self._start_asked(number, words, len(payload))
        elif kind == "alldone":
            self._check_first(kind)
            self._all_done = True
            failures = Secondary(*wire.numbers(message, "failures", 0, 2**31, 3))
            self._emit(AllDone(failures, wire.boolean(message, "stopped")))
        elif kind == "answer":
            self._answered(message)
        elif kind == "look":
            self._emit(LookAsked(printable(wire.text(message, "rule", _LONGEST_WHY), _LONGEST_WHY)))
        elif kind == "running":
            hosts = wire.texts(message, "hosts", MOST_NAMED)
            if not all(map(is_host_name, hosts)):
                raise wire.WireError("a 'running' with what is no host's name")
            self._emit(StillRunning(hosts, wire.number(message, "more", MOST_HOSTS)))
        elif kind == "stalled":
            self._emit(Stalled(printable(wire.text(message, "sentence", MOST_REASON), MOST_REASON)))
        elif kind in ("restart", "norestart"):
            self._after_attempt(kind, message)
        elif kind == "bye":
            self._lose("it left before the job was over")
        else:
            raise wire.WireError(f"an unknown message {kind!r}")

    def _after_attempt(self, kind: str, message: dict[str, Any]) -> None:
        from musterpoint.core.channel.attempt_messages import read_no_restart, read_restart

        if kind == "restart":
            if not self._ready:
                raise wire.WireError("a 'restart' before this host was ready")
            attempt = read_restart(message, self._membership.hosts)
            self._begin()
            self._peer.session.job_goes_on()
            self._emit(attempt)
        else:
            self._check_first(kind)
            self._end = read_no_restart(message)
            if self._ready:
                self._ready = False
                self._emit(self._end)

    def _no_restart(self) -> None:
        """The leader is gone, who would begin the next attempt."""
        from musterpoint.core.channel.attempts import NoRestart

        self._ready = False
        self._emit(NoRestart(None, f"{self._leader}, the leader, is gone: {self._loss.why}"))

    def _check_first(self, kind: str, host: str = "") -> None:
        """Refuses a message that a leader sends only once: repeated, it would fill logs and memory."""
        if (kind, host) in self._once:
            raise wire.WireError(f"a {kind!r} twice")
        self._once.add((kind, host))

    def _arrived(self, point: str) -> None:
        if point in self._points:
            self._points.remove(point)
        self._reached += 1
        if self._reached > 2 * MOST_EVER:  # the leader doesn't count its own barriers
            raise wire.WireError(f"more than {2 * MOST_EVER} points")
        self._emit(Arrived(point))

    def _answered(self, message: dict[str, Any]) -> None:
        point = wire.text(message, "point", LONGEST_POINT)
        on_answer = self._questions.pop(point, None)
        if on_answer is None:
            raise wire.WireError(f"an answer at {point!r}, where nothing was asked")
        self._loop.call_later(0, partial(on_answer, wire.text(message, "text", MOST_ANSWER)))

    def _start_asked(self, number: int, words: tuple[str, ...], size: int) -> None:
        if number in self._starts:
            raise wire.WireError(f"start request {number} before its last one ended")
        self._starts[number] = size
        if len(self._starts) + len(self._peer.mailbox) > _MOST_STARTS or sum(self._starts.values()) > _MOST_WAITING:
            del self._starts[number]
            raise wire.WireError("more start requests than can wait")
        self._emit(StartAsked(number, words))

    def _host(self, message: dict[str, Any]) -> str:
        host = wire.host(message)
        if host not in self._membership.hosts:
            raise wire.WireError(f"a {message['t']!r} of {host}, which is no host of this job")
        return host

    def _root_cause(self, message: dict[str, Any], key: str = "failure") -> None:
        failure = wire.failure(message, key)
        if failure.host not in self._membership.hosts:
            raise wire.WireError(f"the failure of {failure.host}, which is no host of this job")
        self._announce(failure, Secondary(*wire.numbers(message, "secondary", 0, 2**31, 3)))
        if not self._goes_on:
            self._job_ending()

    def _announce(self, failure: Failure, secondary: Secondary) -> None:
        self._announced = True
        self._emit(JobFailed(failure, secondary))

    # the connection

    def _post(self, data: bytes) -> None:
        if self._peer.session.state != OVER:
            self._peer.post(data)

    def _sweep(self, now: float) -> None:
        self._act(self._peer.session.tick(now))

    def _job_ending(self) -> None:
        """The job ends, so a silent leader counts as lost sooner."""
        self._act(self._peer.session.job_ending(self._sweeper.now()))

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Dial):
                self._redial.start()
            elif isinstance(action, Silent):
                self._emit(PeerSilent(self._leader, action.seconds))
            elif isinstance(action, Back):
                self._redial.stop()
                if action.reported or (not action.late and self._returns.count(self._leader)):
                    self._emit(PeerBack(self._leader))
            else:
                self._lose(action.why, action.silence)

    def _ended(self, _link: Link, why: str, eof: bool) -> None:
        self._peer.disconnect()
        self._record("connection-ended", host=self._leader, why=why)
        self._act(self._peer.session.ended(self._loop.clock(), eof))

    def _missed(self, kind: Miss) -> None:
        self._act(self._peer.session.tried(self._sweeper.now(), kind))

    def _over(self, message: dict[str, Any]) -> None:
        """The leader says that the job is over."""
        if "verdict" in message and not self._announced:
            self._root_cause(message, "verdict")
        self._lose(printable(wire.text(message, "reason"), _LONGEST_WHY))

    def _resumed(self, link: Link, got: int) -> None:
        self._peer.mailbox.acknowledge(got)
        self._redial.hand_over()
        self._peer.disconnect()
        self._peer.connect(link)
        link.hand_over(self._owner)
        self._record("session-resumed", host=self._leader, address=link.peer)
        for data in self._peer.mailbox.unacknowledged():
            link.send(data)
        self._act(self._peer.session.resumed(self._loop.clock()))

    # without the leader

    def _lose(self, why: str, silence: float = 0.0) -> None:
        """The leader is lost or has left: this host is alone now. ``silence``: seconds, if that is the only sign."""
        if self._alone:
            return
        self._alone = True
        self._end_session()
        self._peer.disconnect()
        me = self._membership.me
        self._loss = loss_by_silence(me, self._leader, silence) if silence else PeerLost(self._leader, why)
        # a leader that ends well sends that before it closes; if the network failed, the message may be lost
        done = self._done and not self._peer.session.closed
        known = self._all_done or done or self._announced
        if not known and not self._announce_without_leader() and not self._stopped:
            self._record("host-lost", host=self._leader, why=why)
            self._emit(self._loss)
        if self._done and not self._all_done:
            self._emit(AllDone(stopped=self._stopped))
        for point in self._points:
            self._emit(Arrived(point))
        if self._ready:
            self._no_restart()
        for on_answer in self._questions.values():
            self._loop.call_later(0, partial(on_answer, None))
        self._questions = {}

    def _end_session(self) -> None:
        self._peer.session.end()
        self._sweeper.stop()
        self._redial.stop()

    def _announce_without_leader(self) -> bool:
        """Announces this host's own choice of a root cause; returns whether there was one to announce."""
        host, why, apart_from = self._loss
        loss = lost_host(host, why, self._context.wall(), apart_from)
        failure = None if self._announced else root_cause_without_leader(self._pending, loss)
        if failure is not None:
            self._announce(failure, Secondary.of(self._pending, failure))
        return failure is not None
