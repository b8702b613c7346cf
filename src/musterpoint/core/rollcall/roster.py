"""The roster: every host of the job with its address, slots and version. The same on all hosts."""

from typing import TYPE_CHECKING, Any, Mapping

from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.base.untrusted import check_types, is_host_name
from musterpoint.core.channel.topic import World
from musterpoint.core.job.model import Job, UnnamedHosts
from musterpoint.core.rollcall.agreed_ports import rollcall_port

if TYPE_CHECKING:
    from musterpoint.core.channel.topics.attempts import NextAttempt

MOST_PORTS = 64
"""How many ports one host may offer."""
MOST_SLOTS = 65536
"""How many ranks one host may run."""
MOST_LIBRARIES = 16
"""How many libraries a host may name in its offer."""
LONGEST_LIBRARY = 128
"""Characters of one library's name and version."""
LONGEST_PLACE = 512
"""Characters of a host's place in the network."""
LONGEST_SSH_KEY = 256
"""Characters of a host's public key for ssh."""
_MOST_NUMBER = 65535


class Offer(NamedTuple):
    """What a host says about itself in its hello. All hosts must agree on ``job`` and ``launcher``.

    ``slots`` is the number of ranks this host will run (0 outside the distribution group), ``capacity`` the number it
    has devices for, which a launcher that the job runs as its program uses. An empty ``launcher`` agrees with any: that
    host can't run its part, and reports why when all are here. ``ports`` are free on this host, for servers of the
    launcher's framework. ``libraries``: versions that should be the same on all hosts,
    such as ``NCCL=2.27.3``. ``place``: its switches, where rank order by topology is asked for. ``ssh_key``: its public
    key, where the job has ssh between its hosts; the last of ``ports`` is then that of its ssh server.
    ``independent``: whether the hosts' programs are on their own, which may start ranks by themselves.
    ``role``: its role, where the job has several, and ``roles``: the same on all hosts that have read the same of them.
    ``role_ports``: as in :class:`Seat`.
    """

    job: str
    launcher: str
    slots: int
    version: str
    capacity: int = 1
    ports: tuple[int, ...] = ()
    libraries: tuple[str, ...] = ()
    place: str = ""
    ssh_key: str = ""
    independent: bool = False
    role: str = ""
    roles: str = ""
    role_ports: tuple[str, ...] = ()


class Participant(NamedTuple):
    """One host's part in the roll call.

    ``hosts``: all hosts of the job in rank order.
    ``group``: the names of those that take part in the distribution, in rank order; the first is the leader.
    ``me``: this host's name.
    ``offer``: what it says of itself.
    ``settings``: the options.
    ``unnamed``: set where the platform doesn't name the hosts; ``hosts`` and ``group`` are then placeholders, and
    ``me`` is how this host calls itself.
    ``at_most``: seconds of its calls, where it only has something to tell.
    ``role_of``: the role of each host, where the job has several; ``group`` is then that of the role that leads.
    ``worlds``: the job's groups, as the channel has them; empty: one.
    """

    hosts: tuple[str, ...]
    group: tuple[str, ...]
    me: str
    offer: Offer
    settings: Settings
    unnamed: UnnamedHosts | None = None
    at_most: float = float("inf")
    role_of: Mapping[str, str] = {}
    worlds: tuple[World, ...] = ()

    @property
    def seconds(self) -> float:
        """How long the others are waited for."""
        return min(self.settings.rollcall_timeout, self.at_most)

    @classmethod
    def of(cls, job: Job, offer: Offer, settings: Settings) -> "Participant":
        """This host's part in the roll call of ``job``."""
        own = settings._replace(rollcall_port=rollcall_port(job, settings))
        if not job.roles:
            return cls(job.hosts, job.group_hosts, job.own_name, offer, own, job.unnamed)
        role_of = {host: role.name for role in job.roles if not role.beside for host in role.hosts}
        group = next(role.hosts for role in job.roles if role.name == job.leads)
        patience = settings.ready_timeout or settings.rollcall_timeout
        worlds = tuple(
            World(role.name, frozenset(role.hosts), role.ends == "job", role.after, patience, role.beside)
            for role in job.roles
        )
        return cls(job.hosts, group, job.own_name, offer, own, job.unnamed, role_of=role_of, worlds=worlds)

    @property
    def leader(self) -> str:
        return self.group[0]

    @property
    def endpoint(self) -> str:
        """Where the others look for the leader: its name, or what the platform says that doesn't name the hosts."""
        return self.leader if self.unnamed is None else self.unnamed.leader


