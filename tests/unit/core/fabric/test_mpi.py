"""Which MPI is here: recorded words of real ones, and programs on PATH that say something else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.base import probe
from musterpoint.base.errors import LauncherError
from musterpoint.core.fabric.mpirun import INTEL_MPI, MPICH, MVAPICH, OPEN_MPI, find_mpi, parse_mvapich, parse_version

OPEN_MPI_4 = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
OPEN_MPI_5 = "mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n\n"
MPICH_4 = """HYDRA build details:
    Version:                                 4.0.2
    Release Date:                            Thu Apr  7 12:34:45 CDT 2022
    CC:                              gcc -Wdate-time -D_FORTIFY_SOURCE=2 -g -O2
    Process Manager:                         pmi
"""
MPICH_5 = MPICH_4.replace("4.0.2", "5.0.2")
INTEL = (
    "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n"
    "Copyright 2003-2026, Intel Corporation.\n"
)
SAID = [
    (OPEN_MPI_4, (OPEN_MPI, (4, 1, 4), "mpirun (Open MPI) 4.1.4")),
    ("mpirun.real (OpenRTE) 4.1.4\n", (OPEN_MPI, (4, 1, 4), "mpirun.real (OpenRTE) 4.1.4")),
    (OPEN_MPI_5, (OPEN_MPI, (5, 0, 11), "mpirun (Open MPI) 5.0.11")),
    (OPEN_MPI_5.replace("mpirun (", "prterun ("), (OPEN_MPI, (5, 0, 11), "prterun (Open MPI) 5.0.11")),
    (OPEN_MPI_5.replace("5.0.11", "5.1.0rc2"), (OPEN_MPI, (5, 1, 0), "mpirun (Open MPI) 5.1.0")),
    (MPICH_4, (MPICH, (4, 0, 2), "HYDRA build details: Version: 4.0.2")),
    (MPICH_5, (MPICH, (5, 0, 2), "HYDRA build details: Version: 5.0.2")),
    (INTEL, (INTEL_MPI, (2021, 18, 1), "Intel(R) MPI Library for Linux* OS, Version 2021.18.1")),
    ("WARNING: running as root\n" + OPEN_MPI_4, (OPEN_MPI, (4, 1, 4), "mpirun (Open MPI) 4.1.4")),
]
NOT_OURS = [
    "mpirun (IBM Spectrum MPI) 10.03.01.03rtm5\n", "prterun (PRRTE) 3.0.12\n", "srun 23.11\n",
    "error: see (Open MPI) 4.1.4 for help\n", "",
]  # fmt: skip


@pytest.mark.parametrize(("said", "expected"), SAID)
def test_what_each_one_says(said: str, expected: tuple[str, tuple[int, ...], str]) -> None:
    assert parse_version(said) == expected


MPINAME = "MVAPICH2 2.3.7 Wed March 02 22:00:00 EST 2022 ch3:mrail\n\nCompilation\nCC: gcc\n"
MPICHVERSION = "MVAPICH2 Version:       2.3.7\nMVAPICH2 Release date:  Wed March 02 22:00:00 EST 2022\n"
PLAIN = "MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\n"


@pytest.mark.parametrize(
    ("said", "version", "text"),
    [
        (MPINAME, (2, 3, 7), "MVAPICH2 2.3.7"),
        (MPICHVERSION, (2, 3, 7), "MVAPICH2 2.3.7"),
        ("MVAPICH2-GDR 2.3.7 Fri May 27 22:00:00 EST 2022 ch3:mrail\n", (2, 3, 7), "MVAPICH2-GDR 2.3.7"),
        ("MVAPICH Version:\t3.0\n", (3, 0), "MVAPICH 3.0"),
    ],
)
def test_what_mvapich_says(said: str, version: tuple[int, ...], text: str) -> None:
    assert parse_mvapich(said) == (MVAPICH, version, text)
    assert parse_mvapich(PLAIN) is None


@pytest.mark.parametrize(
    ("name", "said", "flavour"),
    [("mpiname", MPINAME, MVAPICH), ("mpichversion", MPICHVERSION, MVAPICH), ("mpichversion", PLAIN, MPICH),
     ("mpiname", "", MPICH)],
)  # fmt: skip
def test_mvapich_is_told_by_what_lies_beside_its_mpirun(tmp_path: Path, name: str, said: str, flavour: str) -> None:
    mine = program(tmp_path, "mpirun", f"echo '{MPICH_4}'")
    program(tmp_path, name, f"echo '{said}'")
    found = find_mpi(environ(tmp_path))
    assert (found.flavour, found.path) == (flavour, str(mine))


@pytest.mark.parametrize("said", NOT_OURS)
def test_others_are_none_of_them(said: str) -> None:
    assert parse_version(said) is None


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def environ(*folders: Path) -> dict[str, str]:
    return {"PATH": os.pathsep.join([*map(str, folders), "/usr/bin", "/bin"]), "HOME": "/nonexistent"}


def test_the_first_on_path_is_asked(tmp_path: Path) -> None:
    program(tmp_path / "b", "mpirun", f"echo '{OPEN_MPI_4}'")
    mine = program(tmp_path / "a", "mpirun", f"echo '{OPEN_MPI_5}'")
    found = find_mpi(environ(tmp_path / "a", tmp_path / "b"))
    assert (found.path, found.flavour, found.major) == (str(mine), OPEN_MPI, 5)
    assert found.hostname == os.uname().nodename
    assert found.as_root == (os.geteuid() == 0)


def test_a_wrapper_that_stays_in_front_of_it_is_no_hindrance(tmp_path: Path) -> None:
    program(tmp_path / "real", "mpirun.real", f"test \"$1\" = --version && echo '{INTEL}'")
    program(tmp_path, "mpirun", f'echo "wrapped" >&2\n{tmp_path}/real/mpirun.real "$@"\nexit $?')
    assert find_mpi(environ(tmp_path)).flavour == INTEL_MPI


def test_without_mpirun_hydra_will_do(tmp_path: Path) -> None:
    program(tmp_path, "mpiexec", "echo no")
    hydra = program(tmp_path, "mpiexec.hydra", f"echo '{MPICH_4}'")
    found = find_mpi({"PATH": str(tmp_path), "HOME": ""})
    assert (found.path, found.flavour) == (str(hydra), MPICH)


def test_none_at_all_says_what_to_install(tmp_path: Path) -> None:
    said = r"mpi \(it was asked for\): there is no mpirun on PATH .*openmpi-bin.*--launcher ranks"
    with pytest.raises(LauncherError, match=said):
        find_mpi({"PATH": str(tmp_path)}, "it was asked for")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo 'mpirun (IBM Spectrum MPI) 10.03'", r"says 'mpirun \(IBM Spectrum MPI\) 10.03', which is none of"),
        ("echo; echo '-----'; echo 'unknown option'", r"says 'unknown option'"),
        ("exit 3", r"says 'nothing'"),
        ("exec sleep 60", r"gave no answer within 0.2 s"),
    ],
)
def test_an_unknown_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str) -> None:
    if "sleep" in text:
        monkeypatch.setattr(probe, "TIMEOUT", 0.2)
    program(tmp_path, "mpirun", text)
    with pytest.raises(LauncherError, match=words) as caught:
        find_mpi(environ(tmp_path))
    assert "--launcher torchrun" in str(caught.value)


def test_one_that_cannot_be_run(tmp_path: Path) -> None:
    program(tmp_path, "mpirun", "").write_bytes(b"\x7fELF nonsense")
    with pytest.raises(LauncherError, match=r"mpirun can't be run: Exec format error"):
        find_mpi({"PATH": str(tmp_path)})


def test_parameters_that_files_of_open_mpi_set(tmp_path: Path) -> None:
    program(tmp_path / "bin", "mpirun", f"echo '{OPEN_MPI_4}'")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "openmpi-mca-params.conf").write_text("# a = b\nbtl_tcp_if_exclude = lo,docker0 # why\n\nx=1\n")
    home = tmp_path / "home" / ".openmpi"
    home.mkdir(parents=True)
    (home / "mca-params.conf").write_text("hwloc_base_binding_policy=none\n")
    found = find_mpi({"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path / "home")})
    assert {"btl_tcp_if_exclude", "x", "hwloc_base_binding_policy"} <= set(found.configured)
    assert "a" not in found.configured
