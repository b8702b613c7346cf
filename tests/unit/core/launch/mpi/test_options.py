"""``custom_mpi_options`` in every spelling, for both families of MPI."""

from __future__ import annotations

import pytest

from musterpoint.base.errors import LauncherError, UsageError
from musterpoint.core.fabric.mpirun import INTEL_MPI, MPICH, OPEN_MPI, Mpi
from musterpoint.core.job.model import Distribution
from musterpoint.core.launch.mpi.command import Flag, HostRanks, mca, merged, set_elsewhere
from musterpoint.core.launch.mpi.hydra import INTELS_WIDTH, hydra
from musterpoint.core.launch.mpi.mpirun_options import Options, read_options
from musterpoint.core.rollcall.roster import Seat


def read(text: str, flavour: str = OPEN_MPI) -> Options:
    return read_options(Distribution("mpi", options=text), flavour)


def words(options: Options) -> list[str]:
    return [word for flag in options.flags for word in flag.words]


def exports(options: Options) -> dict[str, str]:
    return {setting.name: setting.value for setting in options.exports}


SPELLINGS = [
    # text, exported on every host, words for Open MPI, words for Hydra (None: refused)
    ("", {}, [], []),
    ("  \n", {}, [], []),
    ("-verbose --NCCL_DEBUG=INFO", {"NCCL_DEBUG": "INFO"}, ["-verbose"], ["-verbose"]),
    ("--NCCL_DEBUG=", {"NCCL_DEBUG": ""}, [], []),
    ("-verbose -x NCCL_DEBUG=VERSION", {}, ["-verbose", "-x", "NCCL_DEBUG=VERSION"],
     ["-verbose", "-genv", "NCCL_DEBUG", "VERSION"]),
    ("-x A='b c' -x B='\"d\"'", {}, ["-x", "A=b c", "-x", 'B="d"'], ["-genv", "A", "b c", "-genv", "B", '"d"']),
    ("-x A=", {}, ["-x", "A="], ["-genv", "A", ""]),
    ("-x A -x B=1 -x C", {}, ["-x", "A", "-x", "B=1", "-x", "C"], ["-genv", "B", "1", "-genvlist", "A,C"]),
    ("-x A", {}, ["-x", "A"], ["-genvlist", "A"]),
    ("-mca pml ob1 --mca btl ^openib", {}, ["-mca", "pml", "ob1", "--mca", "btl", "^openib"], None),
    ("--mca a -1 -tag-output", {}, ["--mca", "a", "-1", "-tag-output"], None),
    ("--allow-run-as-root", {}, ["--allow-run-as-root"], None),
    ("--bind-to core --report-bindings", {}, ["--bind-to", "core", "--report-bindings"], None),
    ("-bind-to core -q", {}, ["-bind-to", "core", "-q"], ["-bind-to", "core", "-q"]),
    ("--timeout 60 -v", {}, ["--timeout", "60", "-v"], ["--timeout", "60", "-v"]),
    ("-genv A 1 -genvlist B,C", {}, ["-genv", "A", "1", "-genvlist", "B,C"], ["-genv", "A", "1", "-genvlist", "B,C"]),
    ("--set -5 -q", {}, ["--set", "-5", "-q"], ["--set", "-5", "-q"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "exported", "open_mpi", "hydra"), SPELLINGS)
def test_spellings(text: str, exported: dict[str, str], open_mpi: list[str], hydra: list[str] | None) -> None:
    options = read(text)
    assert (words(options), exports(options)) == (open_mpi, exported)
    for flavour in (MPICH, INTEL_MPI):
        if hydra is None:
            with pytest.raises(UsageError, match="an option of Open MPI; this image's mpirun is Hydra"):
                read(text, flavour)
        else:
            options = read(text, flavour)
            assert (words(options), exports(options)) == (hydra, exported)


@pytest.mark.parametrize("flavour", [OPEN_MPI, MPICH, INTEL_MPI])
@pytest.mark.parametrize(
    "option",
    [
        "-np 2", "-n 2", "--np 2", "-c 4", "-N 8", "-npernode 8", "-host a", "-H a", "-ppn 2", "--hostfile f",
        "-hostfile f", "-machinefile f", "--map-by slot -np 3",
    ],
)  # fmt: skip
def test_how_many_and_where_is_not_theirs_to_say(option: str, flavour: str) -> None:
    with pytest.raises(UsageError, match=r"sagemaker_mpi_custom_mpi_options has -.*processes_per_host"):
        read(option, flavour)


@pytest.mark.parametrize(
    ("option", "flavour"),
    [("-mca plm_rsh_agent ssh", OPEN_MPI), ("--mca orte_default_hostfile /etc/hosts", OPEN_MPI),
     ("-launcher ssh", MPICH), ("-bootstrap-exec x", MPICH), ("-genvall", MPICH), ("-rmk slurm", MPICH)],
)  # fmt: skip
def test_nor_who_starts_the_daemons_and_whose_environment_ranks_have(option: str, flavour: str) -> None:
    with pytest.raises(UsageError, match=f"has {option.split()[0]}.*musterpoint starts the daemons"):
        read(option, flavour)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('-x A="b', r"can't be read as a shell would: no closing quotation; close the quotes"),
        ("-x A=b\\", "no escaped character"),
        ("python other.py", "has 'python' where an option was expected"),
        ("-x", "ends after -x, which takes 1 value"),
        ("-mca btl", "ends after -mca, which takes 2 values"),
        ("--", "has '--' where an option was expected"),
        (": -v", "has ':' where an option was expected"),
    ],
)
def test_what_cannot_be_read(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"the hyperparameter sagemaker_mpi_custom_mpi_options .*{words}"):
        read(text)


