"""The hello, a host's first message to the leader, and why the leader may refuse it."""

from __future__ import annotations

from typing import Any

from musterpoint.base.errors import RollCallError, UsageError
from musterpoint.base.readers import MOST_HOSTS
from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import printable
from musterpoint.core.channel import wire
from musterpoint.core.channel.bounds import is_address
from musterpoint.core.rollcall.roster import (
    LONGEST_LIBRARY,
    LONGEST_PLACE,
    LONGEST_SSH_KEY,
    MOST_LIBRARIES,
    MOST_PORTS,
    MOST_SLOTS,
    Offer,
    is_ssh_key,
)

MOST_ADDRESSES = 8
"""How many of the leader's addresses, as a host sees them, are sent."""


class Hello(NamedTuple):
    """``incarnation``: random, one per start of a host. ``sees``: the leader's addresses as this host resolves them;
    ``dialled``: the one it connected to. ``nonce``: empty without a secret. ``stop``: the signal that stopped this host
    before it called, or 0. Unless the caller proved the secret, none of it can be trusted.

    ``nnodes``: how many hosts there are, where the platform doesn't name them; else 0. ``place``: then the node rank;
    -1: by arrival. ``name``: the caller's own name, which ``host`` is too until the leader has a seat for it.
    """

    host: str
    offer: Offer
    incarnation: str
    sees: tuple[str, ...] = ()
    dialled: str = ""
    nonce: str = ""
    protocol: int = wire.PROTOCOL
    stop: int = 0
    nnodes: int = 0
    place: int = -1
    name: str = ""

    def pack(self) -> bytes:
        more: dict[str, Any] = {"nnodes": self.nnodes, "place": self.place} if self.nnodes else {}
        if self.offer.libraries:
            more["libraries"] = list(self.offer.libraries)
        if self.offer.place:
            more["place_in_network"] = self.offer.place
        if self.offer.ssh_key:
            more["ssh_key"] = self.offer.ssh_key
        if self.offer.independent:
            more["independent"] = 1
        if self.offer.roles:
            own = {"role": self.offer.role, "roles": self.offer.roles, "role_ports": list(self.offer.role_ports)}
            more.update(own)
        return wire.pack(
            "hello",
            protocol=self.protocol,
            host=self.host,
            job=self.offer.job,
            launcher=self.offer.launcher,
            slots=self.offer.slots,
            version=self.offer.version,
            room=self.offer.capacity,
            ports=list(self.offer.ports),
            incarnation=self.incarnation,
            sees=list(self.sees),
            dialled=self.dialled,
            nonce=self.nonce,
            stop=self.stop,
            **more,
        )

    @classmethod
    def from_wire(cls, message: dict[str, Any]) -> Hello:
        """Raises WireError. For another protocol only host and protocol are read."""
        host, protocol = wire.host(message), wire.number(message, "protocol")
        if protocol != wire.PROTOCOL:
            return cls(host, Offer("", "", 0, ""), "", protocol=protocol)
        offer = Offer(
            wire.text(message, "job", 1024),
            wire.text(message, "launcher", 64),
            wire.number(message, "slots", MOST_SLOTS),
            wire.text(message, "version", 64),
            wire.number(message, "room", MOST_SLOTS),
            wire.numbers(message, "ports", 1, 65535, MOST_PORTS),
            wire.texts(message, "libraries", MOST_LIBRARIES, LONGEST_LIBRARY) if "libraries" in message else (),
            wire.text(message, "place_in_network", LONGEST_PLACE) if "place_in_network" in message else "",
            _ssh_key_of(message),
            "independent" in message and wire.number(message, "independent", 1) == 1,
            *_roles_of(message),
        )
        dialled = wire.text(message, "dialled", 64)
        if dialled and not is_address(dialled):
            raise wire.WireError("a message 'hello' whose 'dialled' is no numeric address")
        name = host if "nnodes" in message else ""
        return cls(
            host,
            offer,
            wire.token(message, "incarnation"),
            wire.addresses(message, "sees", MOST_ADDRESSES),
            dialled,
            wire.token(message, "nonce", least=0),
            protocol,
            _stop_of(message),
            *_place_of(message),
            name,
        )


def _stop_of(message: dict[str, Any]) -> int:
    return wire.number(message, "stop", 0) if message.get("stop") == 0 else wire.stop_signal(message, "stop")


def _ssh_key_of(message: dict[str, Any]) -> str:
    key = wire.text(message, "ssh_key", LONGEST_SSH_KEY) if "ssh_key" in message else ""
    if not is_ssh_key(key):
        raise wire.WireError("a message 'hello' whose 'ssh_key' is no public key of ssh-keygen's")
    return key


