"""A worker's end of the channel: reports to the leader, follows its orders, reconnects when the connection breaks."""

from __future__ import annotations

from typing import Any

from musterpoint.base.failure import NO_FAILURES, Failure, Secondary, lost_host
from musterpoint.base.settings import Settings
from musterpoint.base.untrusted import printable
from musterpoint.core.channel import codec, wire
from musterpoint.core.channel.beats import Sweeper
from musterpoint.core.channel.clocks import microseconds
from musterpoint.core.channel.connection_log import Sampler
from musterpoint.core.channel.dial import Miss
from musterpoint.core.channel.link import Context, Link, LinkOwner, say_bye
from musterpoint.core.channel.peers import AllDone, EventQueue, JobFailed, PeerBack, PeerLost, PeerSilent, StopAll
from musterpoint.core.channel.redial import DialerMaker, Dialled, Membership, Redial
from musterpoint.core.channel.root_cause import loss_by_silence, root_cause_without_leader
from musterpoint.core.channel.session import OVER, Action, Back, Dial, PeerState, Session, Silent
from musterpoint.core.channel.topic import Api, Topic
from musterpoint.core.channel.topic_table import FROM_LEADER, TOPICS

_LONGEST_WHY = 600


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
        self.me, self.leader, self.hosts = membership.me, membership.leader, membership.hosts
        self._goes_on = settings.on_failure == "finish"
        self._returns = Sampler()
        session = Session(self._loop.clock(), True, settings.silence_timeout, self._timeouts)
        self._peer = PeerState(self.leader, link, session)
        dialled = Dialled(self._resumed, self._over, self._missed)
        received = lambda: self._peer.mailbox.received  # noqa: E731
        self._redial = Redial(context, dialer, membership, settings, received, dialled)
        self._owner = LinkOwner(self._frame, self._ended)
        link.hand_over(self._owner)
        self._stopped = self.is_alone = False
        self._begin()
        self._loss = PeerLost(self.leader, "")
        self._halves: dict[str, Any] = {topic.name: topic.worker(self) for topic in TOPICS}
        self._sweeper = Sweeper(context, session.forgive, self._sweep)

    def _begin(self) -> None:
        """What is known of one attempt; before the first, and again before each later one."""
        self._pending: list[Failure] = []
        self._once: set[tuple[str, str]] = set()
        self._done = self._announced = self._all_done = False

    # what this host reports

    def failed(self, failure: Failure) -> None:
        self._pending.append(failure)
        if self.is_alone:
            self._announce_without_leader()
        elif not self._announced:
            self._post(wire.pack("failed", failure=failure._asdict()))
            self._job_ending()

    def stopping(self, signal: int) -> None:
        self._stopped = True
        self._post(wire.pack("stopping", signal=signal))
        self._job_ending()

    def done(self, code: int, failures: Secondary = NO_FAILURES) -> None:
        self._done = True
        if self.is_alone:
            self.emit(AllDone(failures, self._stopped))
        else:
            self._post(wire.pack("done", code=code, failures=failures))

    def close(self) -> None:
        self._stop_listening()
        self._post(wire.pack("bye"))
        self._end_session()
        if self._peer.link is not None:
            say_bye([self._peer.link], self._timeouts.flush)
            self._peer.disconnect()

    # what topics have of it

    def topic(self, topic: Topic[Api]) -> Api:
        half: Api = self._halves[topic.name]
        return half

    @property
    def loss(self) -> str:
        return self._loss.why

    @property
    def unsent(self) -> int:
        return len(self._peer.mailbox)

    def check(self, message: Any) -> None:
        codec.check_bounds(message, wire.MEMBER_LIMIT)

    def post(self, message: Any) -> None:
        self._post(codec.pack(message))

    def begin_attempt(self) -> None:
        self._begin()
        for half in self._halves.values():
            half.begin()
        self._peer.session.job_goes_on()

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
            self.emit(StopAll(self._host(message), wire.stop_signal(message)))
            self._job_ending()
        elif kind == "lost":
            why, host = printable(wire.text(message, "why"), _LONGEST_WHY), self._host(message)
            self._check_first(kind, host)
            self.emit(PeerLost(host, why))
        elif kind == "alldone":
            self._check_first(kind)
            self._all_done = True
            failures = Secondary(*wire.numbers(message, "failures", 0, 2**31, 3))
            self.emit(AllDone(failures, wire.boolean(message, "stopped")))
        elif kind == "bye":
            self._lose("it left before the job was over")
        elif kind in FROM_LEADER:
            topic, message_type = FROM_LEADER[kind]
            self._halves[topic.name].hear(codec.unpack(message_type, message), len(payload))
        else:
            raise wire.WireError(f"an unknown message {kind!r}")

    def _check_first(self, kind: str, host: str = "") -> None:
        """Refuses a message that a leader sends only once: repeated, it would fill logs and memory."""
        if (kind, host) in self._once:
            raise wire.WireError(f"a {kind!r} twice")
        self._once.add((kind, host))

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
        self.emit(JobFailed(failure, secondary))

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
                self.emit(PeerSilent(self.leader, action.seconds))
            elif isinstance(action, Back):
                self._redial.stop()
                if action.reported or (not action.late and self._returns.count(self.leader)):
                    self.emit(PeerBack(self.leader))
            else:
                self._lose(action.why, action.silence)

    def _ended(self, _link: Link, why: str, eof: bool) -> None:
        self._peer.disconnect()
        self._record("connection-ended", host=self.leader, why=why)
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
        self._record("session-resumed", host=self.leader, address=link.peer)
        for data in self._peer.mailbox.unacknowledged():
            link.send(data)
        self._act(self._peer.session.resumed(self._loop.clock()))

    # without the leader

    def _lose(self, why: str, silence: float = 0.0) -> None:
        """The leader is lost or has left: this host is alone now. ``silence``: seconds, if that is the only sign."""
        if self.is_alone:
            return
        self.is_alone = True
        self._end_session()
        self._peer.disconnect()
        me = self._membership.me
        self._loss = loss_by_silence(me, self.leader, silence) if silence else PeerLost(self.leader, why)
        # a leader that ends well sends that before it closes; if the network failed, the message may be lost
        done = self._done and not self._peer.session.closed
        known = self._all_done or done or self._announced
        if not known and not self._announce_without_leader() and not self._stopped:
            self._record("host-lost", host=self.leader, why=why)
            self.emit(self._loss)
        if self._done and not self._all_done:
            self.emit(AllDone(stopped=self._stopped))
        for half in self._halves.values():
            half.alone()

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
