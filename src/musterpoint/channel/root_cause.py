"""Which failure was the first: pure rules by which the leader finds the root cause among the reported failures.

A symptom (``kind`` ``peer``: connection reset, a collective that was aborted; or what a launcher says about a rank that
printed nothing) is held back, since its cause is often reported later, or is a host that can report nothing any more.
"""

from __future__ import annotations

from typing import Iterable, NamedTuple, Sequence, Union

from musterpoint.channel.peers import PeerLost
from musterpoint.failure import Failure, Secondary


class Announce(NamedTuple):
    """``failure`` is the job's: say so on every host. ``secondary`` counts the others known by now."""

    failure: Failure
    secondary: Secondary


class GiveUp(NamedTuple):
    """``host`` is silent while ranks fail: it is lost."""

    host: str


Decision = Union[Announce, GiveUp]


def root_cause_without_leader(pending: list[Failure], loss: Failure) -> Failure | None:
    """What a worker takes for the root cause when the leader is lost before it answered the ``pending`` failures: the
    first of them that is no symptom, else the leader's ``loss``; None where none is pending.
    """
    if not pending:
        return None
    return next((failure for failure in pending if not failure.is_symptom), loss)


class RootCauseFinder:
    """Takes failures and the state of the hosts, with the time; returns what to do. Only one failure is announced.

    ``hold`` is how long a symptom waits for its cause; ``patience`` how long where the programs of the hosts ``opaque``
    start ranks by themselves, so that a failure is known only when the last of them has ended. A host that reported a
    failure, is done or lost isn't waited for. ``announced`` is the decision, once there is one.
    """

    def __init__(self, hold: float, patience: float = 0.0, opaque: Iterable[str] = ()) -> None:
        self._hold = hold
        self._patience = max(hold, patience)
        self._opaque = set(opaque)
        self._reported: list[Failure] = []
        self._held: Failure | None = None
        self._held_at = 0.0
        self._not_before = 0.0
        self._cut: set[str] = set()
        self._silent: set[str] = set()
        self._loss: Failure | None = None
        self.announced: Announce | None = None

    @property
    def due(self) -> float | None:
        """When :meth:`tick` decides; None while a host is cut off or silent, which may be the cause."""
        if self._held is None or self.announced is not None or self._cut or self._silent:
            return None
        return max(self._not_before, self._held_at + (self._patience if self._opaque else self._hold))

    def failed(self, failure: Failure, now: float) -> list[Decision]:
        self._opaque.discard(failure.host)
        if self.announced is not None:
            return []
        self._reported.append(failure)
        if not failure.is_symptom:
            return self._announce(failure)
        if self._loss is not None:
            return self._announce(self._loss)
        if self._held is None:
            self._held, self._held_at = failure, now
        elif self._held.kind == "peer" and failure.kind != "peer":
            self._held = failure  # second-hand, but of the rank that failed first there
        return [GiveUp(host) for host in sorted(self._silent)]

    def tick(self, now: float, unanswered: bool = False) -> list[Decision]:
        """``unanswered``: some host has sent nothing since the symptom, so it may be the cause; it is waited for."""
        due = self.due
        if self._held is None or due is None or now < due:
            return []
        if unanswered:
            self._not_before = now + self._hold / 4
            return []
        return self._announce(self._held)

    def done(self, host: str) -> None:
        """``host``'s ranks have ended: it has no failure to report."""
        self._opaque.discard(host)
        self.back(host)

    def cut(self, host: str) -> None:
        """``host``'s connection ended without a bye: it will soon be back or lost."""
        self._cut.add(host)

    def silent(self, host: str) -> list[Decision]:
        self._silent.add(host)
        return [GiveUp(host)] if self._held is not None and self.announced is None else []

    def back(self, host: str) -> None:
        self._cut.discard(host)
        self._silent.discard(host)

    def lost(self, host: str, loss: Failure) -> list[Decision]:
        """``host`` is lost: the cause of every symptom, also of one reported later (where jobs go on after a loss)."""
        self.done(host)
        if self.announced is not None:
            return []
        self._loss = self._loss or loss
        return self._announce(self._loss) if self._held is not None else []

    def _announce(self, failure: Failure) -> list[Decision]:
        self.announced = Announce(failure, Secondary.of(self._reported, failure))
        return [self.announced]


def loss_by_silence(
    me: str, peer: str, seconds: float, heard: Sequence[str] = (), unheard: Sequence[str] = ()
) -> PeerLost:
    """The loss of ``peer``, which ``me`` has not heard for ``seconds``. The other hosts that ``me`` has connections to
    were ``heard`` meanwhile, or not.
    """
    if heard:
        others = heard[0] if len(heard) == 1 else f"{len(heard)} other hosts"
        return PeerLost(peer, f"nothing was heard of it for {seconds:g} s, while {others} went on answering")
    if unheard:
        return PeerLost(me, f"it has heard none of the other {len(unheard) + 1} hosts for {seconds:g} s")
    why = f"nothing came through for {seconds:g} s: one of them stands still, or the network between them is cut"
    return PeerLost(peer, why, apart_from=me)