@pytest.mark.parametrize(
    "key", ["sagemaker_distributed_dataparallel_custom_mpi_options", "sagemaker_additional_mpi_options"]
)
def test_the_hyperparameter_that_it_came_from_is_named(key: str) -> None:
    with pytest.raises(UsageError, match=f"the hyperparameter {key} "):
        read_options(Distribution("mpi", options="'", options_key=key), OPEN_MPI)


@pytest.mark.parametrize(
    ("flavour", "text", "more"),
    [
        (OPEN_MPI, "-x LD_LIBRARY_PATH=/x:/y -x A=1", ("-x", "MUSTER_USER_LD_LIBRARY_PATH=/x:/y")),
        (OPEN_MPI, "--x PATH", ("--x", "MUSTER_USER_PATH")),
        (MPICH, "-x PATH=/x", ("-genv", "MUSTER_USER_PATH", "/x")),
        (MPICH, "-genv LD_LIBRARY_PATH /x", ("-genv", "MUSTER_USER_LD_LIBRARY_PATH", "/x")),
    ],
)
def test_a_search_path_of_the_user_s_is_the_stub_s_too(flavour: str, text: str, more: tuple[str, ...]) -> None:
    """Which sets back those that mpirun puts its own folders into."""
    assert read(text, flavour).flags[-1].words == more


def test_old_spellings_are_about_the_same() -> None:
    keys = [flag.key for flag in read("-bynode --bind-to-core -mca btl self --prtemca x y -x A=1").flags]
    assert keys == ["map-by", "bind-to", "mca btl", "mca x", "x A"]


def test_a_list_of_variables_is_the_same_as_each() -> None:
    """Open MPI takes either -x or that."""
    found = read("--mca mca_base_env_list 'A=1;GIT_TOKEN=t-1;;PATH' -x B=2 -mca btl self")
    assert [setting[:2] for setting in found.exports] == [("GIT_TOKEN", "t-1")]
    words = [flag.words for flag in found.flags]
    assert words == [("-x", "A=1"), ("-x", "PATH"), ("-x", "B=2"), ("-mca", "btl", "self"), ("-x", "MUSTER_USER_PATH")]
    with pytest.raises(UsageError, match="ends after --mca"):
        read("--mca mca_base_env_list")


