"""Which hosts print nothing, and where their ranks are, as the leader collects it; no I/O.

When every host that still runs ranks is quiet, all are asked to look at their ranks at the same time.
"""

from typing import Annotated, Callable, Iterable, Union

from musterpoint.base.position import Position
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.bounds import Length
from musterpoint.core.channel.peers import AllLooked, LookAsked, Stalled
from musterpoint.core.channel.topic import LeaderHalf, Topic, WorkerHalf, World

_MOST_RANKS = 65536


class Quiet(NamedTuple):
    """No rank of a worker has printed anything for the stall timeout; false: one prints again."""

    on: bool


class Looked(NamedTuple):
    """Where a worker's ranks are, after :class:`LookAsked`; None: one has printed something meanwhile."""

    positions: Annotated[tuple[Position, ...], Length(0, _MOST_RANKS)] | None


class QuietHosts:
    """What a host says of ranks that print nothing."""

    def quiet(self, on: bool) -> None:
        """No rank here has printed anything for the stall timeout; false: one prints again.

        :class:`LookAsked` comes when all hosts that run ranks are quiet.
        """
        raise NotImplementedError

    def looked(self, positions: tuple[Position, ...] | None) -> None:
        """Answers :class:`LookAsked`; None: a rank here has printed something meanwhile."""
        raise NotImplementedError

    def stalled(self, sentence: str) -> None:
        """Tells all hosts that the job stands still; only who gets :class:`AllLooked` may."""
        raise NotImplementedError


QuietDecision = Union[LookAsked, AllLooked]


class WhoIsQuiet:
    """``hosts``: those whose ranks are waited for. Who is quiet, and who has answered, is always one of them, so that
    comparing how many they are is enough.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._running = set(hosts)
        self._quiet: set[str] = set()
        self._found: dict[str, tuple[Position, ...] | None] | None = None

    def quiet(self, host: str, on: bool) -> list[QuietDecision]:
        """``host`` has printed nothing for the stall timeout, or (``on`` is false) prints again."""
        if host in self._running:
            (self._quiet.add if on else self._quiet.discard)(host)
        return self._next()

    def looked(self, host: str, positions: tuple[Position, ...] | None) -> list[QuietDecision]:
        """``host`` answers a :class:`LookAsked`; an answer to none is dropped.

        Its silence begins anew with its answer. It may be quiet again before the last host has answered.
        """
        self._quiet.discard(host)
        if self._found is not None and host in self._running:
            self._found[host] = positions
        return self._next()

    def awaited(self) -> set[str]:
        """Who was asked to look and has not answered."""
        return set() if self._found is None else self._running - self._found.keys()

    def left(self, host: str) -> list[QuietDecision]:
        """``host`` runs no ranks any more."""
        self._running.discard(host)
        self._quiet.discard(host)
        if self._found is not None:
            self._found.pop(host, None)
        return self._next()

    def _next(self) -> list[QuietDecision]:
        if self._found is None:
            return self._ask()
        if len(self._found) < len(self._running):
            return []
        found, self._found = list(self._found.values()), None
        if not found:
            return []
        positions = None if None in found else tuple(one for each in found for one in each or ())
        return [AllLooked(positions), *self._ask()]

    def _ask(self) -> list[QuietDecision]:
        """Asks for a look, if there is a reason for one."""
        if not self._running or len(self._quiet) < len(self._running):
            return []
        self._found = {}
        return [LookAsked()]


class LeadersQuietHosts(LeaderHalf, QuietHosts):
    """Collects silent hosts by world, and asks a world's hosts for a look. Services wait for requests, so only worlds
    count whose end is the job's.
    """

    def begin(self) -> None:
        worlds = [world for world in self._side.worlds if world.ends and not world.beside]
        self._worlds = [(world, WhoIsQuiet(world.hosts)) for world in worlds]

    def quiet(self, on: bool) -> None:
        self.hear(self._side.me, Quiet(on))

    def looked(self, positions: tuple[Position, ...] | None) -> None:
        self.hear(self._side.me, Looked(positions))

    def stalled(self, sentence: str) -> None:
        self._side.broadcast(Stalled(sentence))
        self._side.emit(Stalled(sentence))

    def hear(self, host: str, message: Union[Quiet, Looked]) -> None:
        if isinstance(message, Quiet):
            self._tell(host, lambda who: who.quiet(host, message.on))
        else:
            self._tell(host, lambda who: who.looked(host, message.positions))

    def awaits(self) -> set[str]:
        return {host for _, who in self._worlds for host in who.awaited()}

    def left(self, host: str) -> None:
        self._tell(host, lambda who: who.left(host))

    def _tell(self, host: str, ask: Callable[[WhoIsQuiet], list[QuietDecision]]) -> None:
        """Asks the world of ``host``, where that is watched, and does as it decides."""
        for world, who in self._worlds:
            if host in world.hosts:
                self._decided(world, ask(who))

    def _decided(self, world: World, decisions: list[QuietDecision]) -> None:
        for decision in decisions:
            if isinstance(decision, AllLooked):
                self._side.emit(decision._replace(world=world.name))
                continue
            for host in sorted(world.hosts - {self._side.me}):
                self._side.send(host, decision)
            if self._side.me in world.hosts:
                self._side.emit(decision)


class WorkersQuietHosts(WorkerHalf, QuietHosts):
    """A host without a leader looks for itself."""

    def begin(self) -> None:
        self._is_quiet = False

    def quiet(self, on: bool) -> None:
        self._is_quiet = on
        if not self._side.is_alone:
            self._side.post(Quiet(on))
        elif on:
            self._side.emit(LookAsked())

    def looked(self, positions: tuple[Position, ...] | None) -> None:
        self._is_quiet = False
        if self._side.is_alone:
            self._side.emit(AllLooked(positions))
        else:
            self._side.post(Looked(positions))

    def stalled(self, sentence: str) -> None:
        self._side.emit(Stalled(sentence))

    def hear(self, message: Union[LookAsked, Stalled], size: int) -> None:
        self._side.emit(message)

    def alone(self) -> None:
        if self._is_quiet:
            self._side.emit(LookAsked())


TOPIC: Topic[QuietHosts] = Topic(
    "quiet-hosts", (Quiet, Looked), (LookAsked, Stalled), LeadersQuietHosts, WorkersQuietHosts
)
