"""A job of many hosts from its roll call to its end: the real leader, workers and policy, on a simulated network.

Connections wait at the port of the leader until it takes them, one by one; all else takes no processor.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from functools import partial
from typing import Any, Callable, Literal, NamedTuple, cast
from unittest import mock

from musterpoint.base.settings import Settings
from musterpoint.core.channel.dial import NOTHING, REFUSED, Miss, OnConnect, OnMiss, Target, longest_try, pause_before
from musterpoint.core.channel.names import Answer, Names
from musterpoint.core.channel.peers import JobFailed, PeerLost, StopAll
from musterpoint.core.rollcall.leader_call import LeaderCall
from musterpoint.core.rollcall.roster import Offer, Participant
from musterpoint.core.rollcall.worker_call import WorkerCall

from .simulated_hosts import Dies, Fails, History, Host, Job, Rank, Stops, name_of
from .simulated_network import TIMEOUTS, Clock, Machine, Network, SimulatedDialer, SimulatedSocket

OFFER = Offer("job", "torchrun", 8, "0.1", 8)
LEADER_ADDRESS = "10.128.0.1"
SYN_AGAIN = 1.0
"""Seconds after which the kernel sends a SYN again that nobody has answered."""
LOST_FOR = 0.2
"""Seconds after which TCP sends again what was lost; twice as long each further time."""
TAKES = 100e-6
"""Seconds from one connection that the leader takes at its port to the next."""
AFTER_ALL = 1e9
"""Ranks don't end by themselves."""


class Conditions(NamedTuple):
    """``hosts`` of a job and how they are.

    ``latency``: seconds to the leader; of the ``slow`` share of hosts, which are late with all they do, ``slow_by``
    seconds. ``loss``: share of what is sent that is lost on its way and sent again.
    ``lookup``: seconds of a look-up of a name; of ``slow_names``, a share, ``slow_lookup``. ``looked_up``: the leader
    looks all names up (there is no hosts file that has them, and no secret).
    ``spread``: seconds within which the hosts start. ``backlog``: connections that may wait at the leader's port.
    """

    hosts: int
    latency: float = 0.0005
    slow: float = 0.01
    slow_by: float = 0.25
    loss: float = 0.001
    lookup: float = 0.002
    slow_names: float = 0.01
    slow_lookup: float = 1.0
    looked_up: bool = False
    spread: float = 0.0
    backlog: int = 4096
    seed: int = 1


class ListeningSocket:
    """The port of the roll call: up to ``backlog`` connections wait there to be taken."""

    NUMBER = 1

    def __init__(self, machine: Machine, backlog: int) -> None:
        self._loop, self._backlog = machine.loop, backlog
        self._waiting: deque[tuple[SimulatedSocket, str]] = deque()
        self._takes = self.closed = False

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= self._backlog

    def arrive(self, end: SimulatedSocket, address: str) -> None:
        self._waiting.append((end, address))
        if len(self._waiting) == 1:
            self._loop.call_later(TAKES, self._ready)

    def _ready(self) -> None:
        self._takes = True
        self._loop.ready(self.NUMBER)

    def fileno(self) -> int:
        return -1 if self.closed else self.NUMBER

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        if not (self._takes and self._waiting):
            raise BlockingIOError
        self._takes = False
        end, address = self._waiting.popleft()
        if self._waiting:
            self._loop.call_later(TAKES, self._ready)
        if end._inbox:
            self._loop.call_later(0.0, lambda: self._loop.ready(end.fileno()))
        return end, (address, 0)

    def close(self) -> None:
        self.closed = True


class CrowdNetwork(Network):
    """With loss, and a port at which connections wait."""

    def __init__(self, clock: Clock, leader: Machine, latencies: dict[str, float], given: Conditions) -> None:
        super().__init__(clock, leader, latencies, [], TIMEOUTS)
        self.port = ListeningSocket(leader, given.backlog)
        self._given = given
        self._draw = random.Random(given.seed)
        self.dropped = self.gone_count = 0

    def arrival(self, worker: str, sent: float, opened: float) -> float:
        again, late = LOST_FOR, 0.0
        while self._draw.random() < self._given.loss:
            late += again
            again *= 2
        return super().arrival(worker, sent, opened) + late

    def gone(self, machine: Machine, how: str) -> None:
        super().gone(machine, how)
        self.gone_count += 1

    def latency(self, worker: Machine) -> float:
        return self._latencies[worker.name]

    def knock(self, worker: Machine) -> bool | Miss:
        """A SYN has come: False: nobody answers, since too many wait at the port."""
        if self._leader.gone or self.port.closed:
            return REFUSED
        self.dropped += self.port.is_full
        return not self.port.is_full


