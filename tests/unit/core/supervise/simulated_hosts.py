"""Several hosts of one job, simulated: the real policy, the real ends of the channel, made-up ranks and faults.

:func:`play` plays a :class:`History`.
"""

from __future__ import annotations

from typing import Any, Callable, Literal, NamedTuple, Union, cast

from musterpoint.base.failure import Failure, Kind
from musterpoint.base.loop import Timer
from musterpoint.base.settings import Settings
from musterpoint.core.channel.leader_channel import LeaderChannel
from musterpoint.core.channel.link import Link, LinkOwner
from musterpoint.core.channel.lone import LoneChannel
from musterpoint.core.channel.other_hosts import JobHosts
from musterpoint.core.channel.peers import AllLooked, GroupEnded, LookAsked, Report, StopAll
from musterpoint.core.channel.redial import Membership
from musterpoint.core.channel.session import HostState, Session, Ticket
from musterpoint.core.channel.topic import World
from musterpoint.core.channel.topic_table import TOPICS
from musterpoint.core.channel.topics import consultations, quiet_hosts, ready_roles, whole_checkpoints
from musterpoint.core.channel.topics.ready_roles import NotReady, RoleReady
from musterpoint.core.channel.wire import LEADER_LIMIT, MEMBER_LIMIT
from musterpoint.core.channel.worker_channel import WorkerChannel
from musterpoint.core.job.model import Ends
from musterpoint.core.rollcall.admission import Call
from musterpoint.core.rollcall.hello import Hello
from musterpoint.core.rollcall.reconnects import Reconnects
from musterpoint.core.rollcall.roster import Offer, Roster, Seat
from musterpoint.core.supervise import events as ev
from musterpoint.core.supervise.policy import decide
from musterpoint.core.supervise.restart_rules import RestartOn
from musterpoint.core.supervise.state import Rules, State, code_of

from .simulated_network import EPOCH, TIMEOUTS, Clock, Cut, Machine, Network, SimulatedDialer

GRACE = 25.0
HORIZON = 1500.0
SETTINGS = Settings()
SILENCE = 1.0
"""Seconds: the stall timeout."""
READY_WITHIN = 100.0
"""Seconds: --ready-timeout."""
LOOKS_WITHIN = 30.0
"""Seconds from when the last host says that its ranks are quiet until somebody looks, in a network without faults."""


class Rank(NamedTuple):
    """A rank ends well ``after`` some seconds, ``stops`` so many after a signal (None: it ignores it), and fails
    ``echoes`` seconds after another rank has failed or its host is gone (None: never). ``told``: its code where it ends
    because of a signal.
    """

    after: float = 60.0
    stops: float | None = 0.1
    echoes: float | None = None
    told: int = 0


class Part(NamedTuple):
    """A role of the job, on the hosts ``on``: their ranks are its programs, or ``beside`` them one that ends as
    ``rank`` says. It is ready ``ready`` seconds after it has started (None: never).
    """

    name: str
    on: tuple[int, ...]
    ends: Ends = "job"
    after: tuple[str, ...] = ()
    ready: float | None = 0.5
    beside: bool = False
    rank: Rank = Rank()


class Fails(NamedTuple):
    """A rank fails, or the program of a role beside. ``at`` is seconds; ``kind`` and ``code`` are the failure's."""

    host: int
    rank: int | str
    at: float
    code: int = 1
    kind: Literal["user", "oom", "infra", "peer"] = "user"
    second_hand: bool = False


class Breaks(NamedTuple):
    """A host's job fails though no process ends there."""

    host: int
    at: float


class Stops(NamedTuple):
    """A host is told to stop."""

    host: int
    at: float
    signal: int = 15


class Dies(NamedTuple):
    """A host is killed; ``how``: its machine refuses connections then, its name vanishes, or it is dark."""

    host: int
    at: float
    how: Literal["refuses", "vanishes", "dark"] = "refuses"


class Freezes(NamedTuple):
    """A host with its ranks stands still for ``seconds``."""

    host: int
    at: float
    seconds: float


class Snaps(NamedTuple):
    """The connection of a host to the leader ends; it may dial again at once."""

    host: int
    at: float


