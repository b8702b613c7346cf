"""MPICH, MVAPICH2 and Intel MPI, whose mpirun is Hydra: a remote shell per host that stays as long as the daemon does.

By default Hydra gives every rank the leader's whole environment; here each rank gets its own host's. Tested with MPICH
4.0.2 and 5.0.2 and Intel MPI 2021.18; MVAPICH2's variables are from its user guide (2.3.7).
"""

from __future__ import annotations

from typing import Sequence

from musterpoint.base.errors import LauncherError
from musterpoint.core.fabric.mpirun import INTEL_MPI, MVAPICH, Mpi
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.mpi.command import Command, Flag, HostRanks, agent, world

INTELS_WIDTH = 16
"""Up to this many hosts Intel MPI's mpirun starts all daemons itself; with more, daemons start each other."""

MPICHS_DAEMONS, INTELS_DAEMONS = ("hydra_pmi_proxy",), ("hydra_bstrap_proxy", "hydra_pmi_proxy")

_STAYS = EnvSetting("MUSTER_AGENT_STAYS", "1", "Hydra takes an agent that ends for a daemon that failed")


def hydra(mpi: Mpi, places: Sequence[HostRanks], interface: str, others: bool) -> Command:
    """Flags for the ranks of ``places``, the first of which is this host where it leads.

    ``interface`` is the one by which this host reaches the others; empty: unknown. ``others``: this host has more
    interfaces, which MPICH's UCX could take instead.

    Raises:
        LauncherError: Hydra can't start this job's hosts.
    """
    intel = mpi.flavour == INTEL_MPI
    ranks = world(places)
    mvapichs = _mvapich(places) if mpi.flavour == MVAPICH else ()
    if len(places) == 1:
        return Command((ranks,), INTELS_DAEMONS if intel else MPICHS_DAEMONS, everywhere=mvapichs)
    if any(":" in place.seat.address for place in places):
        raise LauncherError(
            f"launcher mpi: this job's hosts have IPv6 addresses, and {mpi.text} starts hosts by IPv4 only; use Open "
            "MPI, or --launcher ranks or --launcher torchrun"
        )
    through_ucx = others and mpi.flavour != MVAPICH
    command = _intel(ranks, places, interface) if intel else _mpich(ranks, places, interface if through_ucx else "")
    shared = (
        Flag("launcher", ("-launcher", "ssh"), "one agent for each host, called as ssh is"),
        Flag("genvnone", ("-genvnone",), "each host's ranks have that host's environment, not the leader's"),
    )
    tcp = "where libfabric speaks TCP: the interface by which this host reaches the others"
    libfabric = EnvSetting("FI_TCP_IFACE", interface, tcp)
    more = mvapichs if mpi.flavour == MVAPICH else (libfabric,) if interface else ()
    return command._replace(
        flags=(*command.flags, *shared), own=(*command.own, _STAYS), everywhere=(*more, *command.everywhere)
    )


def _mvapich(places: Sequence[HostRanks]) -> tuple[EnvSetting, ...]:
    """MVAPICH2's own binding and its copies between ranks are switched off, as Open MPI's are."""
    affinity = EnvSetting(
        "MV2_ENABLE_AFFINITY",
        "0",
        "a rank and its threads may use every processor; the default is one core, and MPI_THREAD_MULTIPLE, which "
        "mpi4py asks for, needs it off",
    )
    copies = EnvSetting("MV2_SMP_USE_CMA", "0", "containers may forbid ranks to read each other's memory")
    return (affinity, copies) if any(place.ranks > 1 for place in places) else (affinity,)


def _mpich(ranks: Flag, places: Sequence[HostRanks], interface: str) -> Command:
    hosts = ",".join(f"{place.seat.address}:{place.ranks}" for place in places)
    reason = "the interface by which this host reaches the others; UCX would take a bridge that every host has"
    return Command(
        (ranks, Flag("hosts", ("-hosts", hosts), "the group's hosts and their slots, in rank order")),
        MPICHS_DAEMONS,
        (agent("HYDRA_LAUNCHER_EXEC"),),
        (EnvSetting("UCX_NET_DEVICES", interface, reason),) if interface else (),
    )


def _intel(ranks: Flag, places: Sequence[HostRanks], interface: str) -> Command:
    flags: tuple[Flag, ...] = ()
    sets: tuple[tuple[Flag, ...], ...] = ()
    slots = {place.ranks for place in places}
    if len(slots) == 1:
        hosts = ",".join(place.seat.address for place in places)
        flags = (
            ranks,
            Flag("hosts", ("-hosts", hosts), "the group's hosts, in rank order"),
            Flag("ppn", ("-ppn", str(slots.pop())), "slots of each host"),
        )
    else:
        reason = "slots of {}; Intel MPI wants uneven hosts one by one"
        sets = tuple(
            (
                Flag("np", ("-np", str(place.ranks)), reason.format(place.seat.name)),
                Flag("host", ("-host", place.seat.address), ""),
            )
            for place in places
        )
    if interface:
        reason = "daemons call back on this interface's address: the leader's own name may mean nothing to them"
        flags = (*flags, Flag("iface", ("-iface", interface), reason))
    own = [agent("I_MPI_HYDRA_BOOTSTRAP_EXEC")]
    if len(places) > INTELS_WIDTH:
        flat = "every daemon is started from here: workers can't start any"
        own.append(EnvSetting("I_MPI_HYDRA_BRANCH_COUNT", str(len(places)), flat))
    return Command(flags, INTELS_DAEMONS, tuple(own), (), sets)
