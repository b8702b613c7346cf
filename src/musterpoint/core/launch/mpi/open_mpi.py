"""Open MPI 4 (ORTE) and 5 (PRRTE): common flags where both know them, else each version's own parameter names.

Open MPI silently ignores names of the other version, so every name here was tested with its version (4.1.4 and
5.0.11).
"""

from __future__ import annotations

from typing import Iterable, Sequence

from musterpoint.base.errors import LauncherError
from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.mpirun import Mpi
from musterpoint.core.fabric.network_interface import ipv4_number
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.mpi.command import Command, Flag, HostRanks, agent, mca, world

OLDEST, NEWEST = 4, 5

LONGEST_HOSTNAME = 56
"""Characters of the leader's own name; mpirun 4.1.4 with a longer one ends with "stack smashing detected"."""

NETWORK_UNKNOWN = "<network of the hosts>"
"""Placeholder in a plan that is made before the roll call."""

WIDEST = 16
"""Prefix length of a network around the hosts. Docker's bridges have a /16 each: a wider network could hold a bridge
that every host has under the same address."""

_NARROWEST = 31
_LOOPBACK = 127
_INTERFACES = ("oob_tcp_if_include", "oob_tcp_if_exclude", "prte_if_include", "prte_if_exclude")


class Names(NamedTuple):
    """The parameter names of one version.

    word: the option that sets parameters of the runtime.
    daemon: the program that runs on every host.
    remote: the component that starts daemons by a remote shell.
    agent: the variable for the command that starts daemons in place of ssh.
    flat: the parameter by which mpirun itself starts every daemon.
    concurrent: how many daemons are started at once.
    interfaces: which networks the daemons use.
    single_copy: how ranks read each other's memory, and the value that keeps them from it.
    binding: which processors a rank may use.
    mapping: in which order ranks go to hosts.
    """

    word: str
    daemon: str
    remote: str
    agent: str
    flat: str
    concurrent: str
    interfaces: str
    single_copy: tuple[str, str]
    binding: str
    mapping: str


ORTE = Names(
    "--mca",
    "orted",
    "rsh",
    "OMPI_MCA_plm_rsh_agent",
    "plm_rsh_no_tree_spawn",
    "plm_rsh_num_concurrent",
    "oob_tcp_if_include",
    ("btl_vader_single_copy_mechanism", "none"),
    "hwloc_base_binding_policy",
    "rmaps_base_mapping_policy",
)
PRRTE = Names(
    "--prtemca",
    "prted",
    "ssh",
    "PRTE_MCA_plm_ssh_agent",
    "plm_ssh_no_tree_spawn",
    "plm_ssh_num_concurrent",
    "prte_if_include",
    ("smsc", "^cma"),
    "hwloc_default_binding_policy",
    "rmaps_default_mapping_policy",
)

_ONLY_IPV4 = EnvSetting(
    "PMIX_MCA_pif", "posix_ipv4", "PRRTE finds no network on an interface that has an IPv6 address too"
)
_YIELD = EnvSetting(
    "OMPI_MCA_mpi_yield_when_idle", "1", "more ranks than processors here: one that waits gives its processor up"
)


MANAGERS = (("SLURM_JOBID", "slurm"), ("SLURM_JOB_ID", "slurm"), ("PBS_JOBID", "tm"), ("LSB_JOBID", "lsf"))
"""A variable of each resource manager whose hosts and daemons Open MPI would take by itself, and its component."""


def open_mpi(mpi: Mpi, places: Sequence[HostRanks], crowded: bool = False, manager: str = "") -> Command:
    """Flags for the ranks of ``places``. ``crowded`` says that this host has more of them than processors.

    ``manager``: the component for the resource manager around this process, of :data:`MANAGERS`.

    Raises:
        LauncherError: this version isn't known, or can't start this job's hosts.
    """
    if mpi.major < OLDEST:
        raise LauncherError(
            f"launcher mpi: {mpi.path} is {mpi.text}; Open MPI {OLDEST} and {NEWEST} are known: install one of them"
        )
    names = ORTE if mpi.major == OLDEST else PRRTE
    notes = () if mpi.major <= NEWEST else (f"{mpi.text} is newer than this release knows: it is started as {NEWEST}",)
    flags = [
        world(places),
        *_root(mpi),
        Flag(
            "bind-to",
            ("--bind-to", "none"),
            "a rank and its threads may use every processor; the default is one core",
            (f"mca {names.binding}",),
        ),
        Flag("map-by", ("--map-by", "slot"), "rank order is host order", (f"mca {names.mapping}",)),
        *_single_copy(names, places),
        *_unmanaged(names, manager),
    ]
    everywhere = (_YIELD,) if crowded else ()
    if len(places) == 1:
        hosts = Flag("host", ("--host", f"localhost:{places[0].ranks}"), "this host alone, with its slots")
        return Command((flags[0], hosts, *flags[1:]), (names.daemon,), everywhere=everywhere, notes=notes)
    six = any(":" in place.seat.address for place in places)
    _check(mpi, places, six)
    hosts = Flag("host", ("--host", _hosts(places, six)), "the group's hosts and their slots, in rank order")
    return Command(
        (flags[0], hosts, *flags[1:], *_flat(names, len(places)), *_network(names, places, six)),
        (names.daemon,),
        (agent(names.agent),),
        (*everywhere, *((_ONLY_IPV4,) if names is PRRTE and not six else ())),
        notes=notes,
    )