class Seat(NamedTuple):
    """One host in the roster. ``address`` is numeric (IPv4 or IPv6) and reaches it from the other hosts.

    ``ports`` are those it offered for servers of the launcher's framework. ``ssh_key``: as in its offer. ``role``: in a
    job of several. ``role_ports``: ``NAME=PORT``, the master port of each role whose first host it is, but for the role
    that leads. ``launcher``: what starts its ranks.
    """

    name: str
    address: str
    slots: int
    grouped: bool = True
    version: str = ""
    capacity: int = 1
    ports: tuple[int, ...] = ()
    ssh_key: str = ""
    role: str = ""
    role_ports: tuple[str, ...] = ()
    launcher: str = ""

    def port_of(self, role: str) -> int:
        """The master port of ``role``, if its first host is this one; 0: it isn't, or it leads."""
        own = (port for text, port in zip(self.role_ports, self.master_ports) if text.partition("=")[0] == role)
        return next(own, 0)

    @property
    def master_ports(self) -> tuple[int, ...]:
        """The master ports of those roles."""
        ports = (text.partition("=")[2] for text in self.role_ports)
        return tuple(int(port) if port.isdecimal() and len(port) < 6 else 0 for port in ports)


_MOST_NAMED = 4
"""Hosts that are named in a sentence."""