@pytest.mark.parametrize("text", ["-x GIT_TOKEN=t-1 -x NCCL_DEBUG=INFO", "-x GIT_TOKEN=t-1 --NCCL_DEBUG=INFO"])
@pytest.mark.parametrize("flavour", [OPEN_MPI, MPICH])
def test_a_secret_is_on_no_command_line(text: str, flavour: str) -> None:
    options = read(text, flavour)
    assert ("GIT_TOKEN", "t-1") in [setting[:2] for setting in options.exports]
    assert "t-1" not in " ".join(word for flag in options.flags for word in flag.words)
    assert not read("-x GIT_TOKEN -x A=b", OPEN_MPI).exports


def test_options_of_ours_come_behind_the_jobs() -> None:
    found = read_options(Distribution("mpi", options="-x A=1 --verbose"), OPEN_MPI, "-x B=2")
    assert [flag.words for flag in found.flags] == [("-x", "A=1"), ("--verbose",), ("-x", "B=2")]
    with pytest.raises(
        UsageError, match=r"^--mpi-options \(MUSTER_MPI_OPTIONS\) has 'oops' where an option was expected"
    ):
        read_options(Distribution("mpi"), OPEN_MPI, "oops")


BIND = Flag("bind-to", ("--bind-to", "none"), "a reason", ("mca hwloc_base_binding_policy",))
NET = mca("btl_tcp_if_include", "10.0.0.0/30", "a reason", rivals=["btl_tcp_if_exclude"])


def kept(users: tuple[Flag, ...] = (), elsewhere: dict[str, str] | None = None, *ours: Flag) -> list[tuple[str, ...]]:
    flags, _notes = merged(ours or (BIND, NET), users, elsewhere or {})
    return [flag.words for flag in flags]


def test_ours_stand_before_the_users() -> None:
    assert kept((Flag("x A", ("-x", "A"), ""),)) == [BIND.words, NET.words, ("-x", "A")]


def test_the_users_of_the_same_key_replaces_ours_and_says_so() -> None:
    theirs = Flag("bind-to", ("-bind-to", "core"), "custom_mpi_options")
    flags, notes = merged((BIND, NET), (theirs,), {})
    assert [flag.words for flag in flags] == [NET.words, ("-bind-to", "core")]
    assert flags[-1].reason == "custom_mpi_options; replaces ours"
    assert notes == ()


def test_so_does_one_that_contradicts_it() -> None:
    assert kept((mca("btl_tcp_if_exclude", "lo", ""),)) == [BIND.words, ("--mca", "btl_tcp_if_exclude", "lo")]


def test_what_a_variable_or_a_file_settles_is_left_out_with_a_note() -> None:
    elsewhere = set_elsewhere(["btl_tcp_if_exclude"], {"OMPI_MCA_hwloc_base_binding_policy": "core", "PATH": "/bin"})
    flags, notes = merged((BIND, NET), (), elsewhere)
    assert flags == ()
    assert notes == (
        "--bind-to none is left out: OMPI_MCA_hwloc_base_binding_policy settles it",
        "--mca btl_tcp_if_include 10.0.0.0/30 is left out: a parameter file settles it",
    )


def test_what_is_required_stays_whatever_files_say() -> None:
    only = mca("btl", "tcp,self", "")._replace(required=True)
    assert kept((), {"mca btl": "a parameter file"}, only) == [only.words]
    assert kept((mca("btl", "self", ""),), {}, only) == [("--mca", "btl", "self")]


def test_variables_of_both_generations() -> None:
    environ = {"OMPI_MCA_btl": "self", "PRTE_MCA_prte_if_include": "eth0", "OMPI_OTHER": "x"}
    assert set_elsewhere([], environ) == {"mca btl": "OMPI_MCA_btl", "mca prte_if_include": "PRTE_MCA_prte_if_include"}


FLAVOURS = [Mpi("/m", MPICH, (5, 0, 2), "HYDRA"), Mpi("/m", INTEL_MPI, (2021, 18), "Intel")]


def places(count: int, network: str = "10.0.0.") -> list[HostRanks]:
    return [HostRanks(Seat(f"algo-{number}", f"{network}{number}", 1), 1) for number in range(1, count + 1)]


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
