"""A network and a clock that are simulated, for the real ends of the channel: seconds of a job take no time.

A connection keeps its bytes in order, as TCP does; what is sent while the network is cut comes after the cut, unless
the connection ends or the sender is gone by then.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Any, Callable, NamedTuple

from musterpoint.base.loop import Loop, Timer
from musterpoint.core.channel import wire
from musterpoint.core.channel.connection_log import ConnectionLog
from musterpoint.core.channel.dial import NOTHING, REFUSED, VANISHED, Miss, OnConnect, OnMiss, Target
from musterpoint.core.channel.link import Context, Link, LinkOwner
from musterpoint.core.channel.session import Resume
from musterpoint.core.channel.timeouts import Timeouts

TIMEOUTS = Timeouts()
ACCEPT, TIMER = 1, 2
EPOCH = 1_000_000.0
"""What a right wall clock shows when a simulated job begins."""
GONE: dict[str, Miss] = {"refuses": REFUSED, "vanishes": VANISHED, "dark": NOTHING}
"""What dialling a host that is gone leads to: its machine answers, its name is gone too, or nothing answers."""


class Clock:
    """``now`` is the simulated time; :meth:`at` plans a call, :meth:`run` makes all until a time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._planned, (max(when, self.now), next(self._count), call))

    def run(self, until: float, over: Callable[[], bool]) -> None:
        while self._planned and self._planned[0][0] <= until and not over():
            self.step()

    def step(self) -> None:
        self.now, _, call = heapq.heappop(self._planned)
        call()


