"""Versions of Open MPI, and hosts that one of them can't start."""

from __future__ import annotations

import pytest

from musterpoint.errors import LauncherError
from musterpoint.fabric.mpi import OPEN_MPI, Mpi
from musterpoint.launch.mpi.command import Place
from musterpoint.launch.mpi.open_mpi import LONGEST_HOSTNAME, ORTE, PRRTE, open_mpi
from musterpoint.rollcall.roster import Seat


def mpi(major: int, hostname: str = "algo-1") -> Mpi:
    return Mpi("/usr/bin/mpirun", OPEN_MPI, (major, 0, 1), f"mpirun (Open MPI) {major}.0.1", hostname)


def places(*addresses: str, name: str = "algo", ranks: int = 1) -> list[Place]:
    return [Place(Seat(f"{name}-{at}", address, ranks), ranks) for at, address in enumerate(addresses, 1)]


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
    with pytest.raises(LauncherError, match=r"is mpirun \(Open MPI\) 3.0.1; Open MPI 4 and 5 are known") as caught:
        open_mpi(mpi(3), TWO)
    assert caught.value.code == 72


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
