"""What Hydra needs beyond its argv, which tests/unit/core/launch/test_mpi.py has."""

from __future__ import annotations

import pytest

from musterpoint.base.errors import LauncherError
from musterpoint.core.fabric.mpi import INTEL_MPI, MPICH, Mpi
from musterpoint.core.launch.mpi.command import Place
from musterpoint.core.launch.mpi.hydra import INTELS_WIDTH, hydra
from musterpoint.core.rollcall.roster import Seat

FLAVOURS = [Mpi("/m", MPICH, (5, 0, 2), "HYDRA"), Mpi("/m", INTEL_MPI, (2021, 18), "Intel")]


def places(count: int, network: str = "10.0.0.") -> list[Place]:
    return [Place(Seat(f"algo-{number}", f"{network}{number}", 1), 1) for number in range(1, count + 1)]


@pytest.mark.parametrize("mpi", FLAVOURS)
def test_no_ipv6(mpi: Mpi) -> None:
    with pytest.raises(LauncherError, match=f"{mpi.text} starts hosts by IPv4 only; use Open MPI"):
        hydra(mpi, places(2, "fd00::"), "eth0", False)
    assert hydra(mpi, places(1, "fd00::"), "", False).flags[0].words == ("-np", "1")


@pytest.mark.parametrize(("hosts", "flat"), [(INTELS_WIDTH, None), (INTELS_WIDTH + 1, "17")])
def test_intels_daemons_never_start_each_other(hosts: int, flat: str | None) -> None:
    own = {setting.name: setting.value for setting in hydra(FLAVOURS[1], places(hosts), "eth0", False).own}
    assert own.get("I_MPI_HYDRA_BRANCH_COUNT") == flat


@pytest.mark.parametrize("mpi", FLAVOURS)
def test_an_interface_that_is_not_known_is_not_named(mpi: Mpi) -> None:
    command = hydra(mpi, places(2), "", True)
    assert command.everywhere == ()
    assert not any("iface" in flag.key for flag in command.flags)
