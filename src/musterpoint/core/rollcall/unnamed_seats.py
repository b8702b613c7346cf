"""Seats for hosts that the platform counts but doesn't name: by node rank, or by arrival; and their names.

Each host's hello says its own name. A caller's address proves nothing here, since there is no name to look up.
"""

from __future__ import annotations

from typing import Iterable, Mapping, Sequence

from musterpoint.core.channel.dial import is_local
from musterpoint.core.job.model import UnnamedHosts
from musterpoint.core.rollcall.admission import Call, already_started, taken_by
from musterpoint.core.rollcall.hello import (
    ANOTHER_WAY,
    EXPANDED,
    ITSELF,
    PLACE_TAKEN,
    STARTED_TWICE,
    TOO_MANY,
    Hello,
    Refusal,
)


class Places:
    """The seats of one roll call, as its leader ``me`` keeps them.

    ``labels``: what stands for each host's name until all are here, in rank order; the first is the leader's.
    ``by_rank``: whether places go by node rank; else they go by arrival.
    """

    def __init__(self, unnamed: UnnamedHosts, me: str, incarnation: str = "") -> None:
        self._nnodes = unnamed.nnodes
        self.by_rank = unnamed.node_rank is not None
        self._sources = unnamed.sources
        self._me = me
        self._incarnation = incarnation
        self.labels = tuple(
            f"node rank {place}" if self.by_rank else f"host {place + 1}" for place in range(unnamed.nnodes)
        )

    def refusal(self, hello: Hello, address: str) -> Refusal | None:
        """Why no seat can be ``hello``'s, which came from ``address``; None if one may be."""
        count, rank = self._sources.nnodes, self._sources.node_rank
        if hello.incarnation == self._incarnation:
            return Refusal(ITSELF, "is this host itself", ITSELF)
        if not hello.nnodes:
            return _refusal(f"{hello.name} knows the names of its hosts, and {self._me} learns them: start all alike")
        if hello.nnodes != self._nnodes:
            return _refusal(
                f"{hello.name} counts {hello.nnodes} hosts ({count}), {self._me} counts {self._nnodes}: give all hosts "
                "the same number"
            )
        if (hello.place >= 0) != self.by_rank:
            one, other = (hello.name, self._me) if hello.place >= 0 else (self._me, hello.name)
            return _refusal(f"{one} has a node rank ({rank}) and {other} has none: give one to every host, or to none")
        if hello.place >= self._nnodes:
            return _refusal(
                f"{hello.name} has node rank {hello.place} ({rank}), and of {self._nnodes} hosts the last has "
                f"{self._nnodes - 1}"
            )
        if hello.place == 0 and hello.name == self._me and is_local(address):
            return self._leads_already()
        if hello.place == 0:
            return _refusal(self.clash(hello.name, "", self._me, 0), PLACE_TAKEN)
        return None

    def clash(self, newcomer: str, address: str, holder: str, place: int) -> str:
        """Two hosts have one node rank."""
        where = f" ({address})" if address else ""
        return (
            f"{newcomer}{where} has node rank {place}, which {holder} has, too: give every host its own "
            f"{self._sources.node_rank}; {EXPANDED}"
        )

    def place(self, hello: Hello, taken: Mapping[str, Call], apart: bool = False) -> Hello | None:
        """``hello`` with the seat that it claims; None: all are taken.

        By arrival, a host that comes again (by its name) claims the seat it had; with ``apart`` it is another host.
        """
        if self.by_rank:
            return hello._replace(host=self.labels[hello.place])
        again = [call for call in taken.values() if call.incarnation == hello.incarnation]
        again += [call for call in taken.values() if call.hello.name == hello.name and not apart]
        free = [label for label in self.labels[1:] if label not in taken]
        label = again[0].name if again else free[0] if free else ""
        return hello._replace(host=label, place=self.labels.index(label)) if label else None

    def find(self, hello: Hello, address: str, calls: Mapping[str, Call]) -> Call | None:
        """The call of the host that ``hello`` comes from, among those seated; None: of no such host."""
        if self.refusal(hello, address) is not None:
            return None
        for call in calls.values():
            if call.incarnation == hello.incarnation:
                return call
        for call in calls.values():
            if call.hello.place == hello.place if self.by_rank else call.hello.name == hello.name:
                return call
        return None

    def too_many(self, hello: Hello) -> Refusal:
        """``hello``'s host is one more than there are."""
        return _refusal(
            f"{hello.name} is one host too many: all {self._nnodes} hosts ({self._sources.nnodes}) are here", TOO_MANY
        )._replace(alone=True)

    def late(self, hello: Hello, address: str, holder: Call | None) -> Refusal:
        """Why a host is refused that calls when the job has started; ``holder`` has its seat."""
        refusal = self.refusal(hello, address)
        if refusal is not None:
            return refusal
        if holder is None:
            return self._leads_already() if hello.name == self._me else self.too_many(hello)
        if holder.title == hello.name:
            return _started_twice(already_started(holder))
        return self._clash(hello, address, holder.name, holder)

    def taken(self, hello: Hello, address: str, holder: Call) -> Refusal:
        """Why a host is refused before all are here: ``holder``, which answers, has the place of ``hello``'s."""
        if (holder.title, holder.address) == (hello.name, address):
            return _started_twice(taken_by(holder))
        return self._clash(hello, address, holder.title, holder)

    def _leads_already(self) -> Refusal:
        return _started_twice(f"an earlier start of {self._me} leads this job already")

    def _clash(self, hello: Hello, address: str, name: str, holder: Call) -> Refusal:
        return _refusal(self.clash(hello.name, address, f"{name} ({holder.address})", hello.place), PLACE_TAKEN)


def _refusal(reason: str, answer: str = ANOTHER_WAY) -> Refusal:
    return Refusal(reason, "counts or ranks the hosts in another way", answer, usage=True)


def _started_twice(reason: str) -> Refusal:
    return Refusal(reason, "is a second start of a host that is here", STARTED_TWICE, alone=True)


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """``names`` with each host's place behind those that are alike (``worker-0``, ``worker-1``)."""
    counts = _counted(name.lower() for name in names)
    taken = {name for name, count in counts.items() if count == 1}
    result = []
    for place, name in enumerate(names):
        unique = name
        if counts[name.lower()] > 1:
            unique = f"{name}-{place}"
            while unique.lower() in taken:
                unique += f"-{place}"
            taken.add(unique.lower())
        result.append(unique)
    return tuple(result)


def _counted(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts
