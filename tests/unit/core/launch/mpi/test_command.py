"""Whose flag is kept where two of them are about the same thing."""

from __future__ import annotations

from musterpoint.core.launch.mpi.command import Flag, mca, merged, set_elsewhere

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
