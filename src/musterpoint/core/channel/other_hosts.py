"""The job's other hosts as the leader reaches them: each has a session, and a connection while there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping

from musterpoint.base.records import NamedTuple
from musterpoint.core.channel import wire
from musterpoint.core.channel.beats import Beats, Sweeper
from musterpoint.core.channel.link import Context, Link, LinkOwner, say_bye
from musterpoint.core.channel.session import OVER, UP, Action, HostState
from musterpoint.core.channel.topic import World

if TYPE_CHECKING:
    from musterpoint.core.channel.topics.attempts import NextAttempt, NoRestart


_SAYS = ("stopping", "abandon", "leaving")


class JobHosts(NamedTuple):
    """The hosts of the job as the leader's end of the channel knows them.

    ``me``: the leader's name.
    ``others``: all other hosts by name.
    ``group``: names of the hosts in the distribution group.
    ``opaque``: names of hosts whose programs may start ranks themselves, so that their failures are known late.
    ``ranks``: the ranks of each host of the group.
    ``max_restarts``: how often the job may start its ranks again.
    ``worlds``: the job's groups; empty: the one.
    """

    me: str
    others: Mapping[str, HostState]
    group: frozenset[str]
    opaque: frozenset[str] = frozenset()
    ranks: Mapping[str, range] = {}
    max_restarts: int = 0
    worlds: tuple[World, ...] = ()


class HostEvents(NamedTuple):
    """What is called when something comes from a host, or doesn't.

    ``heard(host)`` for every frame.
    ``session(host, actions)`` with what follows for its session.
    ``message(host, message)`` for each message.
    ``cut(host)`` when its connection has ended and its session hasn't.
    """

    heard: Callable[[HostState], None]
    session: Callable[[HostState, list[Action]], None]
    message: Callable[[HostState, dict[str, Any]], None]
    cut: Callable[[HostState], None]


class OtherHosts:
    """``hosts`` by name. ``newcomers`` of them are in their roll call still, and get no message of the job."""

    def __init__(
        self, context: Context, hosts: Mapping[str, HostState], newcomers: Newcomers, events: HostEvents
    ) -> None:
        self.by_name = dict(hosts)
        self._loop, self._timeouts, self._wall = context.loop, context.timeouts, context.wall
        self._record = context.log.record
        self._newcomers = newcomers
        self._events = events
        self._beats = Beats(hosts.values())
        self._sweeper = Sweeper(context, self._forgive, self._sweep)
        self._by_link: dict[Link, HostState] = {}
        self._owner = LinkOwner(self._frame, self._ended)
        for host in hosts.values():
            self._take_over(host)

    def __iter__(self) -> Iterator[HostState]:
        return iter(self.by_name.values())

    def __getitem__(self, name: str) -> HostState:
        return self.by_name[name]

    def broadcast(self, data: bytes, but: str = "") -> None:
        """Posts ``data`` to every host of the job except ``but``."""
        for host in self:
            if host.session.state != OVER and host.name != but and host.name not in self._newcomers:
                host.post(data)

    def beat(self) -> None:
        """Asks every host for a sign of life."""
        for host in self:
            self.ask(host)

    def ask(self, host: HostState) -> None:
        """Asks ``host`` for a sign of life, and for its time."""
        host.ask(self._wall())

    def replace(self, host: HostState) -> None:
        """``host`` has the seat of the host of its name, whose session is over."""
        earlier = self.by_name[host.name]
        self._beats.remove(earlier)
        self.end(earlier)
        self.by_name[host.name] = host
        self._newcomers.add(host)
        self._beats.add(host)
        self._take_over(host)

    def resume(self, host: HostState, link: Link, got: int, replies: list[bytes]) -> None:
        """Continues the session of ``host`` over ``link``: sends the frames ``replies``, then the messages after the
        ``got`` that it has received.

        Raises:
            WireError: ``got`` is more than was sent.
        """
        self._disconnect(host)
        host.mailbox.acknowledge(got)
        host.connect(link)
        self._take_over(host)
        link.set_limit(wire.MEMBER_LIMIT)
        for data in (*replies, *host.mailbox.unacknowledged()):
            link.send(data)
        self._record("session-resumed", host=host.name, address=link.peer)
        self._events.session(host, host.session.resumed(self._loop.clock()))

    def end(self, host: HostState) -> None:
        """Ends the session of ``host``, and its connection."""
        host.session.end()
        self._disconnect(host)

    def job_ending(self) -> None:
        """How the job ends is known, so a silent host is not waited for any longer."""
        for host in self:
            self.hurry(host)

    def hurry(self, host: HostState) -> None:
        """``host`` is waited for only as long as where the job ends, if it is silent."""
        self._events.session(host, host.session.job_ending(self._sweeper.now()))

    def wait_until_heard(self, seconds: float) -> None:
        """Waits until every host has received what was sent: one that is about to reconnect would take us for lost."""
        deadline = self._loop.clock() + seconds
        waits = list(self)
        self.beat()
        while (left := deadline - self._loop.clock()) > 0:
            waits = [host for host in waits if host.session.state != OVER and len(host.mailbox)]
            if not waits:
                return
            self._loop.turn(left)

    def stop_watching(self) -> None:
        """No beats are sent any more, and nobody is found silent."""
        self._sweeper.stop()

    def say_goodbye(self) -> None:
        for host in self:
            if host.session.state != OVER:
                host.post(wire.pack("bye"))
                host.session.end()

    def close(self) -> None:
        """Closes the connections when what was posted is sent."""
        say_bye([host.link for host in self if host.link is not None], self._timeouts.flush)

    def _take_over(self, host: HostState) -> None:
        if host.link is not None:
            self._by_link[host.link] = host
            host.link.hand_over(self._owner)

    def _disconnect(self, host: HostState) -> None:
        if host.link is not None:
            del self._by_link[host.link]
            host.disconnect()

    def _frame(self, link: Link, payload: bytes) -> None:
        host = self._by_link[link]
        self._events.heard(host)
        self._events.session(host, host.session.received(self._loop.clock()))
        if wire.is_beat(payload):
            host.take_beat(payload, self._wall())
            return
        message = wire.unpack(payload)
        host.mailbox.count_received()
        self._newcomers.check(host.name, message["t"])
        self._events.message(host, message)

    def _ended(self, link: Link, why: str, eof: bool) -> None:
        host = self._by_link.pop(link)
        host.disconnect()
        self._record("connection-ended", host=host.name, why=why)
        if host.session.state != OVER:
            self._events.cut(host)
            self._events.session(host, host.session.ended(self._loop.clock(), eof))

    def _forgive(self, seconds: float, now: float) -> None:
        for host in self:
            host.session.forgive(seconds, now)

    def _sweep(self, now: float) -> None:
        for host in self._beats.next():
            self.ask(host)
        for host in self:
            session = host.session
            if session.state != UP or now - session.received_at >= self._timeouts.silence:
                self._events.session(host, session.tick(now))


class Newcomers:
    """Hosts that the platform has started anew while the job runs. Each has its seat, but no roster: it is still in its
    roll call, and gets the roster of the next attempt.

    ``me``: the leader's name. ``roster_of`` gives the packed roster of an attempt.
    """

    def __init__(self, me: str) -> None:
        self._me = me
        self._waiting: dict[str, HostState] = {}
        self.roster_of: Callable[[NextAttempt], bytes] | None = None

    def __contains__(self, host: str) -> bool:
        return host in self._waiting

    def add(self, host: HostState) -> None:
        """``host`` waits for the next attempt."""
        self._waiting[host.name] = host

    def check(self, host: str, kind: str) -> None:
        """Refuses a message that no host sends in its roll call (WireError)."""
        if host in self._waiting and kind not in _SAYS:
            raise wire.WireError(f"a {kind!r} before the roster")

    def join(self, attempt: NextAttempt) -> None:
        """The attempt begins: they are hosts like the others from now on."""
        roster = self.roster_of(attempt) if self.roster_of is not None else b""
        for host in self._waiting.values() if roster else ():
            if host.link is not None:
                host.link.send(roster)
        self._waiting.clear()

    def dismiss(self, end: NoRestart) -> None:
        """There is no other attempt: they get what ends a roll call."""
        if end.stopped_by:
            data = wire.pack("abandon", host=end.stopped_by, signal=end.signal)
        else:
            why = end.failure.reason if end.failure is not None else end.why
            data = wire.pack("over", text=f"{self._me} ended the job: {why}")
        self._send(data)

    def stop(self, host: str, signal: int) -> None:
        """The job stops, as ``host`` was told to."""
        self._send(wire.pack("abandon", host=host, signal=signal), but=host)

    def leave(self) -> None:
        """The job has ended without another attempt."""
        self._send(wire.pack("over", text=f"{self._me} ended the job: it needed no other attempt"))

    def _send(self, data: bytes, but: str = "") -> None:
        for host in self._waiting.values():
            if host.link is not None and host.session.state != OVER and host.name != but:
                host.link.send(data)
            host.session.end()
