"""What real mpiruns hand to their remote shell (recorded, addresses and paths changed), and what none would."""

from __future__ import annotations

import pytest

from musterpoint.core.supervise.mpi_daemons import Daemon, NotADaemon, read_daemon

KNOWN = ("orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy")

ORTED = [
    "--daemonize", "-mca", "ess", '"env"', "-mca", "ess_base_vpid", "1", "-mca", "orte_node_regex",
    '"algo-1,[2:10].77.1.2@0(2)"', "-mca", "orte_hnp_uri",
    '"738263040.0;tcp://10.77.1.1:55195;tcp6://[fd00::2]:46437"', "--mca", "plm_rsh_no_tree_spawn", '"1"',
    "-mca", "pmix", '"^s1,s2,cray,isolated"',
]  # fmt: skip
ORTED_ARGUMENTS = (
    "-mca", "ess", "env", "-mca", "ess_base_vpid", "1", "-mca", "orte_node_regex", "algo-1,[2:10].77.1.2@0(2)", "-mca",
    "orte_hnp_uri", "738263040.0;tcp://10.77.1.1:55195;tcp6://[fd00::2]:46437", "--mca", "plm_rsh_no_tree_spawn", "1",
    "-mca", "pmix", "^s1,s2,cray,isolated",
)  # fmt: skip
SH_4 = (
    "          PATH=/opt/ompi/bin:$PATH ; export PATH ; LD_LIBRARY_PATH=/opt/ompi/lib:${LD_LIBRARY_PATH:-} ; export "
    "LD_LIBRARY_PATH ; DYLD_LIBRARY_PATH=/opt/ompi/lib:${DYLD_LIBRARY_PATH:-} ; export DYLD_LIBRARY_PATH ;   "
    "/opt/ompi/bin/orted"
)
CSH_4 = (
    "          set path = ( /opt/ompi/bin $path ) ; if ( $?LD_LIBRARY_PATH == 1 ) set OMPI_have_llp ; "
    "if ( $?LD_LIBRARY_PATH == 0 ) setenv LD_LIBRARY_PATH /opt/ompi/lib ; "
    "if ( $?OMPI_have_llp == 1 ) setenv LD_LIBRARY_PATH /opt/ompi/lib:$LD_LIBRARY_PATH ; "
    "if ( $?DYLD_LIBRARY_PATH == 1 ) set OMPI_have_dllp ; "
    "if ( $?DYLD_LIBRARY_PATH == 0 ) setenv DYLD_LIBRARY_PATH /opt/ompi/lib ; "
    "if ( $?OMPI_have_dllp == 1 ) setenv DYLD_LIBRARY_PATH /opt/ompi/lib:$DYLD_LIBRARY_PATH ;   /opt/ompi/bin/orted"
)
SETTINGS_4 = (("PATH", "/opt/ompi/bin"), ("LD_LIBRARY_PATH", "/opt/ompi/lib"), ("DYLD_LIBRARY_PATH", "/opt/ompi/lib"))
SH_5 = (
    "PRTE_PREFIX=/venv;export PRTE_PREFIX;PMIX_PREFIX=/venv;export PMIX_PREFIX;LD_LIBRARY_PATH=/venv/lib:/venv/lib:"
    "$LD_LIBRARY_PATH;export LD_LIBRARY_PATH;DYLD_LIBRARY_PATH=/venv/lib:/venv/lib:$DYLD_LIBRARY_PATH;export "
    "DYLD_LIBRARY_PATH;/venv/bin/prted"
)
CSH_5 = (
    "setenv PRTE_PREFIX /venv;setenv PMIX_PREFIX /venv;if ( $?LD_LIBRARY_PATH == 1 ) set PRTE_have_llp;if ( "
    "$?LD_LIBRARY_PATH == 0 ) setenv LD_LIBRARY_PATH /venv/lib:/venv/lib;if ( $?PRTE_have_llp == 1 ) setenv "
    "LD_LIBRARY_PATH /venv/lib:/venv/lib:$LD_LIBRARY_PATH;/venv/bin/prted"
)
PRTED = [
    "--daemonize", "--allow-run-as-root", "--prtemca", "prte_hnp_uri",
    '"prterun-algo-1-12052@0.0;tcp://10.77.1.1:51829:64,24"', "--prtemca", "ess_base_num_procs", '"3"',
]  # fmt: skip
PRTED_ARGUMENTS = (
    "--allow-run-as-root", "--prtemca", "prte_hnp_uri", "prterun-algo-1-12052@0.0;tcp://10.77.1.1:51829:64,24",
    "--prtemca", "ess_base_num_procs", "3",
)  # fmt: skip
SETTINGS_5 = (("PRTE_PREFIX", "/venv"), ("PMIX_PREFIX", "/venv"), ("LD_LIBRARY_PATH", "/venv/lib:/venv/lib"))
HYDRA = [
    "--control-port", "algo-1:38797", "--rmk", "user", "--launcher", "ssh", "--launcher-exec", "/proc/7/fd/9",
    "--demux", "poll", "--pgid", "0", "--retries", "10", "--usize", "-1", "--proxy-id", "1",
]  # fmt: skip
INTEL = [
    "--upstream-host", "algo-1", "--upstream-port", "38719", "--base-path", "/opt/intel/bin/", "--tree-width",
    "16", "--proxy-id", "0", "/opt/intel/bin//hydra_pmi_proxy", "--usize", "-1", "--abort-signal", "9",
]  # fmt: skip
PROFILE = ["(", "test", "!", "-r", "./.profile", "||", ".", "./.profile;"]

RECORDED: dict[str, tuple[list[str], Daemon]] = {
    "Open MPI 4": ([" orted", *ORTED], Daemon("orted", ORTED_ARGUMENTS)),
    "Open MPI 4, the user's shell is sh": ([*PROFILE, " orted", *ORTED, ")"], Daemon("orted", ORTED_ARGUMENTS)),
    "Open MPI 4 below a prefix": ([SH_4, *ORTED], Daemon("/opt/ompi/bin/orted", ORTED_ARGUMENTS, SETTINGS_4)),
    "Open MPI 4 below a prefix, ksh": (
        [*PROFILE, SH_4, *ORTED, ")"], Daemon("/opt/ompi/bin/orted", ORTED_ARGUMENTS, SETTINGS_4)),
    "Open MPI 4 below a prefix, tcsh": ([CSH_4, *ORTED], Daemon("/opt/ompi/bin/orted", ORTED_ARGUMENTS, SETTINGS_4)),
    "Open MPI 5": (
        [SH_5, *PRTED],
        Daemon("/venv/bin/prted", PRTED_ARGUMENTS, (*SETTINGS_5, ("DYLD_LIBRARY_PATH", "/venv/lib:/venv/lib")))),
    "Open MPI 5, tcsh": ([CSH_5, *PRTED], Daemon("/venv/bin/prted", PRTED_ARGUMENTS, SETTINGS_5)),
    "MPICH": (['"/opt/mpich/bin/hydra_pmi_proxy"', *HYDRA], Daemon("/opt/mpich/bin/hydra_pmi_proxy", tuple(HYDRA))),
    "Intel MPI": (
        ["/opt/intel/bin//hydra_bstrap_proxy", *INTEL], Daemon("/opt/intel/bin//hydra_bstrap_proxy", tuple(INTEL))),
}  # fmt: skip


@pytest.mark.parametrize("which", RECORDED)
def test_recorded(which: str) -> None:
    words, daemon = RECORDED[which]
    assert read_daemon(words, KNOWN) == daemon


@pytest.mark.parametrize(
    ("word", "argument"),
    [
        ('"a b"', "a b"), ('"q"r"', 'q"r'), ('"$(id);`id`"', "$(id);`id`"), ('"it\'s"', "it's"),
        ('"two\nlines"', "two\nlines"), ('""', ""), ("a b", "a b"), ("[2:10].77.1.2@0", "[2:10].77.1.2@0"),
        ("--daemonized", "--daemonized"), ("-daemonize", "-daemonize"), ("*", "*"),
    ],
)  # fmt: skip
def test_arguments_arrive_byte_for_byte_but_for_daemonize(word: str, argument: str) -> None:
    assert read_daemon(["orted", "--daemonize", word, '"--daemonize"'], KNOWN).arguments == (argument,)


def test_a_prefix_with_a_blank() -> None:
    """No shell could start it: Open MPI 4 quotes nothing there."""
    words = ["PATH=/opt/my mpi/bin:$PATH ; export PATH ;   /opt/my mpi/bin/orted"]
    assert read_daemon(words, KNOWN) == Daemon("/opt/my mpi/bin/orted", (), (("PATH", "/opt/my mpi/bin"),))


@pytest.mark.parametrize(
    "words",
    [
        [], [""], ["sh", "-c", "orted"], ["exec orted"], ["id;orted"], ["orted;id"], ["orted", "a;id"],
        ["orted", ";", "id"], ["orted", "$(id)"], ["orted", "`id`"], ["orted", "|", "sh"],
        ["orted", ">", "/etc/passwd"], ["orted", "<x"], ["orted", "&"], ["orted", "a\nid"], ["orted", "it's"],
        ["orted", '"half'], ["orted", "\\x"], ["orted", '"a\0b"'], ["orted && id"], ["PATH=$(id);orted"],
        ["PATH=`id` ; orted"], ["PATH=$HOME;orted"], ["PATH=/x orted"],
        ["LD_PRELOAD=/tmp/evil.so ; export LD_PRELOAD ; orted"], ["export PATH=/x;orted"],
        ["set path = ( $(id) $path ) ; orted"], ["setenv LD_PRELOAD /tmp/evil.so;orted"], ["./orted-evil"],
        ["(", "orted", ")"], [*PROFILE, "orted"],
    ],
)  # fmt: skip
def test_what_no_mpirun_says_is_refused(words: list[str]) -> None:
    with pytest.raises(NotADaemon):
        read_daemon(words, KNOWN)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["/bin/sh", "-c", "x"], r"'/bin/sh' .*\(orted or prted\)"),
        (["rm -rf /;orted"], "'rm -rf /'"),
        (["orted", "$(id)"], r"'\$\(id\)'"),
        (["orted", "x" * 500 + ";"], "'x{77}…'"),
    ],
)
def test_a_refusal_names_the_word(words: list[str], named: str) -> None:
    with pytest.raises(NotADaemon, match=named):
        read_daemon(words, ("orted", "prted"))


def test_a_plan_without_daemons_starts_none() -> None:
    with pytest.raises(NotADaemon):
        read_daemon(["orted"], ())


def test_long_words_are_read_in_no_time() -> None:
    for word in ("PATH=" + "a " * 100_000 + "(;orted", "PATH=" + "$" * 100_000 + ";orted"):
        with pytest.raises(NotADaemon):
            read_daemon([word], KNOWN)