class Quiets(NamedTuple):
    """No rank of a host prints anything any more. It takes ``look`` seconds to look at them, and says again that they
    are quiet :data:`SILENCE` seconds later.
    """

    host: int
    at: float
    look: float = 0.5


class Consults(NamedTuple):
    """A host takes a question to the leader, which waits for others' for ``seconds``."""

    host: int
    at: float
    point: str = "x"
    seconds: float = 30.0


class Keeps(NamedTuple):
    """A host keeps its last checkpoint, which takes the others' last words; it says its own ``seconds`` later."""

    host: int
    at: float
    seconds: float = 1.0


class Unplugs(NamedTuple):
    """Nothing passes between a worker and the leader for ``seconds``, ``more`` until TCP notices that it may again."""

    host: int
    at: float
    seconds: float
    more: float = 0.0


Fault = Union[Fails, Breaks, Stops, Dies, Freezes, Snaps, Unplugs, Quiets, Consults, Keeps]


class History(NamedTuple):
    """What happens to a job. ``hosts``: the ranks of each, the leader first. ``starts``: when each host starts them.

    ``latencies``: seconds to the leader. ``finish``: ``--on-failure finish``. ``tolerates``: the plan bears lost hosts.
    ``outside``: the last host is outside the distribution group; ``outside_stops``: ``--outside stop``.
    ``leaves``: seconds that each host needs to end after its decision.
    ``restarts``: ``--max-restarts``; ``on``: ``--restart-on``; ``rejoin``: ``--rejoin-timeout``.
    ``saves``: how many attempts leave a new checkpoint; None: there is no directory for them.
    ``roles``: those of the job, the hosts' own before those beside them.
    ``drains``: seconds until nothing of an attempt is left on each host. ``ahead``: by how much each wall clock is.
    """

    hosts: tuple[tuple[Rank, ...], ...]
    faults: tuple[Fault, ...] = ()
    latencies: tuple[float, ...] = (0.01, 0.01, 0.01, 0.01)
    starts: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    leaves: tuple[float, ...] = (0.1, 0.1, 0.1, 0.1)
    finish: bool = False
    tolerates: bool = False
    outside: bool = False
    outside_stops: bool = False
    restarts: int = 0
    on: RestartOn = "infra"
    rejoin: float = 0.0
    saves: int | None = None
    drains: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    ahead: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    roles: tuple[Part, ...] = ()

    @property
    def job_roles(self) -> str:
        return " and ".join(part.name for part in self.roles if part.ends == "job")

    def own(self, host: int) -> Part:
        """The role of a host's ranks."""
        return next((part for part in self.roles if host in part.on and not part.beside), Part("", (host,)))