class CrowdDialer(SimulatedDialer):
    """With the time that a connection takes, and a port at which too many may wait. ``names``: of this host."""

    def __init__(
        self, network: CrowdNetwork, machine: Machine, names: Names, target: Target, *calls: OnConnect | OnMiss
    ) -> None:
        super().__init__(network, machine, cast(OnConnect, calls[0]), cast(OnMiss, calls[1]))
        self._crowd, self._names, self._target = network, names, target

    def _pause(self, tries: int) -> float:
        return pause_before(tries, TIMEOUTS)

    def _try(self, this: int) -> None:
        if this == self._tries:
            self._names.look_up_both(self._target.host, partial(self._call, this))

    def _call(self, this: int, answer: Answer) -> None:
        if this != self._tries:
            return
        if not answer.addresses:
            self._missed(this, NOTHING)
            return
        loop, way = self._machine.loop, self._crowd.latency(self._machine)
        over_at = loop.clock() + (longest := longest_try(TIMEOUTS))
        timeout = loop.call_later(longest, lambda: self._gives_up(this))

        def syn() -> None:
            if this != self._tries or loop.clock() > over_at:
                return
            found = self._crowd.knock(self._machine)
            if found is True:
                near, far = self._crowd.connect(self._machine)
                self._crowd.port.arrive(far, address_of(self._machine.name))
                loop.call_later(way, lambda: self._connected(this, near, timeout.cancel))
            elif found is False:
                loop.call_later(SYN_AGAIN, syn)
            else:
                timeout.cancel()
                loop.call_later(way, lambda: self._missed(this, REFUSED))

        loop.call_later(way, syn)

    def _connected(self, this: int, near: SimulatedSocket, cancel: Callable[[], None]) -> None:
        cancel()
        if this == self._tries:
            self._on_connect(near, LEADER_ADDRESS)  # type: ignore[arg-type]
        else:
            near.close()

    def _gives_up(self, this: int) -> None:
        if this == self._tries:
            self._missed(this, NOTHING)


def address_of(name: str) -> str:
    # scattered over the network as a cloud does it, and the same in each run
    number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=3).digest(), "big") >> 2
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


class Crowd(Job):
    """``held``: when each host had the roster."""

    def __init__(self, given: Conditions, restarts: int = 0) -> None:
        self.given = given
        self.held: list[float | None] = [None] * given.hosts
        self.here = 0
        self.heard: dict[type, list[float]] = {}
        self.began_at: dict[int, list[float]] = {}
        self._draw = random.Random(given.seed)
        ranks = [(Rank(after=AFTER_ALL, stops=0.05 + tenth / 100),) for tenth in range(10)]
        n = given.hosts
        history = History(
            tuple(ranks[index % len(ranks)] for index in range(n)), (), (), (0.0,) * n, (0.1,) * n,
            restarts=restarts, drains=(0.0,) * n, ahead=(0.0,) * n,
        )  # fmt: skip
        super().__init__(history)

    def _connect(self) -> None:
        given, leader = self.given, self.hosts[0]
        latencies = {}
        for host in self.hosts[1:]:
            slow = self._draw.random() < given.slow
            latencies[host.name] = given.slow_by if slow else given.latency * self._draw.uniform(0.5, 2.0)
        self.network: CrowdNetwork = CrowdNetwork(self.clock, leader.machine, latencies, given)
        names = tuple(host.name for host in self.hosts)
        settings = Settings(rollcall_timeout=600.0, max_restarts=self.history.restarts)
        first = Participant(names, names, leader.name, OFFER, settings)
        fixed: dict[str, tuple[str, ...]] = {}
        if not given.looked_up:
            fixed = {name: (address_of(name),) for name in names[1:]}
        fixed[leader.name] = (LEADER_ADDRESS,)
        self.call = LeaderCall(
            leader.machine.context(TIMEOUTS), self._names(leader.machine, fixed), first, lambda: (7777, 7778),
            listening=lambda _port, _me: cast(Any, self.network.port),
        )  # fmt: skip
        following = leader.loop.turned
        leader.loop.turned = lambda: self._leader_is_ready(following)
        self.clock.at(0.0, lambda: leader.loop.do(self.call.start))
        for host in self.hosts[1:]:
            part = Participant(names, names, host.name, OFFER, settings)
            start = self._draw.uniform(0.0, given.spread) if given.spread else 0.0
            self.clock.at(start, partial(self._join, host, part))

    def _names(self, machine: Machine, fixed: dict[str, tuple[str, ...]]) -> Names:
        def begin(run: Callable[[str, int], None], about: tuple[str, int]) -> None:
            slow = self._draw.random() < self.given.slow_names
            seconds = self.given.slow_lookup if slow else self.given.lookup
            self.clock.at(machine.loop.clock() + seconds, lambda: run(*about))

        def lookup(name: str, family: int) -> Answer:
            address = LEADER_ADDRESS if name == name_of(0) else address_of(name)
            return Answer((address,)) if family == 2 else Answer((), "no such name", True)

        return Names(machine.loop, fixed, lookup, begin)

    def _join(self, host: Host, part: Participant) -> None:
        """A worker starts; it knows itself, and asks for the leader's address."""
        names = self._names(host.machine, {host.name: ("10.0.0.2",)})
        dialer = partial(CrowdDialer, self.network, host.machine, names)
        call = WorkerCall(host.machine.context(TIMEOUTS), names, part, dialer=cast(Any, dialer))
        following = host.loop.turned
        host.loop.turned = lambda: self._is_ready(host, call, following)
        call.start()

    def _leader_is_ready(self, following: Callable[[], None]) -> None:
        if self.call.result is not None and self.hosts[0].peers is None:
            roster, _ = self.call.result
            self.roster = roster
            self._starts(self.hosts[0], self.call.result[1], following)

    def _is_ready(self, host: Host, call: WorkerCall, following: Callable[[], None]) -> None:
        if call.error is not None:
            self.broken.append(f"{host.name}: {call.error}")
            host.loop.turned = _nothing
        elif call.result is not None and host.peers is None:
            self._starts(host, call.result[1], following)

    def _starts(self, host: Host, peers: Any, following: Callable[[], None]) -> None:
        self.held[host.index] = self.clock.now
        self.here += 1
        host.loop.turned = following
        host.events = cast(Any, Heard(self))
        host.peers = peers
        host.start()

    def echo(self, of: Host) -> None:
        """No rank has an echo."""

    def begins(self, host: Host) -> None:
        """That the attempts follow each other is looked at where there are few hosts."""
        self.began_at.setdefault(host.attempt, []).append(self.clock.now)


