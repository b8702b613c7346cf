"""mpirun's argv, word for word, for every flavour; tests/hosts/mpi gives them to the real ones."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.base.errors import LauncherError, UsageError
from musterpoint.core.code.workspace import Workspace
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.fabric.mpirun import INTEL_MPI, MPICH, MVAPICH, OPEN_MPI, Mpi
from musterpoint.core.fabric.setting import CpuSet, EnvSetting
from musterpoint.core.job.model import Distribution
from musterpoint.core.launch.launch_plan import BOOT
from musterpoint.core.launch.launchers.mpi import RUNNER

from ..conftest import Planner, Values

OPEN_MPI_4 = Mpi("/usr/bin/mpirun", OPEN_MPI, (4, 1, 4), "mpirun (Open MPI) 4.1.4")
OPEN_MPI_5 = Mpi("/opt/bin/mpirun", OPEN_MPI, (5, 0, 11), "mpirun (Open MPI) 5.0.11", as_root=True)
MVAPICH_2 = Mpi("/opt/mvapich2/bin/mpirun", MVAPICH, (2, 3, 7), "MVAPICH2 2.3.7")
MPICH_4 = Mpi("/usr/bin/mpirun", MPICH, (4, 0, 2), "HYDRA build details: Version: 4.0.2")
INTEL = Mpi("/opt/bin/mpirun", INTEL_MPI, (2021, 18, 1), "Intel(R) MPI Library for Linux* OS, Version 2021.18.1")

STUB = ["/usr/bin/python3", "-I", "-S", "-c", BOOT, "--"]
PROGRAM = ["/usr/bin/python3", "-c", RUNNER, "train.py", "--lr", "0.1"]
END = [*STUB, *PROGRAM]
ETH0 = (EnvSetting("GLOO_SOCKET_IFNAME", "eth0", "a reason"),)
EVEN, UNEVEN = {"algo-1": 2, "algo-2": 2}, {"algo-1": 2, "algo-2": 1, "algo-3": 3}

GOLDEN: list[tuple[Mpi, dict[str, int], str, str]] = [
    (OPEN_MPI_4, EVEN, "10.0.0.",
     "-np 4 --host 10.0.0.1:2,10.0.0.2:2 --bind-to none --map-by slot --mca btl_vader_single_copy_mechanism none "
     "--mca plm_rsh_no_tree_spawn 1 --mca plm_rsh_num_concurrent 2 --mca btl_tcp_if_include 10.0.0.0/30 --mca "
     "oob_tcp_if_include 10.0.0.0/30 --mca btl_tcp_disable_family 6 --mca oob_tcp_disable_ipv6_family 1 END"),
    (OPEN_MPI_5, UNEVEN, "10.0.0.",
     "-np 6 --host 10.0.0.1:2,10.0.0.2:1,10.0.0.3:3 --allow-run-as-root --bind-to none --map-by slot --mca smsc "
     "^cma --prtemca plm_ssh_no_tree_spawn 1 --prtemca plm_ssh_num_concurrent 3 --mca btl_tcp_if_include "
     "10.0.0.0/30 --prtemca prte_if_include 10.0.0.0/30 --mca btl_tcp_disable_family 6 --prtemca "
     "oob_tcp_disable_ipv6_family 1 END"),
    (MPICH_4, UNEVEN, "10.0.0.", "-np 6 -hosts 10.0.0.1:2,10.0.0.2:1,10.0.0.3:3 -launcher ssh -genvnone END"),
    (INTEL, EVEN, "10.0.0.", "-np 4 -hosts 10.0.0.1,10.0.0.2 -ppn 2 -iface eth0 -launcher ssh -genvnone END"),
    (INTEL, UNEVEN, "10.0.0.",
     "-iface eth0 -launcher ssh -genvnone -np 2 -host 10.0.0.1 END : -np 1 -host 10.0.0.2 END : -np 3 -host "
     "10.0.0.3 END"),
    (OPEN_MPI_4, EVEN, "fd00::",
     "-np 4 --host algo-1:2,algo-2:2 --bind-to none --map-by slot --mca btl_vader_single_copy_mechanism none --mca "
     "plm_rsh_no_tree_spawn 1 --mca plm_rsh_num_concurrent 2 --mca btl_tcp_disable_family 4 --mca "
     "oob_tcp_disable_ipv4_family 1 END"),
    (OPEN_MPI_5, {"algo-1": 1, "algo-2": 1}, "fd00::",
     "-np 2 --host algo-1:1,algo-2:1 --allow-run-as-root --bind-to none --map-by slot --prtemca "
     "plm_ssh_no_tree_spawn 1 --prtemca plm_ssh_num_concurrent 2 --mca btl_tcp_disable_family 4 --prtemca "
     "oob_tcp_disable_ipv4_family 1 END"),
    (OPEN_MPI_4, {"algo-1": 1, "algo-2": 1}, "127.0.0.1",
     "-np 2 --host 127.0.0.11:1,127.0.0.12:1 --bind-to none --map-by slot --mca plm_rsh_no_tree_spawn 1 --mca "
     "plm_rsh_num_concurrent 2 --mca btl_tcp_if_include 127.0.0.0/8 --mca oob_tcp_if_include 127.0.0.0/8 --mca "
     "btl_tcp_disable_family 6 --mca oob_tcp_disable_ipv6_family 1 --mca btl tcp,self END"),
    (OPEN_MPI_4, {"a": 3}, "10.0.0.",
     "-np 3 --host localhost:3 --bind-to none --map-by slot --mca btl_vader_single_copy_mechanism none END"),
    (OPEN_MPI_5, {"a": 1}, "10.0.0.", "-np 1 --host localhost:1 --allow-run-as-root --bind-to none --map-by slot END"),
    (MPICH_4, {"a": 3}, "10.0.0.", "-np 3 END"),
    (MVAPICH_2, UNEVEN, "10.0.0.", "-np 6 -hosts 10.0.0.1:2,10.0.0.2:1,10.0.0.3:3 -launcher ssh -genvnone END"),
    (MVAPICH_2, {"a": 3}, "10.0.0.", "-np 3 END"),
    (INTEL, {"a": 3}, "10.0.0.", "-np 3 END"),
]  # fmt: skip
"""END: the program behind the rank stub."""

AGENTS = {
    OPEN_MPI_4: ({"OMPI_MCA_plm_rsh_agent": "{muster:launch_agent}"}, ("orted",)),
    OPEN_MPI_5: ({"PRTE_MCA_plm_ssh_agent": "{muster:launch_agent}"}, ("prted",)),
    MPICH_4: ({"HYDRA_LAUNCHER_EXEC": "{muster:launch_agent}", "MUSTER_AGENT_STAYS": "1"}, ("hydra_pmi_proxy",)),
    MVAPICH_2: ({"HYDRA_LAUNCHER_EXEC": "{muster:launch_agent}", "MUSTER_AGENT_STAYS": "1"}, ("hydra_pmi_proxy",)),
    INTEL: (
        {"I_MPI_HYDRA_BOOTSTRAP_EXEC": "{muster:launch_agent}", "MUSTER_AGENT_STAYS": "1"},
        ("hydra_bstrap_proxy", "hydra_pmi_proxy"),
    ),
}


@pytest.mark.parametrize(("mpi", "slots", "addresses", "words"), GOLDEN)
def test_argv(plan: Planner, mpi: Mpi, slots: dict[str, int], addresses: str, words: str) -> None:
    made = plan(
        "mpi", slots, addresses=addresses, mpi=mpi, modules=frozenset(["mpi4py"]), network=ETH0,
        devices=Devices(cpus=8, interfaces=("eth0", "lo")),
    )  # fmt: skip
    (mpirun,) = made.processes
    expected = [part for word in words.split() for part in (END if word == "END" else [word])]
    assert mpirun.words == [mpi.path, *expected]
    assert (mpirun.role, mpirun.name, mpirun.cwd, made.foreign) == ("launcher", "mpirun", "/", True)
    assert mpirun.argv[0].reason == mpi.text
    variables, daemons = AGENTS[mpi]
    alone = len(slots) == 1
    assert {setting.name: setting.value for setting in mpirun.environment} == ({} if alone else variables)
    assert made.daemons == daemons
    assert made.world_size == sum(slots.values())


@pytest.mark.parametrize("mpi", AGENTS)
def test_a_worker_starts_nothing_but_what_it_is_asked_for(plan: Planner, mpi: Mpi) -> None:
    made = plan("mpi", UNEVEN, "algo-3", mpi=mpi)
    assert made.processes == ()
    assert made.daemons == AGENTS[mpi][1]
    assert made.foreign
    assert (made.local_ranks, made.first_rank, made.world_size) == (3, 3, 6)


IDENTITY = {
    "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "1", "NODE_RANK": "1", "GROUP_RANK": "1", "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "7777",
}  # fmt: skip


def test_ranks_can_meet_by_env(plan: Planner) -> None:
    stale = dict.fromkeys(IDENTITY, "9")
    made = plan("mpi", UNEVEN, "algo-2", environ=stale, exports=(("MASTER_ADDR", "algo-1"),))
    got = {setting.name: setting.value for setting in made.environment}
    assert {name: got[name] for name in IDENTITY} == IDENTITY
    assert "RANK" not in got


def test_what_another_world_left_is_taken_away(plan: Planner) -> None:
    left = [
        "RANK", "LOCAL_RANK", "PYTHONPATH", "OMPI_COMM_WORLD_RANK", "OMPI_UNIVERSE_SIZE", "PMI_RANK", "PMI_FD",
        "PMIX_RANK", "PMIX_SERVER_URI41", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri", "MPI_LOCALRANKID",
        "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", "HYDRA_HOST_FILE", "I_MPI_PERHOST",
    ]  # fmt: skip
    kept = ["OMPI_MCA_btl", "PMIX_MCA_gds", "HYDRA_DEBUG", "I_MPI_DEBUG", "HOROVOD_FUSION_THRESHOLD", "UCX_TLS", "PATH"]
    made = plan("mpi", EVEN, environ=dict.fromkeys([*left, *kept], "x"))
    assert set(made.unset) == set(left)


def test_a_host_outside_the_group_runs_the_program_once(plan: Planner) -> None:
    made = plan("mpi", {"data-1": 1, "algo-1": 2, "algo-2": 2}, "data-1", outside=("data-1",))
    assert (made.launcher, made.daemons, made.local_ranks) == ("script", (), 1)
    leads = plan("mpi", {"data-1": 1, "algo-1": 2, "algo-2": 2}, "algo-1", outside=("data-1",))
    assert leads.processes[0].words[1:5] == ["-np", "4", "--host", "10.0.0.2:2,10.0.0.3:2"]


KINDS: list[tuple[Workspace, list[str]]] = [
    (Workspace("python", "t.py", ("py", "t.py", "-x"), "/c", "py"), ["py", "-c", RUNNER, "t.py", "-x"]),
    (Workspace("module", "pkg.t", ("py", "-m", "pkg.t"), "/c", "py"), ["py", "-c", RUNNER, "-m", "pkg.t"]),
    (Workspace("shell", "t.sh", ("/bin/sh", "./t.sh", "1"), "/c", "py"), ["/bin/sh", "./t.sh", "1"]),
    (Workspace("executable", "t", ("./t",), "/c", "py"), ["./t"]),
]


@pytest.mark.parametrize(("workspace", "words"), KINDS, ids=[row[0].kind for row in KINDS])
def test_programs(plan: Planner, workspace: Workspace, words: list[str]) -> None:
    stub = ["py", "-I", "-S", "-c", BOOT, "--"]
    with_it = plan("mpi", EVEN, workspace=workspace, modules=frozenset(["mpi4py"]))
    assert with_it.processes[0].words[-len(stub + words) :] == [*stub, *words]
    without = plan("mpi", EVEN, workspace=workspace)
    argv = list(workspace.argv)
    assert without.processes[0].words[-len(stub + argv) :] == [*stub, *argv]


def mpi_job(options: str = "", processes: int | None = None) -> Distribution:
    return Distribution("mpi", options=options, processes=processes)


def test_the_jobs_options_stand_last_and_win(plan: Planner, values: Values) -> None:
    options = "-verbose --NCCL_DEBUG=INFO -x A=b -mca btl_tcp_if_include eth1 --bind-to core"
    made = plan("mpi", EVEN, distribution=mpi_job(options), environ={"NCCL_DEBUG": "WARN"})
    words = made.processes[0].words[: -len(STUB) - 4]
    assert words[-8:] == ["-verbose", "-x", "A=b", "-mca", "btl_tcp_if_include", "eth1", "--bind-to", "core"]
    assert words.count("btl_tcp_if_include") == words.count("--bind-to") == 1
    assert values(made)["NCCL_DEBUG"] == "INFO"
    worker = plan("mpi", EVEN, "algo-2", distribution=mpi_job(options), environ={"NCCL_DEBUG": "WARN"})
    assert ("NCCL_DEBUG", "INFO") in [setting[:2] for setting in worker.environment]


def test_options_that_are_refused_are_refused_on_every_host(plan: Planner) -> None:
    for me in EVEN:
        with pytest.raises(UsageError, match="processes_per_host"):
            plan("mpi", EVEN, me, distribution=mpi_job("-np 8"))


def test_hydra_takes_a_list_in_place_of_nothing(plan: Planner) -> None:
    words = plan("mpi", EVEN, mpi=MPICH_4, distribution=mpi_job("-x HOME")).processes[0].words
    assert words[5:9] == ["-launcher", "ssh", "-genvlist", "HOME"]


@pytest.mark.parametrize(
    ("processes", "each"), [(5, [2, 1, 2]), (3, [2, 1, 0]), (2, [2, 0, 0]), (1, [1, 0, 0]), (6, [2, 1, 3])]
)
def test_a_number_of_processes_fills_hosts_in_order(plan: Planner, processes: int, each: list[int]) -> None:
    plans = [plan("mpi", UNEVEN, host, distribution=mpi_job(processes=processes)) for host in UNEVEN]
    assert [made.local_ranks for made in plans] == each
    assert {made.world_size for made in plans} == {processes}
    assert [made.first_rank for made in plans] == [0, min(2, processes), min(3, processes)]
    used = [f"10.0.0.{number}:{count}" for number, count in enumerate(each, 1) if count]
    expected = ",".join(used) if len(used) > 1 else f"localhost:{processes}"
    assert plans[0].processes[0].words[3:5] == ["--host", expected]


def test_more_processes_than_slots_are_refused(plan: Planner) -> None:
    with pytest.raises(UsageError, match="asks for 7 MPI processes, and its 3 hosts have 6 slots"):
        plan("mpi", UNEVEN, distribution=mpi_job(processes=7))


def test_what_horovod_and_newer_versions_should_know(plan: Planner) -> None:
    made = plan("mpi", EVEN, mpi=OPEN_MPI_5, environ={"HOROVOD_AUTOTUNE": "1"},
                distribution=mpi_job("-mca orte_abort_on_non_zero_status 1 -mca plm_rsh_no_tree_spawn 1"))  # fmt: skip
    assert any("HOROVOD_AUTOTUNE is on" in note for note in made.notes)
    assert any("ignores what Open MPI 4 calls orte_abort_on_non_zero_status, plm_rsh" in note for note in made.notes)
    six = OPEN_MPI_5._replace(version=(6, 0, 0), text="mpirun (Open MPI) 6.0.0")
    assert plan("mpi", EVEN, mpi=six).notes == (
        "mpirun (Open MPI) 6.0.0 is newer than this release knows: it is started as 5",
    )


def test_more_ranks_than_processors_take_turns(plan: Planner, values: Values) -> None:
    name = "OMPI_MCA_mpi_yield_when_idle"
    assert values(plan("mpi", {"a": 3}, devices=Devices(cpus=2)))[name] == "1"
    assert name not in values(plan("mpi", {"a": 2}, devices=Devices(cpus=2)))
    assert name not in values(plan("mpi", {"a": 3}, devices=Devices(cpus=2), environ={name: "0"}))
    assert name not in values(plan("mpi", {"a": 3}, devices=Devices(cpus=2), mpi=MPICH_4))


NETWORKS: list[tuple[Mpi, dict[str, Any], dict[str, str]]] = [
    (OPEN_MPI_4, {}, {}),
    (OPEN_MPI_5, {}, {"PMIX_MCA_pif": "posix_ipv4"}),
    (OPEN_MPI_5, {"addresses": "fd00::"}, {}),
    (MPICH_4, {}, {"FI_TCP_IFACE": "eth0", "UCX_NET_DEVICES": "eth0"}),
    (MPICH_4, {"interfaces": ("eth0", "lo")}, {"FI_TCP_IFACE": "eth0"}),
    (MPICH_4, {"infiniband": ("mlx5_0",)}, {"FI_TCP_IFACE": "eth0"}),
    (MPICH_4, {"environ": {"UCX_NET_DEVICES": "mlx5_0:1"}}, {"FI_TCP_IFACE": "eth0"}),
    (MPICH_4, {"network": ()}, {}),
    (INTEL, {}, {"FI_TCP_IFACE": "eth0"}),
    (MVAPICH_2, {}, {}),
]


def test_mvapichs_own_binding_is_off(plan: Planner, values: Values) -> None:
    def of(slots: dict[str, int], **environ: str) -> dict[str, str]:
        made = plan("mpi", slots, mpi=MVAPICH_2, environ=environ, devices=Devices(8, infiniband=("mlx5_0",)))
        assert not any("MVAPICH" in note for note in made.notes)
        return {name: value for name, value in values(made).items() if name.startswith("MV2_")}

    assert of(EVEN) == of({"a": 2}) == {"MV2_ENABLE_AFFINITY": "0", "MV2_SMP_USE_CMA": "0"}
    assert of({"a": 1, "b": 1}) == {"MV2_ENABLE_AFFINITY": "0"}
    assert of(EVEN, MV2_ENABLE_AFFINITY="1") == {"MV2_SMP_USE_CMA": "0"}


def test_mvapich_without_rdma_is_warned_of(plan: Planner) -> None:
    warning = "MVAPICH2 2.3.7 is mostly built for InfiniBand"
    assert any(warning in note for note in plan("mpi", EVEN, mpi=MVAPICH_2).notes)


SETS = (CpuSet("0-3", "half"), CpuSet("4-7", "half"))


@pytest.mark.parametrize(
    ("mpi", "options", "environ", "bound"),
    [
        (OPEN_MPI_4, "", {}, True),
        (OPEN_MPI_4, "--bind-to none", {}, False),
        (OPEN_MPI_4, "", {"OMPI_MCA_hwloc_base_binding_policy": "core"}, False),
        (MPICH_4, "", {}, True),
        (MPICH_4, "-bind-to core", {}, False),
        (MVAPICH_2, "", {}, True),
        (MVAPICH_2, "", {"MV2_ENABLE_AFFINITY": "1"}, False),
        (INTEL, "", {}, False),
    ],
)
def test_processors_are_ours_only_where_mpi_binds_nothing(
    plan: Planner, mpi: Mpi, options: str, environ: dict[str, str], bound: bool
) -> None:
    made = plan("mpi", EVEN, mpi=mpi, environ=environ, mpi_options=options, cpu_sets=SETS)
    assert made.cpu_sets == (SETS if bound else ())


@pytest.mark.parametrize(("mpi", "more", "expected"), NETWORKS)
def test_each_host_names_its_own_interface(
    plan: Planner, mpi: Mpi, more: dict[str, Any], expected: dict[str, str]
) -> None:
    devices = Devices(8, 8, interfaces=more.pop("interfaces", ("docker0", "eth0", "lo")),
                      infiniband=more.pop("infiniband", ()))  # fmt: skip
    made = plan("mpi", EVEN, "algo-2", mpi=mpi, devices=devices, **{"network": ETH0, **more})
    names = ("PMIX_MCA_pif", "FI_TCP_IFACE", "UCX_NET_DEVICES")
    assert {setting.name: setting.value for setting in made.environment if setting.name in names} == expected


def test_a_plan_without_addresses_says_what_it_lacks(plan: Planner) -> None:
    made = plan("mpi", EVEN, addresses="algo-")
    assert made.processes[0].words.count("<network of the hosts>") == 2


def test_a_host_whose_mpi_is_unknown(plan: Planner) -> None:
    with pytest.raises(LauncherError, match="unknown"):
        plan("mpi", EVEN, mpi=None)