class Host:
    """One host: ranks that live and end, the policy, and its end of the channel."""

    def __init__(self, job: Job, index: int) -> None:
        history = job.history
        self.job, self.index, self.name = job, index, name_of(index)
        self.machine = Machine.named(name_of(index), job.clock, history.ahead[index])
        self.loop = self.machine.loop
        self.outside = history.outside and index == len(history.hosts) - 1
        self.parts = tuple(part for part in history.roles if index in part.on)
        own = history.own(index)
        self.rules = Rules(
            self.name, GRACE, finish_on_failure=history.finish, tolerates_lost_peers=history.tolerates,
            outside=self.outside, ends="never" if self.outside and history.outside_stops else own.ends,
            role=own.name, job_roles=history.job_roles,
        )  # fmt: skip
        self.state = State()
        self.live: dict[ev.Live, Rank] = {}
        self.signalled: dict[ev.Live, float] = {}
        self.closed: list[Part] = []
        self.ready: set[str] = set()
        self.starts: dict[str, float] = {}
        self.ended_at: dict[ev.Live, float] = {}
        self.left_early: dict[str, float] = {}
        self.reported: list[Failure] = []
        self.killed = False
        self.over_at: float | None = None
        self.left_at: float | None = None
        self.alive_at_end = 0
        self.ranks_ended_at = 0.0
        self.failures: list[Failure] = []
        self.late: list[Failure] = []
        self.unheeded: list[Failure] = []
        self.earlier: list[Failure] = []
        self.events: list[tuple[float, ev.Event]] = []
        self.peers: Any = None
        self.began = 0.0
        self.first_stop: tuple[str, int] | None = None
        self.timers: dict[type, Timer] = {}
        self.attempt = 0
        self.asked: dict[str, float] = {}
        self.unanswered: set[str] = set()
        self.look: float | None = None
        self.quiet_since: float | None = None
        self._queue: list[ev.Event] = []
        self._busy = False

    @property
    def is_gone(self) -> bool:
        return self.loop.dead and self.left_at is None

    @property
    def outcome(self) -> tuple[int, str, str]:
        """Code, host and reason of the failure."""
        stopped = self.state.stop_signal != 0
        failure = None if stopped else self.state.root_cause or self.state.failure
        return code_of(self.state, self.rules), failure.host if failure else "", failure.reason if failure else ""

    def start(self) -> None:
        self.began = self.job.clock.now
        self.peers.listen(self.on_event)
        if not self.parts:
            self.start_own()
            return
        self.closed, self.ready = [*self.parts[1:], self.parts[0]], set()
        self.starts, self.ended_at, self.left_early = {}, {}, {}
        self.on_event(ev.Held(frozenset(part.name for part in self.parts if part.ends == "job")))
        self.open_gates()

    def start_own(self) -> None:
        ranks = dict(enumerate(self.job.history.hosts[self.index]))
        self.live.update(ranks)
        self.on_event(ev.PlanStarted(tuple(ranks)))
        for key, rank in ranks.items():
            self.end_after(rank.after, key, None)

    def open_gates(self) -> None:
        """Starts the roles that wait for nobody any more, as the gates of a supervisor do."""
        for part in [*self.closed]:
            if part in self.closed and self.ready.issuperset(part.after) and self.state.may_start:
                self.closed.remove(part)
                self.starts[part.name] = self.job.clock.now
                if part.beside:
                    self.live[part.name] = part.rank
                    self.on_event(ev.ServiceOrLauncherStarted(part.name, "service", True, part.ends))
                    self.end_after(part.rank.after, part.name, None)
                else:
                    self.start_own()
                if part.ready is not None:
                    self.watch_ready(part, part.ready)

    def watch_ready(self, part: Part, seconds: float) -> None:
        attempt = self.attempt

        def is_ready() -> None:
            runs = part.name in self.live if part.beside else any(isinstance(key, int) for key in self.live)
            if runs and attempt == self.attempt and self.state.may_start:
                self.peers.topic(ready_roles.TOPIC).ready(part.name)

        self.loop.call_later(seconds, is_ready)

    def ends_of(self, key: ev.Live) -> Ends:
        """The ``ends`` of the role of a rank, or of the one of that name beside it."""
        beside = {part.name: part.ends for part in self.parts if part.beside}
        return beside[key] if isinstance(key, str) else self.rules.ends

    def end_after(self, seconds: float, key: ev.Live, failure: Failure | None) -> None:
        """A rank of this attempt ends so, if it still lives then."""
        attempt = self.attempt
        self.loop.call_later(seconds, lambda: self.ended(key, failure) if self.attempt == attempt else None)

    def ended(self, key: ev.Live, failure: Failure | None) -> None:
        """A rank ended; ``failure`` doesn't count if it was signalled before."""
        rank = self.live.pop(key, None)
        if rank is None:
            return
        now = self.ended_at[key] = self.job.clock.now
        serves, told = bool(self.parts) and self.ends_of(key) != "job", key in self.signalled
        if not serves:
            self.ranks_ended_at = now
        if failure is not None and not told:
            through = serves and self.job.through_at <= now
            (self.failures if not through else self.late if self.rules.finish_on_failure else self.unheeded).append(
                failure
            )
        is_last = isinstance(key, str) or not any(isinstance(other, int) for other in self.live)
        if failure is None and not told and is_last and self.ends_of(key) == "with":
            self.left_early[key if isinstance(key, str) else self.rules.role] = now
        if failure is not None or told:
            self.job.echo(self)
        if told:
            failure = self.failure_of(key, rank.told, f"error {rank.told} at its end") if rank.told else None
        if isinstance(key, str):
            self.on_event(ev.ServiceOrLauncherEnded(key, "service", failure, vital=True))
        else:
            self.on_event(ev.RankEnded(key, failure))

    def failure_of(
        self, key: ev.Live, code: int, reason: str, kind: Kind = "user", second_hand: bool = False
    ) -> Failure:
        rank = key if isinstance(key, int) else None
        role = key if isinstance(key, str) else self.rules.role
        return Failure(
            self.name,
            code,
            "user",
            kind,
            reason,
            rank,
            rank,
            at=self.machine.wall(),
            second_hand=second_hand,
            role=role,
        )

    def echo(self) -> None:
        """A rank elsewhere has failed."""
        for key, rank in self.live.items():
            if rank.echoes is not None:
                echo = self.failure_of(key, 1, f"connection closed by peer {self.name}", kind="peer")
                self.end_after(rank.echoes, key, echo)

    def on_event(self, event: ev.Event) -> None:
        if isinstance(event, LookAsked):
            self.quiet_since = None
            self.loop.call_later(self.look or 0.0, self.looked)
        if isinstance(event, (LookAsked, AllLooked)):
            return
        if isinstance(event, RoleReady):
            self.ready.add(event.role)
            self.open_gates()
            return
        if isinstance(event, NotReady):
            reason = f"muster: {event.role} isn't ready after {event.seconds:g} s"
            event = ev.Broken(Failure(self.name, 69, "muster", "infra", reason, at=self.machine.wall()))
        self._queue.append(event)
        if self._busy:
            return
        self._busy = True
        while self._queue:
            happened = self._queue.pop(0)
            self.events.append((self.job.clock.now, happened))
            self.state, actions = decide(self.state, happened, self.rules)
            if isinstance(happened, (ev.StopAsked, StopAll)):
                where = self.name if isinstance(happened, ev.StopAsked) else happened.host
                self.first_stop = self.first_stop or (where, happened.signal)
            for action in actions:
                ACTS[type(action)](self, action)
        self._busy = False

    def looked(self) -> None:
        self.peers.topic(quiet_hosts.TOPIC).looked(())
        if self.look is not None:
            self.loop.call_later(SILENCE, self.falls_silent)

    def falls_silent(self) -> None:
        if self.over_at is None and self.live:
            self.quiet_since = self.job.clock.now
            self.peers.topic(quiet_hosts.TOPIC).quiet(True)

    def signal(self, whom: ev.Whom) -> None:
        for key, rank in list(self.live.items()):
            if key not in self.signalled and (whom == "all" or (self.ends_of(key) == "job") == (whom == "job")):
                self.signalled[key] = self.job.clock.now
                if rank.stops is not None:
                    self.end_after(rank.stops, key, None)

    def kill(self) -> None:
        self.killed = True
        for key in list(self.live):
            self.signalled.setdefault(key, self.job.clock.now)
            self.end_after(0.0, key, None)

    def start_timer(self, action: ev.StartTimer) -> None:
        old = self.timers.get(type(action.event))
        if old is not None:
            old.cancel()
        self.timers[type(action.event)] = self.loop.call_later(action.seconds, lambda: self.on_event(action.event))

    def told_to_stop(self, signal: int) -> None:
        """The platform stops this host."""
        self.on_event(ev.StopAsked(signal))

    def finish(self) -> None:
        self.over_at = self.job.clock.now
        self.end_services()
        self.alive_at_end = len(self.live)
        self.loop.call_later(self.job.history.leaves[self.index], self.leave)

    def end_services(self) -> None:
        """Services that were told, and had their time, are killed at the end."""
        stood = any(isinstance(fault, Freezes) and fault.host == self.index for fault in self.job.history.faults)
        had = self.job.clock.now - (0.0 if stood else GRACE / 2 - 0.01)  # its time may be over when it is thawed
        for key in [key for key in self.live if isinstance(key, str) and self.signalled.get(key, HORIZON) <= had]:
            del self.live[key]

    def report(self, failure: Failure) -> None:
        self.reported.append(failure._replace(at=failure.at or self.machine.wall()))
        self.peers.failed(failure)

    def leave(self) -> None:
        self.peers.close()
        self.left_at = self.job.clock.now
        self.job.network.gone(self.machine, "refuses")


