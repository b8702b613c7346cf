"""Asks all hosts whether a rank of theirs has raised and still runs, where a symptom's cause isn't known."""

from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.topic import LeaderHalf, Topic, WorkerHalf


class RaisedAsked(NamedTuple):
    """Report the failure of a rank here that has raised, and is still on its way out."""


class RaisedRanks:
    """What the channel itself asks; hosts answer with a failure, or not at all."""

    def ask(self) -> None:
        """Asks all hosts, this one included; only the leader may."""
        raise NotImplementedError


class LeadersRaised(LeaderHalf, RaisedRanks):
    """Puts the question to all hosts."""

    def ask(self) -> None:
        self._side.broadcast(RaisedAsked())
        self._side.emit(RaisedAsked())


class WorkersRaised(WorkerHalf, RaisedRanks):
    """Passes the question on."""

    def hear(self, message: RaisedAsked, size: int) -> None:
        self._side.emit(message)


TOPIC: Topic[RaisedRanks] = Topic("raised_ranks", (), (RaisedAsked,), LeadersRaised, WorkersRaised)