def _roles_of(message: dict[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    """The caller's role, the roles that it has read, and its master ports."""
    if "roles" not in message:
        return "", "", ()
    ports = wire.texts(message, "role_ports", MOST_PORTS, LONGEST_LIBRARY)
    return wire.text(message, "role", 64), wire.text(message, "roles", 64), ports


def _place_of(message: dict[str, Any]) -> tuple[int, int]:
    """How many hosts there are and the node rank, where the caller's platform names no hosts."""
    if "nnodes" not in message:
        return 0, -1
    return wire.number(message, "nnodes", MOST_HOSTS, 1), wire.number(message, "place", MOST_HOSTS, -1)


NO_SEAT = "no seat of this job is this caller's; the log of the job's leader may say why"
"""The answer to a caller that has not shown that it is a host of the job."""
ITSELF = "the leader that you called is this host itself"
"""The answer to a leader that calls the address at which the others look for the leader."""
ANOTHER_WAY = "it counts or ranks the hosts in another way than this host does; the log of the job's leader says how"
EXPANDED = (
    "a variable such as $SLURM_PROCID on a batch script's own line is expanded before srun starts the hosts: write "
    "srun bash -c '… $SLURM_PROCID …' in single quotes"
)
"""The usual reason for two hosts with one node rank."""
PLACE_TAKEN = f"another host has this host's place; the log of the job's leader says which ({EXPANDED})"
STARTED_TWICE = "another process has this host's place; the log of the job's leader says which"
TOO_MANY = "all hosts of the job are here already; the log of the job's leader says which"
"""Answers to callers without a proof, where the platform names no hosts: they learn no name, number or address."""
_SAME_VERSION = "install the same version of musterpoint on all hosts"
ANOTHER_PROTOCOL = f"this leader speaks protocol {wire.PROTOCOL}: {_SAME_VERSION}"
ANOTHER_SECRET = "the secret of this job is missing or another one (--secret, MUSTER_SECRET)"

_PROTOCOL_CLAIM = "speaks another protocol: install the same version on all hosts"
_SECRET_CLAIM = "differs in having a secret (--secret, MUSTER_SECRET)"
_JOB_CLAIM = "belongs to another job"

_LONGEST = 200


def error_of(reason: str, usage: bool) -> type[RollCallError] | type[UsageError]:
    """The error that a refusal's ``reason`` is: hosts that were started wrongly (``usage``, 64), or that can't meet
    (69). Another version is told by its words, since it may not say ``usage``.
    """
    return UsageError if usage or _SAME_VERSION in reason else RollCallError


class Refusal(NamedTuple):
    """``reason``: for the log, and for a caller that certainly is the host. ``claim``: the same for an unproved caller,
    without any text of its own; ``answer``: what that caller is sent. ``usage``: the hosts were started wrongly.
    ``alone``: the host is one too many, so that the others lack nothing and go on.
    """

    reason: str
    claim: str
    answer: str = NO_SEAT
    usage: bool = False
    alone: bool = False


def validate(
    hello: Hello, me: str, offer: Offer, others: frozenset[str], grouped: frozenset[str], secret: bool
) -> Refusal | None:
    """Why the leader ``me`` with its own ``offer`` refuses ``hello``; None if it doesn't.

    ``others``: the job's hosts except the leader; ``grouped``: those of the group; ``secret``: this job has one.
    """
    return (
        check_protocol(hello, me)
        or check_name(hello, me, offer, others)
        or check_offer(hello, me, offer, hello.host in grouped, secret)
    )


def check_protocol(hello: Hello, me: str) -> Refusal | None:
    """Why the leader ``me`` refuses a caller of another protocol; None: it is no other."""
    if hello.protocol == wire.PROTOCOL:
        return None
    reason = f"{hello.host} speaks protocol {hello.protocol}, {me} protocol {wire.PROTOCOL}: {_SAME_VERSION}"
    return Refusal(reason, _PROTOCOL_CLAIM, ANOTHER_PROTOCOL)


def check_name(hello: Hello, me: str, offer: Offer, others: frozenset[str]) -> Refusal | None:
    """Why the leader ``me`` refuses a caller by its name; None if it doesn't. ``others``: the job's other hosts."""
    if hello.nnodes:
        reason = f"{hello.host} doesn't know the names of its hosts, and {me} does: start all alike"
        return Refusal(reason, "doesn't know the names of its hosts")
    if hello.host == me:
        return Refusal(f"{me} is the leader itself: two hosts have this name", "is another host")
    if hello.host not in others:
        count = len(others) + 1
        return Refusal(f"{hello.host} is not one of the {count} hosts of {offer.job}", "is no host of this job")
    return None


def check_offer(hello: Hello, me: str, offer: Offer, grouped: bool, secret: bool) -> Refusal | None:
    """Why the leader ``me`` with its own ``offer`` refuses what ``hello`` offers; None if it doesn't.

    ``grouped``: the caller's host takes part in the distribution; ``secret``: this job has one.
    """
    if secret != bool(hello.nonce):
        one, other = (me, hello.host) if secret else (hello.host, me)
        reason = f"{one} has a secret and {other} has none (--secret, MUSTER_SECRET)"
        return Refusal(reason, _SECRET_CLAIM, ANOTHER_SECRET)
    if hello.offer.job != offer.job:
        theirs = printable(repr(hello.offer.job), _LONGEST)
        return Refusal(f"{hello.host} belongs to job {theirs}, {me} to {offer.job!r}", _JOB_CLAIM)
    if offer.launcher and hello.offer.launcher and hello.offer.roles != offer.roles:
        ours, theirs = ("roles" if each.roles else "no roles" for each in (offer, hello.offer))
        how = "other roles than" if ours == theirs else f"{theirs}, unlike"
        reason = f"{hello.host} has {how} {me}: give all hosts one file of the job (-f, MUSTER_JOB_FILE)"
        return Refusal(reason, "has read other roles", usage=True)
    ours, theirs = offer.launcher, printable(hello.offer.launcher, _LONGEST)
    if grouped and ours and theirs and ours != theirs:
        reason = f"{hello.host} would start the launcher {theirs}, {me} {ours}"
        return Refusal(reason, "would start another launcher")
    return None