class Roster(NamedTuple):
    """All hosts in rank order, as the leader published them. ``master_port`` is free on the first host of this one's
    group, and ``launch_port`` on the leader: for the roll calls of launches in the job's program.

    ``session`` is unique to this muster. ``me`` is this host's name. ``attempt``: how often the ranks were started
    again; ``max_restarts``: how often they may be. ``leading_host``: the leader's name, and ``leading_port`` the master
    port of its group; empty: those of this host's group.
    """

    job: str
    session: str
    seats: tuple[Seat, ...]
    master_address: str
    master_port: int
    me: str
    attempt: int = 0
    max_restarts: int = 0
    launch_port: int = 0
    leading_host: str = ""
    leading_port: int = 0

    @property
    def leader(self) -> str:
        """The name of the host that leads the job."""
        return self.leading_host or self.group[0].name

    @property
    def start(self) -> str:
        """The same on all hosts of a start of the job, and on those of no other: for reports."""
        return self.session[:12]

    @property
    def group(self) -> tuple[Seat, ...]:
        """The seats of the distribution, or of this host's role, in rank order."""
        role = next((seat.role for seat in self.seats if seat.name == self.me), "")
        return tuple(seat for seat in self.seats if seat.grouped and seat.role == role)

    def seen_by(self, role: str) -> "Roster":
        """The same as the first host of ``role`` has it; as it is, where no host has that role of its own."""
        first = next((seat for seat in self.seats if seat.role == role), None)
        if first is None or not role:
            return self
        port = first.port_of(role) or self.leading_port or self.master_port
        return self._replace(me=first.name, master_address=first.address, master_port=port)

    def port_of(self, job: Job, name: str) -> int:
        """The master port of the role ``name`` of ``job``."""
        first = next(role.hosts[0] for role in job.roles if role.name == name)
        seat = next(seat for seat in self.seats if seat.name == first)
        return seat.port_of(name) or self.leading_port or self.master_port

    @property
    def world_size(self) -> int:
        """Ranks over all hosts of the group."""
        return sum(seat.slots for seat in self.group)

    @property
    def is_whole(self) -> bool:
        """Every host of the job's groups can run its part; one that can't has said so by a capacity of 0."""
        return all(seat.capacity for seat in self.seats if seat.grouped)

    @property
    def seat(self) -> Seat:
        """This host's own seat."""
        return next(seat for seat in self.seats if seat.name == self.me)

    @property
    def node_rank(self) -> int:
        """This host's place in the group (-1 outside it)."""
        return next((index for index, seat in enumerate(self.group) if seat.name == self.me), -1)

    @property
    def first_rank(self) -> int:
        """The global rank of this host's local rank 0 (0 outside the group)."""
        before = self.group[: max(self.node_rank, 0)]
        return sum(seat.slots for seat in before)

    @property
    def ranks(self) -> dict[str, range]:
        """The global ranks of each host of the group."""
        found, first = {}, 0
        for seat in self.group:
            found[seat.name] = range(first, first + seat.slots)
            first += seat.slots
        return found

    @property
    def all_ranks(self) -> dict[str, range]:
        """The ranks of every host in its own group."""
        names = dict.fromkeys(seat.role for seat in self.seats if seat.grouped)
        return {host: each for name in names for host, each in self.seen_by(name).ranks.items()}

    def worlds(self, worlds: tuple[World, ...]) -> tuple[World, ...]:
        """``worlds`` with the hosts' names, which the roll call may have learned."""
        of_roles: dict[str, set[str]] = {}
        for seat in self.seats:
            of_roles.setdefault(seat.role, set()).add(seat.name)
        return tuple(world._replace(hosts=frozenset(of_roles[world.beside or world.name])) for world in worlds)

    def settled(self, job: Job) -> Job:
        """``job`` with the roster's names, which the roll call learned where the platform names no hosts, and with its
        order.
        """
        hosts, group = (tuple(seat.name for seat in seats) for seats in (self.seats, self.group))
        if job.unnamed is not None:
            names = dict(zip(job.hosts, hosts, strict=True))
            roles = tuple(role._replace(hosts=tuple(names[host] for host in role.hosts)) for role in job.roles)
            return job._replace(hosts=hosts, group_hosts=group, current_host=self.me, unnamed=None, roles=roles)
        return job if hosts == job.hosts else job._replace(hosts=hosts, group_hosts=group)

    def summary(self, launcher: str, independent: bool = False) -> str:
        """One sentence for the log: how many hosts and ranks ``launcher`` has; or ``independent`` programs."""
        if self.seat.role:
            return self._roles()
        each = self._each()
        outside = len(self.seats) - len(self.group)
        others = f"; {outside} more outside the group" if outside else ""
        ranks = f"{self.world_size} rank{'s' if self.world_size != 1 else ''} ({each})"
        if independent and len(self.group) > 1:
            ranks = f"{len(self.group)} independent programs, no common world"
        hosts = "1 host is" if len(self.group) == 1 else f"{len(self.group)} hosts are"
        return f"{hosts} here: launcher {launcher}, {ranks}{others}"

    def _roles(self) -> str:
        parts = []
        for role in dict.fromkeys(seat.role for seat in self.seats):
            group = [seat for seat in self.seats if seat.role == role]
            where = group[0].name if len(group) == 1 else f"{group[0].name} to {group[-1].name}"
            ranks = sum(seat.slots for seat in group)
            parts.append(f"{role} on {where} ({group[0].launcher}, {ranks} rank{'s' if ranks != 1 else ''})")
        hosts = "1 host is" if len(self.seats) == 1 else f"{len(self.seats)} hosts are"
        return f"{hosts} here: {'; '.join(parts)}"

    def _each(self) -> str:
        """Counts the ranks of the hosts; those that differ from most are named."""
        slots = [seat.slots for seat in self.group]
        usual = max(slots, key=slots.count)
        if slots.count(usual) == len(slots):
            return f"{usual} each"
        most = f"{usual} each, but " if usual and slots.count(usual) > 1 else ""
        named = [f"{seat.slots} on {seat.name}" for seat in self.group if seat.slots != (usual if most else 0)]
        more = f", and others on {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        return f"{most}{', '.join(named[:_MOST_NAMED])}{more}"

    def next(self, attempt: "NextAttempt") -> "Roster":
        """The roster of another attempt."""
        changes = {change.host: change for change in attempt.seats}
        seats = tuple(
            seat._replace(address=changes[seat.name].address, ports=changes[seat.name].ports)
            if seat.name in changes
            else seat
            for seat in self.seats
        )
        leads = self.leading_host in ("", *(seat.name for seat in self.group))
        port = attempt.master_port if leads else self.master_port
        return self._replace(seats=seats, attempt=attempt.number, master_port=port, leading_port=attempt.master_port)

    def to_wire(self) -> dict[str, Any]:
        """As a JSON object, without ``me``."""
        value = self._asdict()
        del value["me"]
        value["seats"] = [list(seat) for seat in self.seats]
        return value

    @classmethod
    def from_wire(cls, value: Any, me: str | int) -> "Roster":
        """Builds it from decoded JSON; ``ValueError`` says what is wrong with it.

        ``me``: this host's name, or the place of its seat where it learns its name from the roster.
        """
        try:
            if isinstance(me, int):
                me = value["seats"][me][0]
                if not isinstance(me, str) or not is_host_name(me):
                    raise ValueError("not a roster: this host's seat has no host's name")
            roster = cls(
                value["job"],
                value["session"],
                tuple(map(_seat, value["seats"])),
                value["master_address"],
                value["master_port"],
                me,
                value["attempt"],
                value["max_restarts"],
                value["launch_port"],
                value["leading_host"],
                value["leading_port"],
            )
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"not a roster: {error!r}") from None
        check_types(roster, _ROSTER_TYPES, "not a roster: ")
        for seat in roster.seats:
            check_types(seat, _SEAT_TYPES, "not a roster: ")
            if not (0 <= seat.slots <= MOST_SLOTS and 0 <= seat.capacity <= MOST_SLOTS):
                wrong = f"{seat.slots} slots and room for {seat.capacity}"
                raise ValueError(f"not a roster: {wrong} are not 0 to {MOST_SLOTS}")
            if len(seat.ports) > MOST_PORTS or not all(type(port) is int and 0 < port < 65536 for port in seat.ports):
                raise ValueError(f"not a roster: the ports of {seat.name} are not at most {MOST_PORTS} from 1 to 65535")
            if len(seat.role_ports) > MOST_PORTS or not all(isinstance(text, str) for text in seat.role_ports):
                raise ValueError(f"not a roster: the ports of the roles of {seat.name} are no texts")
            if not is_ssh_key(seat.ssh_key):
                raise ValueError(f"not a roster: the ssh key of {seat.name} is none of ssh-keygen's")
        if not 0 < roster.master_port <= _MOST_NUMBER:
            raise ValueError(f"not a roster: master_port is {roster.master_port}, not 1 to {_MOST_NUMBER}")
        if min(roster.attempt, roster.max_restarts) < 0:
            raise ValueError("not a roster: its attempt or max_restarts is negative")
        texts = (
            roster.session,
            roster.master_address,
            *(text for s in roster.seats for text in (s.name, s.address, s.version, s.role, *s.role_ports, s.launcher)),
        )
        if not all(map(str.isprintable, texts)):
            raise ValueError("not a roster: a name, address or version in it can't be printed")
        if len({seat.name for seat in roster.seats}) != len(roster.seats):
            raise ValueError("not a roster: two seats have one name")
        if me not in {seat.name for seat in roster.seats}:
            raise ValueError(f"the roster has no seat for {me}")
        return roster.seen_by(roster.seat.role)._replace(me=me) if roster.seat.role else roster