class Heard:
    """In place of a host's list of events: when each kind of them came."""

    __slots__ = ("_crowd",)

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd

    def append(self, event: tuple[float, Any]) -> None:
        self._crowd.heard.setdefault(type(event[1]), []).append(event[0])


def _nothing() -> None:
    """A host that is over."""


class Played(NamedTuple):
    """Seconds of a simulated job. ``roll_call``: from the first start to the last host that holds the roster.

    ``told``: from what ends the job until the last host knows. ``begun``: until the ranks of the next attempt have
    started on the last host. ``over``: until the last host has ended. ``dropped``: how often the port was full.
    """

    roll_call: float
    told: float
    begun: float
    over: float
    dropped: int
    broken: tuple[str, ...] = ()


End = Literal["fails", "stops", "restarts", "lost"]
LONGEST, WATCHED = 900.0, 7.0
"""Seconds that a job may take, and that it goes on before it ends."""


def play_crowd(given: Conditions, end: End = "fails") -> Played:
    """A job from its roll call to its end: it goes on for some seconds, then a rank of one host fails, or the host is
    stopped, or it is lost; where it ``restarts``, all start anew once.
    """
    with mock.patch("os.urandom", random.Random(given.seed).randbytes):  # tokens that are the same in each run
        return _play(Crowd(given, restarts=1 if end == "restarts" else 0), end)


def _play(crowd: Crowd, end: End) -> Played:
    clock, n = crowd.clock, crowd.given.hosts

    def until(done: Callable[[], bool], longest: float = LONGEST) -> float:
        began = clock.now
        clock.run(began + longest, lambda: done() or bool(crowd.broken))
        return clock.now - began

    until(lambda: crowd.here == n)
    roll_call = max((each for each in crowd.held if each is not None), default=0.0)
    until(lambda: False, WATCHED)
    host = crowd.hosts[n // 2]
    if end == "stops":
        crowd.stops(host, Stops(host.index, clock.now))
    elif end == "lost":
        crowd.dies(host, Dies(host.index, clock.now))
    else:
        crowd.fails(host, Fails(host.index, 0, clock.now, kind="infra" if end == "restarts" else "user"))
    kind, missing = (StopAll, 1) if end == "stops" else (PeerLost, 1) if end == "lost" else (JobFailed, 0)
    told = until(lambda: len(crowd.heard.get(kind, ())) >= n - missing)
    begun = 0.0
    if end == "restarts":
        begun = told + until(lambda: len(crowd.began_at.get(1, ())) >= n)
        second = crowd.hosts[n // 3]
        crowd.fails(second, Fails(second.index, 0, clock.now))
    over = told + until(lambda: crowd.network.gone_count >= n)
    return Played(roll_call, told, begun, over, crowd.network.dropped, tuple(crowd.broken[:4]))