def _root(mpi: Mpi) -> tuple[Flag, ...]:
    if not mpi.as_root:
        return ()
    return (Flag("allow-run-as-root", ("--allow-run-as-root",), "this container runs as root"),)


def _unmanaged(names: Names, manager: str) -> tuple[Flag, ...]:
    if not manager:
        return ()
    hosts = "the hosts and their slots are the roster's; the resource manager counts what it has started itself"
    daemons = "daemons are started through musterpoint's agent, not by the resource manager"
    return (
        mca("ras", f"^{manager}", hosts, names.word)._replace(required=True),
        mca("plm", names.remote, daemons, names.word)._replace(required=True),
    )


def _single_copy(names: Names, places: Sequence[HostRanks]) -> tuple[Flag, ...]:
    if max(place.ranks for place in places) == 1:
        return ()
    return (
        mca(*names.single_copy, "containers may forbid ranks to read each other's memory, and each try is an error"),
    )


def _flat(names: Names, hosts: int) -> tuple[Flag, ...]:
    return (
        mca(names.flat, "1", "every daemon is started from here: workers can't start any", names.word),
        mca(names.concurrent, str(hosts), "as many as there are hosts: all daemons start at once", names.word),
    )


def _network(names: Names, places: Sequence[HostRanks], six: bool) -> tuple[Flag, ...]:
    addresses = [place.seat.address for place in places]
    if six:
        return (
            mca("btl_tcp_disable_family", "4", "the hosts found each other by IPv6"),
            mca("oob_tcp_disable_ipv4_family", "1", "mpirun's daemons use IPv6, too", names.word),
        )
    known = common_networks(addresses)
    networks = known or NETWORK_UNKNOWN
    where = "ranks meet on the hosts' own network, whatever its interface is called, not on a bridge that each has"
    flags = (
        mca("btl_tcp_if_include", networks, where, rivals=["btl_tcp_if_exclude"]),
        mca(names.interfaces, networks, "mpirun's daemons meet there, too", names.word, _INTERFACES),
        mca("btl_tcp_disable_family", "6", "the hosts found each other by IPv4"),
        mca("oob_tcp_disable_ipv6_family", "1", "mpirun's daemons use IPv4, too", names.word),
    )
    if not known or not _on_one_machine(places):
        return flags
    alone = "the hosts are one machine, whose ranks would meet in shared memory and not know whose it is"
    return (*flags, mca("btl", "tcp,self", alone)._replace(required=True))


def _hosts(places: Sequence[HostRanks], six: bool) -> str:
    # the colons of an IPv6 address would be taken for slots
    return ",".join(f"{place.seat.name if six else place.seat.address}:{place.ranks}" for place in places)


def _on_one_machine(places: Sequence[HostRanks]) -> bool:
    return all(place.seat.address.startswith("127.") for place in places)


def _check(mpi: Mpi, places: Sequence[HostRanks], six: bool) -> None:
    if mpi.major == OLDEST and len(mpi.hostname) > LONGEST_HOSTNAME:
        raise LauncherError(
            f"launcher mpi: this host is called {mpi.hostname}, {len(mpi.hostname)} characters; mpirun of Open MPI 4 "
            f"crashes with more than {LONGEST_HOSTNAME}: shorten the name, or use Open MPI 5 or MPICH"
        )
    if mpi.major > OLDEST and _on_one_machine(places):
        raise LauncherError(
            "launcher mpi: Open MPI 5 can't tell hosts apart that are processes of one machine; use --backend netns or "
            "--backend docker, or Open MPI 4 or MPICH"
        )
    long = [place.seat.name for place in places if six and len(place.seat.name) > LONGEST_HOSTNAME]
    if long and mpi.major == OLDEST:
        raise LauncherError(
            f"launcher mpi: the host {long[0]} has an IPv6 address, so Open MPI 4 gets its name, which is longer than "
            f"the {LONGEST_HOSTNAME} characters it can take: shorten it, or use Open MPI 5"
        )


def common_networks(addresses: Iterable[str]) -> str:
    """The narrowest network around IPv4 ``addresses`` (``10.0.1.0/29``), or several, apart by a comma, where it would
    be wider than :data:`WIDEST`; empty where one is a name, as in a plan made without a roll call.
    """
    by_widest: dict[int, list[int]] = {}
    for address in addresses:
        number = ipv4_number(address)
        if number is None:
            return ""
        by_widest.setdefault(number >> 32 - WIDEST, []).append(number)
    return ",".join(_around(numbers) for _, numbers in sorted(by_widest.items()))


def _around(numbers: list[int]) -> str:
    length = min(_NARROWEST, 32 - (min(numbers) ^ max(numbers)).bit_length())
    if min(numbers) >> 24 == _LOOPBACK:
        length = 8  # the interface is known by its own address alone, 127.0.0.1
    first = min(numbers) >> 32 - length << 32 - length
    return ".".join(map(str, first.to_bytes(4, "big"))) + f"/{length}"