class SimulatedLoop(Loop):
    """The loop of one host. Frozen, it does nothing; thawed, it reads what has come meanwhile, then takes the new
    connections, and calls the timers that are due last. ``turned`` is called after each of them.
    """

    def __init__(self, clock: Clock) -> None:
        self._simulation = clock
        self.clock = lambda: clock.now
        self._readers: dict[int, Callable[[int], None]] = {}
        self._frozen = False
        self._kept: list[tuple[int, float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.dead = False
        self.turned: Callable[[], None] = _nothing

    def watch(self, fd: int, interest: int, call: Callable[[int], None]) -> None:
        self._readers[fd] = call

    def forget(self, fd: int) -> None:
        self._readers.pop(fd, None)

    def ready(self, fd: int) -> None:
        """Something can be read from ``fd``."""
        self.do(lambda: self._readers.get(fd, _nothing)(1))

    def call_at(self, when: float, call: Callable[[], None]) -> Timer:
        timer = Timer(when, call)
        self._simulation.at(when, lambda: self.do(lambda: (timer.call or _nothing)(), TIMER, when))
        return timer

    def post(self, call: Callable[[], None]) -> None:
        self.do(call)

    def prepare_posts(self) -> None:
        """Nothing has to be opened."""

    def turn(self, longest: float | None = None) -> None:
        """A host that blocks: the others go on."""
        self._simulation.at(self._simulation.now + (longest or 0.0), _nothing)
        self._simulation.step()

    def do(self, call: Callable[[], Any], turn: int = 0, when: float = 0.0) -> None:
        """Calls ``call`` now, or when this host is thawed, in its ``turn``."""
        if self.dead:
            return
        if self._frozen:
            heapq.heappush(self._kept, (turn, when, next(self._order), call))
        else:
            call()
            self.turned()

    def freeze(self) -> None:
        self._frozen = True

    def thaw(self) -> None:
        self._frozen = False
        while self._kept and not self._frozen:
            self.do(heapq.heappop(self._kept)[3])


def _nothing(*_arguments: Any) -> None:
    """What a cancelled timer and a closed socket do."""


class Machine(NamedTuple):
    """Where a host runs: its ``name``, its ``loop``, and ``said``: lines that it printed. ``ahead``: seconds by which
    its wall clock is.
    """

    name: str
    loop: SimulatedLoop
    said: list[str]
    gone: list[str]
    ahead: float = 0.0

    @classmethod
    def named(cls, name: str, clock: Clock, ahead: float = 0.0) -> Machine:
        return cls(name, SimulatedLoop(clock), [], [], ahead)

    def wall(self) -> float:
        return EPOCH + self.ahead + self.loop.clock()

    def context(self, timeouts: Timeouts) -> Context:
        log = ConnectionLog(self.said.append, lambda *_words, **_facts: None)
        return Context(self.loop, timeouts, log, self.wall)


class Cut(NamedTuple):
    """Nothing passes between a worker and the leader from ``at`` on for ``seconds``; TCP needs ``more`` to notice."""

    host: str
    at: float
    seconds: float
    more: float = 0.0


class SimulatedSocket:
    """One end of a connection, as :class:`musterpoint.core.channel.link.Link` uses sockets."""

    _numbers = itertools.count(1000)

    def __init__(self, network: Network, machine: Machine, worker: str) -> None:
        self._network, self._machine, self._worker = network, machine, worker
        self._number = next(self._numbers)
        self._inbox: list[bytes | memoryview] = []
        self._last = 0.0
        self._opened = network.clock.now
        self.closed = False
        self.other: SimulatedSocket

    def setblocking(self, _flag: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *_option: int) -> None:
        """It has no options."""

    def fileno(self) -> int:
        return self._number

    def send(self, data: bytes | memoryview) -> int:
        self._transmit(data)
        return len(data)

    def sendmsg(self, parts: list[memoryview]) -> int:
        return self.send(b"".join(parts))

    def recv(self, _most: int) -> bytes:
        if not self._inbox:
            raise BlockingIOError
        if not self._inbox[0]:
            return b""
        found = self._take()
        whole = found[0].obj if len(found) == 1 and isinstance(found[0], memoryview) else None
        # the same bytes go to many hosts: they aren't copied for each
        data = whole if isinstance(whole, bytes) and len(whole) == len(found[0]) else b"".join(found)
        if self._inbox:
            self._machine.loop.call_later(0.0, lambda: self._machine.loop.ready(self._number))
        return data

    def _take(self) -> list[bytes | memoryview]:
        """What has come, but for the end."""
        end = next((place for place, data in enumerate(self._inbox) if not data), len(self._inbox))
        found = self._inbox[:end]
        del self._inbox[:end]
        return found

    def shutdown(self, _how: int) -> None:
        self.close()
        raise OSError("nobody waits for the other end to close")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._transmit(b"")

    def reset(self) -> None:
        """The connection ends at both ends; what was under way is lost."""
        for end in (self, self.other):
            end.receive(b"")
            end.closed = True

    def _transmit(self, data: bytes | memoryview) -> None:
        now = self._machine.loop.clock()
        when = self._network.arrival(self._worker, now, self._opened)
        self._last = when = max(when, self._last)
        sender, other = self._machine, self.other

        def deliver() -> None:
            # a host that has left takes along what it couldn't deliver
            if not sender.gone or when <= now + 1.5:
                other.receive(data)

        self._network.clock.at(when, deliver)

    def receive(self, data: bytes | memoryview) -> None:
        if not self.closed:
            self._inbox.append(data)
            self._machine.loop.ready(self._number)


class Network:
    """The ways between the ``leader`` and each worker. ``latencies`` are seconds by worker."""

    def __init__(
        self, clock: Clock, leader: Machine, latencies: dict[str, float], cuts: list[Cut], timeouts: Timeouts
    ) -> None:
        self.clock, self._leader, self._latencies, self._cuts = (
            clock,
            leader,
            latencies,
            sorted(cuts, key=lambda cut: cut.at),
        )
        self._timeouts = timeouts
        self._ends: dict[str, list[SimulatedSocket]] = {name: [] for name in latencies}
        self.listens = True
        self.on_resume: Callable[[Link, Resume], None]

    def arrival(self, worker: str, sent: float, opened: float) -> float:
        """When something sent now arrives, over a connection that was ``opened`` then: only one that was there before
        a cut has to notice that it is over.
        """
        when = sent + self._latencies[worker]
        for cut in self._cuts:
            over = cut.at + cut.seconds + (cut.more if opened <= cut.at else 0.0)
            if cut.host == worker and cut.at <= when < over:
                when = over
        return when

    def is_cut(self, worker: str) -> bool:
        now = self.clock.now
        return any(cut.host == worker and cut.at <= now < cut.at + cut.seconds for cut in self._cuts)

    def connect(self, worker: Machine) -> tuple[SimulatedSocket, SimulatedSocket]:
        """The two ends of a new connection, the worker's first."""
        near, far = SimulatedSocket(self, worker, worker.name), SimulatedSocket(self, self._leader, worker.name)
        near.other, far.other = far, near
        self._ends[worker.name].append(near)
        return near, far

    def reset(self, worker: str) -> None:
        for end in self._ends[worker]:
            if not end.closed:
                end.reset()

    def gone(self, machine: Machine, how: str) -> None:
        """``machine`` has ended or is killed; its kernel says so, unless it is ``dark``."""
        machine.gone.append(how)
        machine.loop.dead = True
        if machine is self._leader:
            found = [near.other for ends in self._ends.values() for near in ends]
        else:
            found = self._ends.get(machine.name, [])
        for end in found:
            if how == "dark":
                end.closed = True
            end.close()

    def dial(self, worker: Machine) -> Callable[[SimulatedSocket], None] | Miss | None:
        """What a try to connect to the leader meets: an open port, a miss, or (None) nothing."""
        if self.is_cut(worker.name):
            return None
        if self._leader.gone:
            return GONE[self._leader.gone[0]]
        return self._accept if self.listens else REFUSED

    def _accept(self, end: SimulatedSocket) -> None:
        self._leader.loop.do(lambda: self._open(end), ACCEPT)

    def _open(self, end: SimulatedSocket) -> None:
        """The port where hosts reconnect: reads the first message."""

        def opened(link: Link, payload: bytes) -> None:
            self.on_resume(link, Resume.from_wire(wire.unpack(payload)))

        owner = LinkOwner(opened, _nothing)
        link = Link(self._leader.context(self._timeouts), end, end._worker, wire.LEADER_LIMIT, owner)
        if end._inbox:
            self._leader.loop.ready(end.fileno())
        del link


class SimulatedDialer:
    """:class:`musterpoint.core.channel.dial.Dialer` in this network."""

    def __init__(self, network: Network, machine: Machine, on_connect: OnConnect, on_miss: OnMiss) -> None:
        self._network, self._machine = network, machine
        self._on_connect, self._on_miss = on_connect, on_miss
        self._stopped, self._tries, self._round = True, 0, 0

    @classmethod
    def maker(cls, network: Network, machine: Machine) -> Callable[[Target, OnConnect, OnMiss], SimulatedDialer]:
        return lambda _target, on_connect, on_miss: cls(network, machine, on_connect, on_miss)

    def start(self) -> None:
        self._stopped, self._round = False, 0
        self._try_after(0.0)

    def again(self) -> None:
        if not self._stopped:
            pause = self._pause(self._round)
            self._round += 1
            self._try_after(pause)

    def _pause(self, tries: int) -> float:
        # the same in each run, as histories are played again
        return min(TIMEOUTS.retry * 2 ** min(tries, 10), TIMEOUTS.retry_most)

    def stop(self) -> None:
        self._stopped = True
        self._tries += 1

    def _try_after(self, pause: float) -> None:
        self._tries += 1
        this = self._tries
        self._machine.loop.call_later(pause, lambda: self._try(this))

    def _try(self, this: int) -> None:
        found = self._network.dial(self._machine) if this == self._tries else NOTHING
        if this != self._tries:
            return
        if found is None or found == NOTHING:
            self._machine.loop.call_later(TIMEOUTS.connect, lambda: self._missed(this, NOTHING))
        elif isinstance(found, str):
            self._machine.loop.call_later(0.01, lambda: self._missed(this, found))
        else:
            near, far = self._network.connect(self._machine)
            found(far)
            self._on_connect(near, "10.0.0.1")  # type: ignore[arg-type]

    def _missed(self, this: int, kind: Miss) -> None:
        if this == self._tries:
            self._on_miss(kind, "")
