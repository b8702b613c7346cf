"""The end of the ranks whose end is the job's, told by the leader. No host asks: it knows whose ranks have ended."""

from musterpoint.core.channel.bounds import WireError
from musterpoint.core.channel.peers import GroupEnded, WorldEnded
from musterpoint.core.channel.topic import LeaderHalf, Topic, WorkerHalf

DISTRIBUTION = "distribution"
"""The name of the distribution group."""
MOST_GROUPS = 16
"""Groups whose end one attempt may have."""


class EndedGroups:
    """Nothing that a host calls: :class:`GroupEnded` comes by itself."""


class LeadersEndedGroups(LeaderHalf, EndedGroups):
    """Tells all hosts, also those outside the group."""

    def begin(self) -> None:
        ending = [world.hosts for world in self._side.worlds if world.ends]
        self._running = set(frozenset[str]().union(*ending) - self._side.away)
        worlds = [world for world in self._side.worlds if world.name and not world.beside]
        self._worlds = {world.name: set(world.hosts - self._side.away) for world in worlds}

    @property
    def all_ended(self) -> bool:
        """The programs have ended whose end is the job's."""
        return not self._running

    def left(self, host: str) -> None:
        for name, running in self._worlds.items():
            if host in running:
                running.remove(host)
                if not running:
                    self._side.broadcast(WorldEnded(name))
                    self._side.emit(WorldEnded(name))
        if host not in self._running:
            return
        self._running.remove(host)
        if not self._running:
            self._side.broadcast(GroupEnded(DISTRIBUTION))
            self._side.emit(GroupEnded(DISTRIBUTION))


class WorkersEndedGroups(WorkerHalf, EndedGroups):
    """Passes on the leader's word, once for each group."""

    def begin(self) -> None:
        self._ended: set[str] = set()

    def hear(self, message: GroupEnded | WorldEnded, size: int) -> None:
        if isinstance(message, WorldEnded):
            self._side.emit(message)
            return
        if message.group in self._ended:
            raise WireError(f"twice that group {message.group!r} has ended")
        if len(self._ended) >= MOST_GROUPS:
            raise WireError(f"the end of more than {MOST_GROUPS} groups")
        self._ended.add(message.group)
        self._side.emit(message)

    def alone(self) -> None:
        if not self._ended:  # nobody would tell it
            self._side.emit(GroupEnded(DISTRIBUTION))


TOPIC: Topic[EndedGroups] = Topic("ended_groups", (), (GroupEnded, WorldEnded), LeadersEndedGroups, WorkersEndedGroups)
