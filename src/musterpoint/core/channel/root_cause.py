"""The rules by which the leader finds the root cause among the reported failures; no I/O.

A symptom is a failure that another one caused: ``kind`` ``peer`` (connection reset, aborted collective), or a
launcher's report of a rank that printed nothing. It waits, since its cause may be reported later, or be a lost host.
"""

from __future__ import annotations

from typing import Iterable, Sequence, Union

from musterpoint.base.failure import Failure, Secondary
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.peers import PeerLost


class Announce(NamedTuple):
    """Send ``failure`` to every host as the root cause. ``secondary`` counts the other failures so far."""

    failure: Failure
    secondary: Secondary


class Hurry(NamedTuple):
    """Wait no longer for ``host`` than where the job ends: it is silent while ranks fail elsewhere."""

    host: str


class AskRaised(NamedTuple):
    """Ask every host for a rank that has raised and still runs: nothing explains the symptoms."""


Decision = Union[Announce, Hurry, AskRaised]


def root_cause_without_leader(pending: list[Failure], loss: Failure) -> Failure | None:
    """The root cause for a worker whose leader was lost before it answered the ``pending`` failures: the first of them
    that isn't a symptom, else the leader's ``loss``; None if there are none.
    """
    if not pending:
        return None
    return next((failure for failure in pending if not failure.is_symptom), loss)


ANSWER_SHARE = 0.25
"""Of the hold: for hosts to answer :class:`AskRaised`."""
READING_SECONDS = 3.5
"""For a failed rank's host to read the rest of its output, which may name the cause."""
MOST_HOLDS = 4
"""How often the hold at most: on a slow machine symptoms come one by one, and the rank that caused them may be last."""


class RootCauseFinder:
    """Gets failures, states of hosts and the time; returns decisions. Announces one failure only.

    ``hold``: seconds that a symptom waits for its cause, or for the next symptom; a lost connection that is the
    program's own waits as long. ``patience``: the same while one of the ``opaque`` hosts may still report; their
    programs start ranks themselves, so a failure is known only when the last rank has ended. ``order``: seconds that a
    cause waits for an earlier one: of failures that come within them, the one that happened first is announced. A
    rank that has raised, and is still on its way out, is the cause at once when another one fails after it.
    ``announced``: the decision, None before.
    """

    def __init__(self, hold: float, patience: float = 0.0, opaque: Iterable[str] = (), order: float = 0.0) -> None:
        self._hold = hold
        self._order = order
        self._cause: Failure | None = None
        self._happened = self._cause_due = 0.0
        self._patience = max(hold, patience)
        self._opaque = set(opaque)
        self._reported: list[Failure] = []
        self._held: Failure | None = None
        self._ending: Failure | None = None
        self._ending_since = 0.0
        self._reading: dict[tuple[str, int | None], float] = {}
        self._asked = False
        self._held_at = self._latest_at = 0.0
        self._not_before = 0.0
        self._cut: set[str] = set()
        self._silent: set[str] = set()
        self._loss: Failure | None = None
        self.announced: Announce | None = None

    @property
    def due(self) -> float | None:
        """When to call :meth:`tick`; None while a host is cut off or silent, since that may be the cause."""
        if self._cause is not None:
            return self._cause_due if self.announced is None else None
        if self._held is None or self.announced is not None or self._cut or self._silent:
            return None
        next_one = min(self._latest_at + self._hold, self._held_at + MOST_HOLDS * self._hold)
        wait = self._patience if self._opaque else self._hold
        over = max(next_one, self._held_at + wait, *self._reading.values())
        return max(self._not_before, over if self._asked else over - ANSWER_SHARE * self._hold)

    def failed(self, failure: Failure, now: float, age: float = 0.0) -> list[Decision]:
        """``failure`` is reported ``now``, and happened ``age`` seconds before."""
        if failure.ending:
            return self._is_ending(failure, now, now - age)
        self._reading.pop((failure.host, failure.rank), None)
        is_last = failure.host in self._opaque
        self._opaque.discard(failure.host)
        if self.announced is not None:
            return []
        self._reported.append(failure)
        if self._ending is not None and self._follows(failure, now - age):
            return self._announce(self._ending)
        if not failure.is_symptom:
            return self._found(failure, now, now - age)
        if self._cause is not None:
            return []
        if self._loss is not None:
            return self._announce(self._loss)
        self._latest_at = self._latest_at if is_last else now
        if self._held is None:
            self._held, self._held_at = failure, now
        elif self._held.kind == "peer" and failure.kind != "peer":
            self._held = failure  # only a launcher's report, but about the rank that failed first there
        return [Hurry(host) for host in sorted(self._silent)]

    def tick(self, now: float, unanswered: bool = False) -> list[Decision]:
        """``unanswered``: a host that may be the cause has sent nothing since the symptom: wait a little longer."""
        due = self.due
        if self._cause is not None:
            return self._announce(self._cause) if due is not None and now >= due else []
        if self._held is None or due is None or now < due:
            return []
        if unanswered:
            self._not_before = now + self._hold / 4
            return []
        if not self._asked:
            self._asked = True
            self._not_before = now + ANSWER_SHARE * self._hold
            return [AskRaised()]
        return self._announce(self._held)

    def _is_ending(self, failure: Failure, now: float, happened: float) -> list[Decision]:
        """The rank of ``failure`` has raised, or (as far as a symptom) has ended, and its output is being read."""
        if self.announced is not None:
            return []
        if failure.is_symptom:
            self._reading[failure.host, failure.rank] = now + READING_SECONDS
            return []
        if self._ending is None:
            self._ending, self._ending_since = failure, happened
        before = self._cause or self._held
        happened_before = self._happened if self._cause is not None else now
        if before is not None and self._follows(before, happened_before):
            return self._announce(self._ending)
        return []

    def _follows(self, failure: Failure, happened: float) -> bool:
        """Whether ``failure`` may be because of the rank that has raised, and isn't that one's own, nor the same."""
        ending = self._ending
        if ending is None or (failure.host, failure.rank) == (ending.host, ending.rank):
            return False
        if failure.reason.partition("\n")[0] == ending.reason.partition("\n")[0]:
            return False
        return failure.is_symptom or failure.lost_connection or self._ending_since < happened

    def settle(self, symptoms: bool = False) -> list[Decision]:
        """The job ends for another reason now: a cause that waits for an earlier one is announced first, or a symptom
        that waits for its cause.
        """
        first = self._cause or (self._held if symptoms else None)
        return self._announce(first) if first is not None and self.announced is None else []

    def done(self, host: str) -> None:
        """``host``'s ranks have ended: it has no failure to report."""
        self._opaque.discard(host)
        self.back(host)

    def cut(self, host: str) -> None:
        """``host``'s connection ended without a bye: it will reconnect or be lost."""
        self._cut.add(host)

    def silent(self, host: str) -> list[Decision]:
        self._silent.add(host)
        return [Hurry(host)] if self._held is not None and self.announced is None else []

    def back(self, host: str) -> None:
        self._cut.discard(host)
        self._silent.discard(host)

    def lost(self, host: str, loss: Failure) -> list[Decision]:
        """``host`` is lost, which is the cause of all symptoms, later ones included (if the job continues)."""
        self.done(host)
        if self.announced is not None or (self._cause is not None and not self._cause.lost_connection):
            return []
        self._loss = self._loss or loss
        return self._announce(self._loss) if self._held is not None or self._cause is not None else []

    def _found(self, failure: Failure, now: float, happened: float) -> list[Decision]:
        """``failure`` is a cause, unless an earlier one is reported soon."""
        wait = self._hold if failure.lost_connection else self._order
        before = self._cause
        if before is None or before.gives_way_to(failure):
            self._cause, self._happened, self._cause_due = failure, happened, now + wait
        elif happened < self._happened and not failure.gives_way_to(before):
            self._cause, self._happened = failure, happened
            self._cause_due = min(self._cause_due, now + wait)
        return self._announce(failure) if not wait else []

    def _announce(self, failure: Failure) -> list[Decision]:
        self.announced = Announce(failure, Secondary.of(self._reported, failure))
        return [self.announced]


def loss_by_silence(
    me: str, peer: str, seconds: float, answering: Sequence[str] = (), silent: Sequence[str] = ()
) -> PeerLost:
    """The loss of ``peer``, silent to ``me`` for ``seconds``, while other hosts were ``answering`` or ``silent``."""
    if answering:
        others = answering[0] if len(answering) == 1 else f"{len(answering)} other hosts"
        return PeerLost(peer, f"nothing was heard of it for {seconds:g} s, while {others} went on answering")
    if silent:
        return PeerLost(me, f"it has heard none of the other {len(silent) + 1} hosts for {seconds:g} s")
    why = f"nothing came through for {seconds:g} s: one of them stands still, or the network between them is cut"
    return PeerLost(peer, why, apart_from=me)
