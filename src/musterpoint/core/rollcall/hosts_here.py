"""The hosts of a roll call when all are here, and the roster that is made of them."""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.base.untrusted import printable
from musterpoint.core.channel.session import random_token
from musterpoint.core.rollcall.admission import Call
from musterpoint.core.rollcall.host_order import by_topology
from musterpoint.core.rollcall.library_versions import differences
from musterpoint.core.rollcall.places import unique_names
from musterpoint.core.rollcall.roster import Offer, Roster, Seat


class HostsHere(NamedTuple):
    """``hosts`` in rank order, ``me`` among them, whose ``offer`` is this host's; ``calls``: those of the others.
    ``grouped``: the hosts of the distribution group.
    """

    hosts: tuple[str, ...]
    me: str
    offer: Offer
    calls: Mapping[str, Call]
    grouped: frozenset[str]

    def named(self) -> HostsHere:
        """The same by the names that they have said themselves, in place of the labels of their seats."""
        calls = [self.calls[label] for label in self.hosts[1:]]
        names = unique_names([self.me, *(call.title for call in calls)])
        named = {name: call.named(name) for name, call in zip(names[1:], calls, strict=True)}
        return self._replace(hosts=names, me=names[0], calls=named, grouped=frozenset(names))

    def by_topology(self) -> tuple[HostsHere, str]:
        """The same in the order of their switches, and a sentence about it."""
        ordered, told = by_topology(self.hosts, self.grouped, {host: self._offer_of(host).place for host in self.hosts})
        return self._replace(hosts=tuple(ordered)), told

    def _offer_of(self, host: str) -> Offer:
        return self.calls[host].hello.offer if host in self.calls else self.offer

    @property
    def independent(self) -> bool:
        """Whether a host's program is none of ranks."""
        return any(call.hello.offer.independent for call in self.calls.values())

    def different_libraries(self) -> list[str]:
        """Warnings about the group's hosts, as far as they say what they have."""
        offers = {host: self._offer_of(host) for host in self.hosts}
        said = {host: offer.libraries for host, offer in offers.items() if host in self.grouped and offer.libraries}
        return [printable(text, 2000) for text in differences(said)] if len(said) > 1 else []

    def roster(self, address: str, master_port: int, settings: Settings) -> Roster:
        """The roster of a new session; ``address`` is this host's."""
        seats = []
        for host in self.hosts:
            grouped, offer = host in self.grouped, self._offer_of(host)
            where = address if host == self.me else self.calls[host].address
            slots = offer.slots if grouped else 0
            seats.append(Seat(host, where, slots, grouped, offer.version, offer.capacity, offer.ports, offer.ssh_key))
        restarts = settings.max_restarts
        return Roster(
            self.offer.job, random_token(), tuple(seats), address, master_port, self.me, max_restarts=restarts
        )
