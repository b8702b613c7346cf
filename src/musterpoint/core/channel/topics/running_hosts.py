"""Who still runs ranks, for hosts that wait for them."""

from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.peers import MOST_NAMED, StillRunning
from musterpoint.core.channel.topic import LeaderHalf, LeaderSide, Topic, WorkerHalf

_MOST_QUESTIONS = 4096


class WhoRuns(NamedTuple):
    """A worker asks. The answer is :class:`StillRunning`."""


class RunningHosts:
    """What a host asks about the others."""

    def ask_running(self) -> None:
        """Asks which hosts aren't done; :class:`StillRunning` comes, but not on a lone host."""
        raise NotImplementedError


class LeadersRunningHosts(LeaderHalf, RunningHosts):
    """The questions of a worker are counted over all attempts: each is answered with more bytes than it has."""

    def __init__(self, side: LeaderSide) -> None:
        super().__init__(side)
        self._questions: dict[str, int] = {}

    def ask_running(self) -> None:
        if self._side.others:
            self._side.emit(self._running())

    def hear(self, host: str, message: WhoRuns) -> None:
        self._questions[host] = self._questions.get(host, 0) + 1
        if self._questions[host] <= _MOST_QUESTIONS:
            self._side.send(host, self._running())

    def _running(self) -> StillRunning:
        side, away = self._side, self._side.away
        running = [host for host in (side.me, *side.others) if host not in away and not side.is_done(host)]
        return StillRunning(tuple(running[:MOST_NAMED]), max(0, len(running) - MOST_NAMED))


class WorkersRunningHosts(WorkerHalf, RunningHosts):
    """Asks the leader."""

    def ask_running(self) -> None:
        self._side.post(WhoRuns())

    def hear(self, message: StillRunning, size: int) -> None:
        self._side.emit(message)


TOPIC: Topic[RunningHosts] = Topic(
    "running-hosts", (WhoRuns,), (StillRunning,), LeadersRunningHosts, WorkersRunningHosts
)
