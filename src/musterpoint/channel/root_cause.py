"""Which failure was the first: pure rules by which the leader finds the cause among what it is told.

A symptom (``kind`` ``peer``: connection reset, a collective that was aborted; or what a launcher tells of a rank that
said nothing) is held back, since the cause is often told later, or is a host that can tell nothing any more.
"""

from __future__ import annotations

from typing import Iterable, NamedTuple, Sequence, Union

from musterpoint.channel.peers import PeerLost
from musterpoint.failure import Failure, Secondary


class Announce(NamedTuple):
    """The verdict, for every host."""

    failure: Failure
    secondary: Secondary


class GiveUp(NamedTuple):
    """``host`` is silent while ranks fail: it is lost."""

    host: str


Action = Union[Announce, GiveUp]


def left_alone(pending: list[Failure], loss: Failure) -> Failure | None:
    """A worker's own verdict on its unanswered failures when the leader is lost: a cause among them, else the loss."""
    if not pending:
        return None
    return next((failure for failure in pending if not failure.is_symptom), loss)


class RootCause:
    """Takes failures, and how the hosts fare, with the time; says what to do. The first announcement is the last.

    ``hold`` is how long a symptom waits for its cause; ``patience`` how long where the programs of the hosts ``opaque``
    start ranks by themselves, so that a failure is known only when the last of them has ended. A host that told of a
    failure, is done or lost isn't waited for.
    """

    def __init__(self, hold: float, patience: float = 0.0, opaque: Iterable[str] = ()) -> None:
        self._hold = hold
        self._patience = max(hold, patience)
        self._opaque = set(opaque)
        self._told: list[Failure] = []
        self._held: Failure | None = None
        self._held_at = 0.0
        self._not_before = 0.0
        self._cut: set[str] = set()
        self._silent: set[str] = set()
        self._loss: Failure | None = None
        self.fallen: Announce | None = None

    @property
    def due(self) -> float | None:
        """When :meth:`tick` has something to say: not while a host's fate is open, which may be the cause."""
        fates_open = self._cut or self._silent
        if self._held is None or self.fallen is not None or fates_open:
            return None
        return max(self._not_before, self._held_at + (self._patience if self._opaque else self._hold))

    def failed(self, failure: Failure, now: float) -> list[Action]:
        self._opaque.discard(failure.host)
        if self.fallen is not None:
            return []
        self._told.append(failure)
        if not failure.is_symptom:
            return self._announce(failure)
        if self._loss is not None:
            return self._announce(self._loss)
        if self._held is None:
            self._held, self._held_at = failure, now
        elif self._held.kind == "peer" and failure.kind != "peer":
            self._held = failure  # second-hand, but of the rank that failed first there
        return [GiveUp(host) for host in sorted(self._silent)]

    def tick(self, now: float, mute: bool = False) -> list[Action]:
        """``mute``: some host has not answered since the symptom, so it may be the cause; it is waited for."""
        due = self.due
        if self._held is None or due is None or now < due:
            return []
        if mute:
            self._not_before = now + self._hold / 4
            return []
        return self._announce(self._held)

    def done(self, host: str) -> None:
        """``host``'s ranks have ended: it has no failure to tell."""
        self._opaque.discard(host)
        self.back(host)

    def cut(self, host: str) -> None:
        """``host``'s connection ended without a bye; what becomes of it is known in a moment."""
        self._cut.add(host)

    def silent(self, host: str) -> list[Action]:
        self._silent.add(host)
        return [GiveUp(host)] if self._held is not None and self.fallen is None else []

    def back(self, host: str) -> None:
        self._cut.discard(host)
        self._silent.discard(host)

    def lost(self, host: str, loss: Failure) -> list[Action]:
        """``host`` is lost: what a symptom comes from, also one that is told later (where jobs bear a loss)."""
        self.done(host)
        if self.fallen is not None:
            return []
        self._loss = self._loss or loss
        return self._announce(self._loss) if self._held is not None else []

    def _announce(self, failure: Failure) -> list[Action]:
        self.fallen = Announce(failure, Secondary.of(self._told, failure))
        return [self.fallen]


def of_silence(
    me: str, peer: str, seconds: float, heard: Sequence[str] = (), unheard: Sequence[str] = ()
) -> PeerLost:  # fmt: skip
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
