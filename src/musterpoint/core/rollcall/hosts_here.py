"""The hosts of a roll call when all are here, and the roster that is made of them."""

from __future__ import annotations

from typing import Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.base.untrusted import printable
from musterpoint.core.channel.session import random_token
from musterpoint.core.rollcall.admission import Call
from musterpoint.core.rollcall.roster import Offer, Roster, Seat
from musterpoint.core.rollcall.unnamed_seats import unique_names

_MOST_NAMED = 4
_Path = tuple[str, ...]


class HostsHere(NamedTuple):
    """``hosts`` in rank order, ``me`` among them, whose ``offer`` is this host's; ``calls``: those of the others.
    ``grouped``: the hosts of the distribution group; ``role_of``: the role of each, in a job of several.
    """

    hosts: tuple[str, ...]
    me: str
    offer: Offer
    calls: Mapping[str, Call]
    grouped: frozenset[str]
    role_of: Mapping[str, str] = {}

    def named(self, me: str) -> HostsHere:
        """The same by the hosts' own names; ``me`` is this host's."""
        calls = [self.calls[label] for label in self.hosts[1:]]
        names = unique_names([me, *(call.title for call in calls)])
        named = {name: call.named(name) for name, call in zip(names[1:], calls, strict=True)}
        role_of = self.role_of
        roles = {name: role_of[label] for name, label in zip(names, self.hosts, strict=True) if label in role_of}
        return self._replace(hosts=names, me=names[0], calls=named, grouped=frozenset(names), role_of=roles)

    @property
    def groups(self) -> dict[str, frozenset[str]]:
        """The hosts of each role; of the distribution group, where the job has none."""
        found: dict[str, set[str]] = {}
        for host in self.grouped:
            found.setdefault(self.role_of.get(host, ""), set()).add(host)
        return {role: frozenset(hosts) for role, hosts in found.items()}

    def check(self) -> None:
        """Raises a UsageError where hosts of one role would start different launchers."""
        for role, hosts in self.groups.items():
            launchers: dict[str, str] = {}
            for host in sorted(hosts):
                launchers.setdefault(self._offer_of(host).launcher, host)
            launchers.pop("", None)
            if role and len(launchers) > 1:
                said = " and ".join(f"{printable(name, 64)} on {host}" for name, host in launchers.items())
                raise UsageError(f"the hosts of {role} would start different launchers: {said}")

    @property
    def opaque(self) -> frozenset[str]:
        """The hosts whose programs may start ranks by themselves."""
        if not self.role_of:
            return self.grouped if self.independent else frozenset()
        return frozenset(host for host in self.hosts if self._offer_of(host).independent)

    def by_topology(self) -> tuple[HostsHere, str]:
        """The same in the order of their switches, and a sentence about it."""
        leading = self.groups[self.role_of.get(self.me, "")]
        ordered, told = by_topology(self.hosts, leading, {host: self._offer_of(host).place for host in self.hosts})
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

    def roster(self, address: str, ports: tuple[int, int], settings: Settings) -> Roster:
        """The roster of a new session; ``address`` is this host's, ``ports`` its master port and that of launches."""
        seats = []
        for host in self.hosts:
            grouped, offer = host in self.grouped, self._offer_of(host)
            where = address if host == self.me else self.calls[host].address
            slots = offer.slots if grouped else 0
            role = self.role_of.get(host, ""), offer.role_ports, offer.launcher
            seats.append(
                Seat(host, where, slots, grouped, offer.version, offer.capacity, offer.ports, offer.ssh_key, *role)
            )
        session, (master, launch) = random_token(), ports
        who = self.offer.job, session, tuple(seats), address, master, self.me
        return Roster(*who, 0, settings.max_restarts, launch, self.me, master)


def differences(of_hosts: Mapping[str, Sequence[str]]) -> list[str]:
    """A warning for each library whose versions differ: ranks on different ones may fail, or hang, but late.

    ``of_hosts``: for each host in rank order its libraries, such as ``NCCL=2.27.3``. A host without a GPU or an RDMA
    network, which names none, should not be among them.
    """
    versions: dict[str, dict[str, str]] = {}
    for host, libraries in of_hosts.items():
        for library in libraries:
            name, _, version = library.partition("=")
            versions.setdefault(name, {})[host] = version
    found = []
    for name, by_host in versions.items():
        hosts_of: dict[str, list[str]] = {}
        for host in of_hosts:
            hosts_of.setdefault(by_host.get(host, ""), []).append(host)
        if len(hosts_of) > 1:
            parts = "; ".join(f"{version or 'not found'} on {_named(hosts)}" for version, hosts in hosts_of.items())
            found.append(f"warning: {name} differs between hosts: {parts}. Use one image, on machines set up alike")
    return found


def _named(hosts: Sequence[str]) -> str:
    if len(hosts) > _MOST_NAMED:
        return f"{', '.join(hosts[: _MOST_NAMED - 1])} and {len(hosts) - _MOST_NAMED + 1} more"
    return ", ".join(hosts)


def by_topology(hosts: Sequence[str], grouped: frozenset[str], places: Mapping[str, str]) -> tuple[list[str], str]:
    """``hosts`` with those at one switch side by side, so that rings of ranks cross each link once; and a sentence
    about it.

    ``places``: for each host of the group its switches from the network's root on, such as ``s0.s4.s8.node3``. The
    group's first host stays the first. Hosts outside the group keep their places.
    """
    members = [host for host in hosts if host in grouped]
    silent = [host for host in members if not places.get(host)]
    if silent:
        names = ", ".join(silent[:4]) + (f" and {len(silent) - 4} more" if len(silent) > 4 else "")
        return list(hosts), (
            f"warning: --host-order topology: {names} can't say at which switch (MUSTER_TOPOLOGY, or "
            "SLURM_TOPOLOGY_ADDR, which Slurm sets with a topology plugin): hosts keep the platform's order"
        )
    ordered = _together(members, {host: tuple(places[host].split("."))[:-1] for host in members}, 0)
    following = iter(ordered)
    told = f"rank order by topology: {', '.join(ordered[:8])}{' …' if len(ordered) > 8 else ''}"
    return [next(following) if host in grouped else host for host in hosts], told


def _together(hosts: Sequence[str], switches: Mapping[str, _Path], depth: int) -> list[str]:
    """Hosts below one switch of this depth follow each other; switches come in the order of their first hosts."""
    if len(hosts) < 3:
        return list(hosts)
    below: dict[str, list[str]] = {}
    for host in hosts:
        path = switches[host]
        below.setdefault(path[depth] if depth < len(path) else "", []).append(host)
    if len(below) == 1 and "" in below:
        return list(hosts)
    return [host for name, some in below.items() for host in (_together(some, switches, depth + 1) if name else some)]