ACTS: dict[type, Callable[[Host, Any], None]] = {
    ev.ReportFailure: lambda host, action: host.report(action.failure),
    ev.ReportStop: lambda host, action: host.peers.stopping(action.signal),
    ev.ReportDone: lambda host, action: host.peers.done(action.code, action.failures),
    ev.SignalRanks: lambda host, action: host.signal(action.whom),
    ev.StartTimer: lambda host, action: host.start_timer(action),
    ev.KillTree: lambda host, action: host.kill(),
    ev.Release: lambda host, action: None,
    ev.Say: lambda host, action: host.machine.said.append(action.text),
    ev.Finish: lambda host, action: host.finish(),
}


class _Listener:
    """What :class:`Reconnects` needs of the listener."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def hand_over(self, owner: Any) -> None:
        self._network.on_resume = owner.on_resume

    def refuse(self, link: Link, reason: str, **more: Any) -> None:
        from musterpoint.core.channel import wire

        link.send(wire.pack("refused", reason=reason, **more))
        link.ignore()


def name_of(index: int) -> str:
    return f"algo-{index + 1}"


class Job:
    """All hosts, connected after the roll call."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.clock = Clock()
        self.broken: list[str] = []
        self.stops_heard: list[float] = []
        self._through = (0, HORIZON)
        self.hosts = [self._host(index) for index in range(len(history.hosts))]
        self._connect()
        for fault in history.faults:
            # a signal that comes earlier is handled once the ranks are started
            when = max(fault.at, history.starts[fault.host]) if isinstance(fault, (Stops, Breaks)) else fault.at
            self.clock.at(when, lambda fault=fault: FAULTS[type(fault)](self, self.hosts[fault.host], fault))

    def _connect(self) -> None:
        """All hosts have the roster, and start their ranks when their time comes."""
        history = self.history
        leader, workers = self.hosts[0], self.hosts[1:]
        if not workers:
            self._connect_nobody(leader)
            return
        cuts = [
            Cut(name_of(fault.host), fault.at, fault.seconds, fault.more)
            for fault in history.faults
            if isinstance(fault, Unplugs)
        ]
        latencies = {host.name: history.latencies[host.index] for host in workers}
        self.network = Network(self.clock, leader.machine, latencies, cuts, TIMEOUTS)
        names = frozenset(host.name for host in self.hosts)
        first = history.own(0).on if history.roles else range(len(self.hosts))
        group = frozenset(host.name for host in self.hosts if not host.outside and host.index in first)
        seats = tuple(Seat(host.name, "10.0.0.1", 1, host.name in group) for host in self.hosts)
        roster = Roster("job", "5e55" * 8, seats, "10.0.0.1", 7777, leader.name, max_restarts=history.restarts)
        self.roster = roster
        members: dict[str, HostState] = {}
        nobody = LinkOwner(lambda link, payload: None, lambda link, why, eof: None)
        far_ends = {}
        for host in workers:
            near, far = self.network.connect(host.machine)
            far_ends[host.name] = near
            context = leader.machine.context(TIMEOUTS)
            link = Link(context, cast(Any, far), host.name, MEMBER_LIMIT, nobody)
            session = Session(0.0, False, SETTINGS.silence_timeout, TIMEOUTS)
            members[host.name] = HostState(host.name, link, session)
        context = leader.machine.context(TIMEOUTS)
        job_hosts = JobHosts(leader.name, members, group, max_restarts=history.restarts, worlds=self.worlds)
        leader.peers = LeaderChannel(context, job_hosts, history.finish, self._close_listener)
        leader.peers.emit = self._notice_end(leader.peers.emit)
        offer = Offer("job", "ranks", 1, "0.1", 1)
        calls = {
            name: Call(cast(Hello, type("H", (), {"host": name, "offer": offer, "name": ""})), state, "10.0.0.2", 0.0)
            for name, state in members.items()
        }
        Reconnects(context, cast(Any, _Listener(self.network)), roster, b"", calls, leader.peers)
        settings = SETTINGS._replace(on_failure="finish" if history.finish else "end")
        for host in workers:
            context = host.machine.context(TIMEOUTS)
            link = Link(context, cast(Any, far_ends[host.name]), leader.name, LEADER_LIMIT, nobody)
            member = Membership(
                host.name, leader.name, names, "10.0.0.2", roster.session, Ticket(*members[host.name].ticket)
            )
            dialer = SimulatedDialer.maker(self.network, host.machine)
            host.peers = WorkerChannel(context, cast(Any, dialer), link, member, settings)
        for host, start in zip(self.hosts, history.starts):
            self.clock.at(start, host.start)

    @property
    def worlds(self) -> tuple[World, ...]:
        return tuple(
            World(part.name, frozenset(map(name_of, part.on)), part.ends == "job", part.after, READY_WITHIN, beside)
            for part in self.history.roles
            for beside in ("another" if part.beside else "",)
        )

    def _connect_nobody(self, host: Host) -> None:
        """A job of one host."""
        self.network = Network(self.clock, host.machine, {}, [], TIMEOUTS)
        host.peers = LoneChannel(host.loop, self.worlds)
        host.peers.emit = self._notice_end(host.peers.emit)
        self.roster = Roster("job", "5e55" * 8, (Seat(host.name, "10.0.0.1", 1),), "10.0.0.1", 7777, host.name)
        self.clock.at(self.history.starts[0], host.start)

    @property
    def through_at(self) -> float:
        """When the leader knew that the job's roles are through, in the last attempt."""
        attempt, at = self._through
        return at if attempt == self.hosts[0].attempt and self.history.roles else HORIZON

    def _notice_end(self, emit: Callable[[Any], None]) -> Callable[[Any], None]:
        def noticed(event: Any) -> None:
            if isinstance(event, GroupEnded):
                self._through = self.hosts[0].attempt, self.clock.now
            emit(event)

        return noticed

    def begins(self, host: Host) -> None:
        """``host`` starts the ranks of an attempt: nothing of an earlier one may live."""
        for other in self.hosts:
            if other.live and other.attempt < host.attempt and not other.is_gone:
                self.broken.append(f"attempt {host.attempt} begins on {host.name}, and {other.name} has ranks of "
                                   f"attempt {other.attempt}")  # fmt: skip

    def _host(self, index: int) -> Host:
        if not self.history.restarts:
            return Host(self, index)
        from .simulated_restarts import RestartingHost

        return RestartingHost(self, index)

    def _close_listener(self) -> None:
        self.network.listens = False

    def echo(self, of: Host) -> None:
        for host in self.hosts:
            if not (host.outside or of.outside):
                host.loop.do(host.echo)

    # faults

    def fails(self, host: Host, fault: Fails) -> None:
        failure = host.failure_of(
            fault.rank, fault.code, f"error {fault.code} of {host.name}", fault.kind, fault.second_hand
        )
        host.loop.do(lambda: host.ended(fault.rank, failure))

    def breaks(self, host: Host, fault: Breaks) -> None:
        def broken() -> None:
            if host.over_at is None:
                failure = Failure(host.name, 74, "muster", "infra", "muster: stalled", at=host.machine.wall())
                if host.state.phase in ("running", "judging", "waiting") and not host.state.stopped_by:
                    (host.late if host.state.phase == "waiting" else host.failures).append(failure)
                host.on_event(ev.Broken(failure))

        host.loop.do(broken)

    def stops(self, host: Host, fault: Stops) -> None:
        def told() -> None:
            if host.over_at is None:
                self.stops_heard.append(self.clock.now)
                host.told_to_stop(fault.signal)

        host.loop.do(told)

    def quiets(self, host: Host, fault: Quiets) -> None:
        def quiet() -> None:
            if host.look is None:
                host.look = fault.look
                host.falls_silent()

        host.loop.do(quiet)

    def consults(self, host: Host, fault: Consults) -> None:
        def answered(_answer: object) -> None:
            host.unanswered.discard(fault.point)

        def decide(reports: dict[str, Report]) -> consultations.Answer:
            return consultations.Answer(fault.point, ",".join(reports))

        def ask() -> None:
            if host.over_at is None and fault.point not in host.asked:
                host.asked[fault.point] = self.clock.now + fault.seconds
                host.unanswered.add(fault.point)
                asked = consultations.Ask(fault.point, str(host.index))
                host.peers.topic(consultations.TOPIC).consult(asked, decide, answered, fault.seconds)

        host.loop.do(ask)

    def keeps(self, host: Host, fault: Keeps) -> None:
        topic = whole_checkpoints.TOPIC
        said = whole_checkpoints.NoMoreParts() if host.index else whole_checkpoints.NoMoreMarks()
        host.loop.do(lambda: host.peers.topic(topic).wait())
        self.clock.at(fault.at + fault.seconds, lambda: host.loop.do(lambda: host.peers.topic(topic).tell(said)))

    def dies(self, host: Host, fault: Dies) -> None:
        if not host.loop.dead:
            self.network.gone(host.machine, fault.how)
            self.echo(host)

    def freezes(self, host: Host, fault: Freezes) -> None:
        host.loop.freeze()
        self.clock.at(fault.at + fault.seconds, host.loop.thaw)

    def snaps(self, host: Host, fault: Snaps) -> None:
        if host.index and not self.network.is_cut(host.name):
            self.network.reset(host.name)

    def when(self, failure: Failure) -> float:
        """When it really happened, in seconds of the simulation."""
        ahead = next(host.machine.ahead for host in self.hosts if host.name == failure.host)
        return failure.at - EPOCH - ahead

    @property
    def is_over(self) -> bool:
        return all(host.loop.dead for host in self.hosts)


FAULTS: dict[type, Callable[[Job, Host, Any], None]] = {
    Fails: Job.fails, Breaks: Job.breaks, Stops: Job.stops, Dies: Job.dies, Freezes: Job.freezes, Snaps: Job.snaps,
    Unplugs: lambda job, host, fault: None, Quiets: Job.quiets, Consults: Job.consults,
    Keeps: Job.keeps,
}  # fmt: skip


def play(history: History) -> Job:
    job = Job(history)
    job.clock.run(HORIZON, lambda: job.is_over or bool(waits_for_nobody(job) or nobody_looks(job)))
    job.broken += waits_for_nobody(job) + nobody_looks(job)
    return job


def nobody_looks(job: Job) -> list[str]:
    """All ranks have been quiet for long, and their hosts aren't asked to look at them."""
    if any(isinstance(fault, (Dies, Freezes, Snaps, Unplugs)) for fault in job.history.faults) or job.history.roles:
        return []  # ranks that wait for a role, and services, are quiet for long
    running = [host for host in job.hosts if not host.outside and not host.loop.dead and host.state.live]
    since = [host.quiet_since for host in running]
    quiet = [each for each in since if each is not None]
    ends = [at for host in job.hosts for at, event in host.events if isinstance(event, ev.RankEnded)]
    if running and len(quiet) == len(since) and job.clock.now - max(quiet + ends) > LOOKS_WITHIN:
        return [f"all ranks are quiet since {max(quiet + ends):.2f}, and nobody looks"]
    return []


def waits_for_nobody(job: Job) -> list[str]:
    """What waits for a host that has gone, by what the channel itself knows: nothing would end it."""
    found = []
    for host in job.hosts:
        if host.loop.dead or host.peers is None:
            continue
        for topic in TOPICS:
            half: Any = host.peers.topic(topic)
            if host.index:
                if host.peers.is_alone and half.awaits_leader():
                    found.append(f"{host.name}: {topic.name} waits for a leader that is gone")
            else:
                found += [
                    f"{topic.name} waits for {other}, which is gone" for other in set(half.awaits()) & host.peers.away
                ]
    return found


def told(job: Job) -> str:
    """What happened on each host, for people."""
    lines = [str(job.history)]
    for host in job.hosts:
        lines.append(f"{host.name}: {host.state.phase}, over at {host.over_at}, left at {host.left_at}, {host.outcome}")
        lines += [f"  {at:.2f} {event}" for at, event in host.events]
        lines += [f"  said: {text}" for text in host.machine.said]
    return "\n".join(lines)
