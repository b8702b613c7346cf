"""Versions of Open MPI, hosts that one of them can't start, and the network around the hosts' addresses."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.errors import LauncherError
from musterpoint.core.fabric.mpirun import OPEN_MPI, Mpi
from musterpoint.core.launch.mpi.command import HostRanks
from musterpoint.core.launch.mpi.open_mpi import LONGEST_HOSTNAME, ORTE, PRRTE, WIDEST, common_networks, open_mpi
from musterpoint.core.rollcall.roster import Seat


def mpi(major: int, hostname: str = "algo-1") -> Mpi:
    return Mpi("/usr/bin/mpirun", OPEN_MPI, (major, 0, 1), f"mpirun (Open MPI) {major}.0.1", hostname)


def places(*addresses: str, name: str = "algo", ranks: int = 1) -> list[HostRanks]:
    return [HostRanks(Seat(f"{name}-{at}", address, ranks), ranks) for at, address in enumerate(addresses, 1)]


TWO = places("10.0.0.1", "10.0.0.2")


def words(major: int) -> set[str]:
    return {word for flag in open_mpi(mpi(major), places("10.0.0.1", "10.0.0.2", ranks=2)).flags for word in flag.words}


def test_no_name_of_one_generation_is_given_to_the_other() -> None:
    four = {ORTE.flat, ORTE.concurrent, ORTE.interfaces, ORTE.single_copy[0]}
    five = {PRRTE.flat, PRRTE.concurrent, PRRTE.interfaces, PRRTE.single_copy[0], PRRTE.word}
    assert four <= words(4)
    assert not five & words(4)
    assert five <= words(5)
    assert not four & words(5)


def test_an_old_one_is_refused() -> None:
    with pytest.raises(LauncherError, match=r"is mpirun \(Open MPI\) 3.0.1; Open MPI 4 and 5 are known"):
        open_mpi(mpi(3), TWO)


LONG = "a" * (LONGEST_HOSTNAME + 1)


def test_a_leader_with_a_long_name() -> None:
    with pytest.raises(LauncherError, match="57 characters; mpirun of Open MPI 4 crashes with more than 56"):
        open_mpi(mpi(4, LONG), TWO)
    open_mpi(mpi(4, LONG[1:]), TWO)
    open_mpi(mpi(5, LONG), TWO)
    open_mpi(mpi(4, LONG), TWO[:1])


def test_a_worker_with_a_long_name_matters_where_names_are_given() -> None:
    six = places("fd00::1", "fd00::2", name=LONG)
    with pytest.raises(LauncherError, match="has an IPv6 address, so Open MPI 4 gets its name"):
        open_mpi(mpi(4), six)
    open_mpi(mpi(5), six)
    open_mpi(mpi(4), places("10.0.0.1", "10.0.0.2", name=LONG))


def test_hosts_that_are_processes_of_one_machine() -> None:
    here = places("127.0.0.11", "127.0.0.12")
    with pytest.raises(LauncherError, match="--backend netns"):
        open_mpi(mpi(5), here)
    flag = open_mpi(mpi(4), here).flags[-1]
    assert flag.words == ("--mca", "btl", "tcp,self")
    assert flag.required


CASES = [
    (["10.0.1.5", "10.0.1.6"], "10.0.1.4/30"),
    (["10.0.0.2", "10.0.0.3"], "10.0.0.2/31"),
    (["10.77.1.2", "10.77.1.3", "10.77.1.4", "10.77.1.5"], "10.77.1.0/29"),
    (["172.31.4.200", "172.31.60.3"], "172.31.0.0/18"),
    (["10.1.0.1", "10.2.0.1"], "10.1.0.0/31,10.2.0.0/31"),
    (["10.2.0.9", "10.1.0.1", "10.2.0.10"], "10.1.0.0/31,10.2.0.8/30"),
    (["10.0.0.7", "10.0.0.7"], "10.0.0.6/31"),
    (["127.0.0.11", "127.0.0.12"], "127.0.0.0/8"),
    (["127.0.0.1", "127.0.0.1"], "127.0.0.0/8"),
    (["0.0.0.1", "0.0.0.2"], "0.0.0.0/30"),
    (["255.255.255.254", "255.255.255.255"], "255.255.255.254/31"),
]


@pytest.mark.parametrize(("addresses", "network"), CASES)
def test_narrowest(addresses: list[str], network: str) -> None:
    assert common_networks(addresses) == network


@given(st.lists(st.ip_addresses(v=4).map(str), min_size=1, max_size=20))
def test_every_address_is_in_one_of_them_and_none_is_wider_than_docker_s(addresses: list[str]) -> None:
    networks = [ipaddress.ip_network(text) for text in common_networks(addresses).split(",")]
    assert all(any(ipaddress.ip_address(address) in network for network in networks) for address in addresses)
    assert all(network.is_loopback or WIDEST <= network.prefixlen <= 31 for network in networks)


@pytest.mark.parametrize("text", ["algo-1", "10.0.0", "10.0.0.256", "fd00::1", "", "a.b.c.d"])
def test_names_have_no_known_network(text: str) -> None:
    assert common_networks(["10.0.0.1", text]) == ""
