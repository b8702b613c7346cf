"""Roles that are ready: the leader collects it from the hosts of their programs."""

from functools import partial

from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.peers import NotReady, RoleName, RoleReady, RoleState
from musterpoint.core.channel.topic import LeaderHalf, Topic, WorkerHalf, World


class PartReady(NamedTuple):
    """The program of ``role`` on a worker's host is ready."""

    role: RoleName


class ReadyRoles:
    """A host's words about the programs of roles."""

    def ready(self, role: str) -> None:
        """The program of ``role`` here is ready. :class:`RoleReady` comes when all are."""
        raise NotImplementedError


class LeadersReadyRoles(LeaderHalf, ReadyRoles):
    """Collects which hosts are ready, and tells all."""

    def begin(self) -> None:
        self._attempt = object()
        self._missing = {world.name: set(world.hosts) for world in self._side.worlds}
        self._awaited = {name for world in self._side.worlds for name in world.after}
        self._timed: set[str] = set()
        self._watch()

    def ready(self, role: str) -> None:
        self._is_ready(self._side.me, role)

    def hear(self, host: str, message: PartReady) -> None:
        self._is_ready(host, message.role)

    def awaits(self) -> set[str]:
        begun = [self._missing[name] for name in self._timed]
        return set[str]().union(*begun) - self._side.away

    def _is_ready(self, host: str, role: str) -> None:
        missing = self._missing.get(role, set())
        if host not in missing:
            return
        missing.remove(host)
        if not missing:
            self._side.broadcast(RoleReady(role))
            self._side.emit(RoleReady(role))
            self._watch()

    def _watch(self) -> None:
        """Begins the time of each awaited role, once that can begin."""
        for world in self._side.worlds:
            can_begin = not any(self._missing.get(name) for name in world.after)
            if world.name in self._awaited and can_begin and world.name not in self._timed:
                self._timed.add(world.name)
                if world.patience < float("inf"):
                    self._side.call_later(world.patience, partial(self._due, world, self._attempt))

    def _due(self, world: World, attempt: object) -> None:
        if self._missing[world.name] and attempt is self._attempt:
            told = [each for each in self._side.worlds if each.after or each.name in self._awaited]
            states = tuple(map(self._state, told))
            self._side.emit(NotReady(world.name, world.patience, states))

    def _state(self, world: World) -> RoleState:
        waits = tuple(name for name in world.after if self._missing.get(name))
        return RoleState(world.name, tuple(sorted(self._missing[world.name])), waits)


class WorkersReadyRoles(WorkerHalf, ReadyRoles):
    """Tells the leader, and passes on its word."""

    def ready(self, role: str) -> None:
        self._side.post(PartReady(role))

    def hear(self, message: RoleReady, size: int) -> None:
        self._side.emit(message)


TOPIC: Topic[ReadyRoles] = Topic("ready-roles", (PartReady,), (RoleReady,), LeadersReadyRoles, WorkersReadyRoles)