def is_ssh_key(text: str) -> bool:
    """Whether ``text`` is a public key of ssh's that may stand in its files, or empty: none."""
    kind, _, key = text.partition(" ")
    known = kind == "ssh-ed25519" and key.isascii() and key.translate(_NO_SIGNS).isalnum()
    return not text or (known and len(text) <= LONGEST_SSH_KEY)


_NO_SIGNS = {ord(sign): "A" for sign in "+/="}
"""The characters of base64 that are no letters or digits."""


def _seat(row: Any) -> Seat:
    seat = Seat(*row)
    ports: Any = seat.ports
    role_ports: Any = seat.role_ports
    seat = seat._replace(ports=tuple(ports)) if isinstance(ports, list) else seat
    return seat._replace(role_ports=tuple(role_ports)) if isinstance(role_ports, list) else seat


_TEXT = (str,)
_NUMBER = (int,)
_ROSTER_TYPES: dict[str, tuple[type, ...]] = {
    "job": _TEXT,
    "session": _TEXT,
    "seats": (tuple,),
    "master_address": _TEXT,
    "master_port": _NUMBER,
    "launch_port": _NUMBER,
    "me": _TEXT,
    "attempt": _NUMBER,
    "max_restarts": _NUMBER,
    "leading_host": _TEXT,
    "leading_port": _NUMBER,
}
_SEAT_TYPES: dict[str, tuple[type, ...]] = {
    "name": _TEXT,
    "address": _TEXT,
    "slots": _NUMBER,
    "grouped": (bool,),
    "version": _TEXT,
    "capacity": _NUMBER,
    "ports": (tuple,),
    "ssh_key": _TEXT,
    "role": _TEXT,
    "role_ports": (tuple,),
    "launcher": _TEXT,
}
