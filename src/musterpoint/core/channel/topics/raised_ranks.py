"""Asks all hosts about their ranks, where a symptom's cause isn't known.

One may have raised and still run, or be late for the call in which the others waited.
"""

from typing import Annotated, Collection

from musterpoint.base.failure import Failure, fit
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.bounds import Length, Text
from musterpoint.core.channel.topic import LeaderHalf, Topic, WorkerHalf

LOOK_SECONDS = 1.0
"""The most that is waited for what hosts say of their ranks."""
MOST_LATE = 3
"""Sentences about ranks that are late: of one host, and in a reason."""
LATE = " not in the call"
"""Stands in each of these."""


class RaisedAsked(NamedTuple):
    """Asks for the failure of a rank that has raised and still runs, and who is late."""


class LateRanks(NamedTuple):
    """Sentences about a worker's ranks that run, and wait for no others."""

    sentences: Annotated[tuple[Annotated[str, Text(300, shown=True)], ...], Length(0, MOST_LATE)]


class RaisedRanks:
    """Questions of the channel itself; hosts answer with who is late, and perhaps a failure."""

    def ask(self) -> None:
        """Asks all hosts, this one included; only the leader may."""
        raise NotImplementedError

    def late(self, sentences: tuple[str, ...]) -> None:
        """Answers :class:`RaisedAsked`: each sentence is about ranks that are late here."""
        raise NotImplementedError


class LeadersRaised(LeaderHalf, RaisedRanks):
    """Puts the question to all hosts, and adds their answers to a failure."""

    def begin(self) -> None:
        self._late: dict[str, tuple[str, ...]] = {}
        self._awaited: set[str] = set()
        self._is_asked = False

    def ask(self) -> None:
        self._is_asked = True
        hosts = (self._side.me, *self._side.others)
        self._awaited = awaited = {host for host in hosts if not (self._side.is_away(host) or self._side.is_done(host))}
        self._side.call_later(LOOK_SECONDS, awaited.clear)
        self._side.broadcast(RaisedAsked())
        self._side.emit(RaisedAsked())

    def late(self, sentences: tuple[str, ...]) -> None:
        self.hear(self._side.me, LateRanks(sentences))

    def hear(self, host: str, message: LateRanks) -> None:
        if self._is_asked:  # else it is about the attempt before
            self._late[host] = message.sentences
        self._awaited.discard(host)

    def awaits(self) -> Collection[str]:
        return self._awaited

    def left(self, host: str) -> None:
        self._awaited.discard(host)

    def explained(self, failure: Failure) -> Failure:
        """Adds to ``failure``, a symptom without a cause, who was late."""
        late = [sentence for _, each in sorted(self._late.items()) for sentence in each]
        if failure.kind != "peer" or not late:
            return failure
        if len(late) > MOST_LATE:
            late[MOST_LATE - 1 :] = [f"{late[MOST_LATE - 1]}; {len(late) - MOST_LATE} more like this"]
        lines, who = failure.reason.split("\n"), f"rank {failure.rank} (local rank "
        at = next((at for at, line in enumerate(lines) if line.startswith(who)), 0) or 1
        return failure._replace(reason=fit(["\n".join(lines[:at]), *late, *lines[at:]]))


class WorkersRaised(WorkerHalf, RaisedRanks):
    """Passes the question on, and the answer back."""

    def late(self, sentences: tuple[str, ...]) -> None:
        self._side.post(LateRanks(sentences))

    def hear(self, message: RaisedAsked, size: int) -> None:
        self._side.emit(message)


TOPIC: Topic[RaisedRanks] = Topic("raised_ranks", (LateRanks,), (RaisedAsked,), LeadersRaised, WorkersRaised)
