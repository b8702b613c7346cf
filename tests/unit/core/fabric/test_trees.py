"""What is detected and set on recorded machines: every variable, and what is said about the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping, NamedTuple

import pytest

from musterpoint.core.fabric.devices import Devices, survey
from musterpoint.core.fabric.fabric_facts import Fabric, survey_fabric
from musterpoint.core.fabric.nccl_recorder import FILE, PIPE, flight_recorder_settings
from musterpoint.core.fabric.network_settings import Advice, advise, infiniband_settings
from musterpoint.core.fabric.rdma import RdmaDevice, survey_rdma

from .trees import NAMES, unpack

LEADER = "10.0.0.4"
PYTHON = "/opt/venv/bin/python"


def fabric_of(name: str, root: Path, environ: Mapping[str, str] = {}) -> Fabric:
    tree = unpack(name, root)
    return survey_fabric(survey(environ, tree, affinity=8), environ, PYTHON, tree)


class Expected(NamedTuple):
    """``said``: a part of each note, in order. ``slots``: ranks; 0: as many as GPUs or cores, and at least one."""

    gpus: int
    cores: int
    set: dict[str, str]
    said: tuple[str, ...] = ()
    accelerated: bool = True
    slots: int = 0


EFA = {"FI_PROVIDER": "efa", "FI_EFA_USE_HUGE_PAGE": "0"}
OLD_KERNEL = {"FI_EFA_FORK_SAFE": "1"}
WARN = {"NCCL_DEBUG": "WARN"}
AZURE = {"NCCL_IB_PCI_RELAXED_ORDERING": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "OMPI_MCA_coll_hcoll_enable": "0"}
A100_PORTS = ",".join(f"mlx5_ib{number}" for number in range(8))

EXPECTED = {
    "p4d": Expected(
        8, 0, {**EFA, **WARN, **OLD_KERNEL, "FI_EFA_USE_DEVICE_RDMA": "1", "NCCL_PROTO": "simple"},
        ("network: 4 x EFA, 100 Gb/s (rdmap16s27 to rdmap160s27); NCCL 2.16.2, libfabric 1.16.1amzn3.0, aws-ofi-nccl "
         "1.5.0, the EFA driver 2.1.0, GDRCopy 2.3",),
    ),
    "p4d_container": Expected(
        8, 0, WARN, ("network: 2 x EFA", "rdmap16s27, rdmap32s27: the machine has this RDMA network"),
    ),
    "p5": Expected(8, 0, {**EFA, **WARN}, ("network: 32 x EFA, 100 Gb/s (rdmap79s0 to rdmap201s0); NCCL 2.27.3",)),
    "p5_hang": Expected(8 - 6, 0, {**EFA, **WARN}, ("network: 2 x EFA", "aws-ofi-nccl 1.18.0 (EFA installer 1.47.0)")),
    "g5_48xlarge": Expected(8, 0, {**EFA, **WARN}, ("network: 1 x EFA",)),
    "g5_xlarge": Expected(1, 0, WARN),
    "trn1": Expected(
        0, 32,
        {**EFA, **OLD_KERNEL, "FI_EFA_USE_DEVICE_RDMA": "1", "NEURON_RT_ROOT_COMM_ID": f"{LEADER}:46820"},
        ("network: 8 x EFA",),
    ),
    "trn2": Expected(0, 64, {**EFA, "NEURON_RT_ROOT_COMM_ID": f"{LEADER}:46820"}, ("network: 16 x EFA, 200 Gb/s",)),
    "gaudi2": Expected(0, 0, {}, accelerated=False, slots=8),
    "p2": Expected(1, 0, WARN),
    "p3": Expected(8, 0, WARN),
    "p3dn": Expected(8, 0, {**EFA, **WARN, **OLD_KERNEL}, ("network: 1 x EFA", "aws-ofi-nccl) was not found")),
    "nd40rs_v2": Expected(
        8, 0, {**WARN, **AZURE, "NCCL_TOPO_FILE": "/opt/microsoft/ndv2-topo.xml"},
        ("network: 1 x InfiniBand, 100 Gb/s, virtual function (mlx5_0); MLNX_OFED 5.4-1.0.3.0, the mlx5 driver "
         "5.4-1.0.3; GPUDirect RDMA by nv_peer_mem",),
    ),
    "nc24rs_v3": Expected(4, 0, {**WARN, **AZURE}, ("1 x InfiniBand, 56 Gb/s, virtual function (mlx4_0)",)),
    "nc24s_v3": Expected(4, 0, WARN),
    "nc24r": Expected(4, 0, WARN, ("RDMA without SR-IOV (Hyper-V's Network Direct)",)),
    "h16r": Expected(0, 0, {}, ("RDMA without SR-IOV (Hyper-V's Network Direct)",)),
    "hb60rs": Expected(0, 0, {"UCX_NET_DEVICES": "mlx5_1:1"}, ("1 x RoCE, 40 Gb/s, virtual function (mlx5_0); 1 x",)),
    "nd96asr_v4": Expected(
        8, 0,
        {
            **WARN, **AZURE, "NCCL_TOPO_FILE": "/opt/microsoft/ndv4-topo.xml", "NCCL_IB_HCA": "=" + A100_PORTS,
            "UCX_NET_DEVICES": ",".join(f"{port}:1" for port in A100_PORTS.split(",")),
        },
        ("8 x InfiniBand, 200 Gb/s, virtual function (mlx5_ib0 to mlx5_ib7)",),
    ),
    "nd96isr_h100_v5": Expected(
        8, 0, {**WARN, **AZURE, "NCCL_TOPO_FILE": "/opt/microsoft/ndv5-topo.xml"},
        ("7 x InfiniBand, 400 Gb/s", "that aren't ACTIVE, and that NCCL leaves out: mlx5_ib7 INIT"),
    ),
    "nd96isr_mi300x_v5": Expected(
        0, 0,
        {
            **WARN, "NCCL_IB_HCA": "=" + A100_PORTS,
            "UCX_NET_DEVICES": ",".join(f"{port}:1" for port in A100_PORTS.split(",")),
        },
        ("1 x RoCE, 100 Gb/s, virtual function (mlx5_an0); 8 x InfiniBand, 400 Gb/s",), slots=8,
    ),
    "pod_with_a_virtual_function": Expected(
        1, 0, WARN,
        ("network: 4 x InfiniBand, 400 Gb/s, no node in /dev/infiniband (mlx5_0 to mlx5_3); 1 x InfiniBand",
         "this container has mlx5_9, and not mlx5_0, mlx5_1, mlx5_2, mlx5_3: ranks use what is here"),
    ),
    "dgx_roce": Expected(
        2, 0, {**WARN, "NCCL_IB_HCA": "=mlx5_0", "UCX_NET_DEVICES": "mlx5_0:1"},
        ("1 x RoCE, 100 Gb/s, port DOWN (mlx5_2)", "divided into MIG instances (GPU 0: 2)"),
    ),
    "azure_container": Expected(0, 0, {}, ("1 x RoCE",)),
    "vm": Expected(0, 0, {}, accelerated=False),
    "container": Expected(0, 0, {}, accelerated=False),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_what_is_set_on_a_machine(name: str, tmp_path: Path) -> None:
    expected, fabric = EXPECTED[name], fabric_of(name, tmp_path)
    advice = advise(fabric, LEADER)
    assert (fabric.devices.gpus, len(fabric.gpus), fabric.devices.neuron_cores) == (
        expected.gpus, expected.gpus, expected.cores,
    )  # fmt: skip
    assert fabric.devices.slots == (expected.slots or expected.gpus or expected.cores or 1)
    assert {setting.name: setting.value for setting in advice.settings} == expected.set
    assert all(len(setting.reason) > 20 for setting in advice.settings)
    assert len(advice.notes) == len(expected.said), advice.notes
    assert all(part in note for part, note in zip(expected.said, advice.notes, strict=True)), advice.notes
    assert fabric.devices.accelerated is expected.accelerated


@pytest.mark.parametrize("name", NAMES)
def test_what_is_set_already_stays(name: str, tmp_path: Path) -> None:
    """By the environment, by NCCL's files, by Open MPI's: each of them keeps each of our variables away."""
    ours = [setting.name for setting in advise(fabric_of(name, tmp_path), LEADER).settings]
    for variable in ours:
        environ = {variable: "mine"}
        tree = str(tmp_path)
        fabric = survey_fabric(survey({}, tree), environ, PYTHON, tree)
        assert variable not in {setting.name for setting in advise(fabric, LEADER).settings}
        parameter = variable.removeprefix("OMPI_MCA_")
        file = tmp_path / ("usr/etc/openmpi-mca-params.conf" if parameter != variable else "etc/nccl.conf")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {variable} = no\n {parameter} = mine # why\n")
        fabric = survey_fabric(survey({}, tree), {}, PYTHON, tree)
        assert variable not in {setting.name for setting in advise(fabric, LEADER).settings}
        file.unlink()


@pytest.mark.parametrize("name", NAMES)
def test_one_host_needs_no_network(name: str, tmp_path: Path) -> None:
    advice = advise(fabric_of(name, tmp_path))
    assert {setting.name for setting in advice.settings} <= {"NCCL_DEBUG"}
    assert not [note for note in advice.notes if note.startswith("network:")]


def said(name: str, root: Path, environ: Mapping[str, str]) -> Advice:
    return advise(fabric_of(name, root, environ), LEADER)


INHERITED: dict[str, tuple[str, dict[str, str], str]] = {
    "InfiniBand off": ("nd96asr_v4", {"NCCL_IB_DISABLE": "1"},
     "NCCL_IB_DISABLE=1 (the environment) keeps NCCL from this host's Infi"),
    "no InfiniBand to switch off": ("nc24s_v3", {"NCCL_IB_DISABLE": "1"}, ""),
    "sockets": ("p4d", {"NCCL_NET": "Socket"}, "NCCL_NET=Socket (the environment) keeps NCCL from this host's RDMA"),
    "fork safe with EFA": ("p4d", {"RDMAV_FORK_SAFE": "1"}, "RDMAV_FORK_SAFE=1 (the environment): with EFA it can br"),
    "fork safe with a new kernel": ("nd96isr_h100_v5", {"IBV_FORK_SAFE": "1"}, "Linux 5.15.0 needs no such help"),
    "fork safe with an old kernel": ("nc24rs_v3", {"RDMAV_FORK_SAFE": "1"}, ""),
    "EFA's provider without EFA": ("p3", {"FI_PROVIDER": "efa"}, "FI_PROVIDER=efa (the environment), but this host ha"),
    "another provider": ("p5", {"FI_PROVIDER": "tcp"}, "FI_PROVIDER=tcp (the environment) keeps libfabric from this"),
    "EFA's protocol without EFA": ("p3", {"NCCL_PROTO": "Simple"}, "NCCL_PROTO=Simple (the environment) is for EFA wi"),
    "another plugin": ("p5", {"NCCL_NET_PLUGIN": "none"}, "NCCL_NET_PLUGIN=none (the environment) keeps NCCL"),
    "a network that isn't here": ("p3", {"NCCL_NET": "AWS Libfabric"}, "but there is no EFA device here: NCCL finds"),
    "a network that is here": ("p5", {"NCCL_NET": "AWS Libfabric"}, ""),
    "no port": ("nc24s_v3", {"NCCL_NET": "IB"}, "but no InfiniBand or RoCE port is up here"),
    "UCX without a device": ("nd40rs_v2", {"UCX_NET_DEVICES": "mlx5_0:1,mlx5_ib3:1"}, "has no mlx5_ib3, and UCX"),
    "UCX": ("nd40rs_v2", {"UCX_NET_DEVICES": "mlx5_0:1,eth0"}, ""),
    "no such port": ("nd40rs_v2", {"NCCL_IB_HCA": "mlx5_ib"}, "NCCL_IB_HCA=mlx5_ib (the environment) names no RDMA"),
    "a port": ("nd40rs_v2", {"NCCL_IB_HCA": "mlx5_0:1"}, ""),
    "no such topology file": ("nd40rs_v2", {"NCCL_TOPO_FILE": "/opt/ndv9.xml"}, "there is no /opt/ndv9.xml in this"),
    "GPUs apart": ("p4d", {"NCCL_P2P_DISABLE": "1"}, "this host's 8 GPUs exchange data through memory, not directly"),
    "MSCCL": ("nd96asr_v4", {"NCCL_ALGO": "MSCCL,RING,TREE", "MSCCL_XML_FILES": "/opt/a.xml"},
     "MSCCL is set up, and kept: NCCL_ALGO=MSCCL,RING,TREE (the environment), MSCCL_XML_FILES=/opt/a.xml (the env"),
    "another algorithm": ("nd96asr_v4", {"NCCL_ALGO": "Ring"}, ""),
}  # fmt: skip


@pytest.mark.parametrize(("name", "environ", "sentence"), INHERITED.values(), ids=INHERITED)
def test_inherited_values(name: str, environ: dict[str, str], sentence: str, tmp_path: Path) -> None:
    before, after = said(name, tmp_path / "a", {}).notes, said(name, tmp_path / "b", environ).notes
    new = [note for note in after if note not in before]
    assert len(new) == bool(sentence), new
    assert sentence in "".join(new)


def test_a_file_of_the_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nccl.conf").write_text("NCCL_IB_DISABLE=1\n")
    assert any("NCCL_IB_DISABLE=1 (/etc/nccl.conf)" in note for note in said("nd96asr_v4", tmp_path, {}).notes)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.nccl.conf").write_text("NCCL_IB_DISABLE=0\n")
    tree = str(tmp_path)
    fabric = survey_fabric(survey({}, tree), {"HOME": "/home"}, PYTHON, tree)
    assert fabric.configured["NCCL_IB_DISABLE"] == ("0", "/home/.nccl.conf")


def test_the_port_that_is_up_stands_for_a_card(tmp_path: Path) -> None:
    for number, state, layer in ((1, "1: DOWN", "InfiniBand"), (2, "4: ACTIVE", "InfiniBand"), (10, "4: ACTIVE", "")):
        folder = tmp_path / f"sys/class/infiniband/mlx5_0/ports/{number}"
        folder.mkdir(parents=True)
        (folder / "state").write_text(state + "\n")
        (folder / "link_layer").write_text(layer + "\n")
    (device,) = survey_rdma(str(tmp_path))
    assert (device.port, device.state, device.kind, device.usable) == (2, "ACTIVE", "infiniband", True)
    roce = RdmaDevice("mlx5_1", "roce", state="ACTIVE")
    settings = infiniband_settings(Fabric(rdma=(device, roce)))
    assert {each.name: each.value for each in settings} == {"UCX_NET_DEVICES": "mlx5_0:2"}


GPUS, NONE = Devices(cpus=8, gpus=2), Devices(cpus=8)


def test_the_settings(tmp_path: Path) -> None:
    environ = {"TMPDIR": str(tmp_path)}
    first, other = (flight_recorder_settings(GPUS, "session", host, environ) for host in ("algo-1", "algo-2"))
    values = {setting.name: setting.value for setting in first}
    assert values.pop(FILE) == values.pop(PIPE)
    assert values == {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    stems = {setting.value for setting in (*first, *other) if setting.name == FILE}
    assert len(stems) == 2
    assert all(stem.startswith(f"{tmp_path}/muster-nccl-") for stem in stems)


@pytest.mark.parametrize(
    ("devices", "environ"),
    [
        (NONE, {}),
        (GPUS, {"TMPDIR": "/nowhere"}),  # torch would refuse to start where it can't make its pipe
        (GPUS, {"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}),
        (GPUS, {"TORCH_FR_DUMP_TEMP_FILE": "/fsx/traces/rank_"}),
        (GPUS, {PIPE: ""}),
    ],
)
def test_none_without_gpus_or_a_place_or_where_the_user_has_some(devices: Devices, environ: dict[str, str]) -> None:
    assert flight_recorder_settings(devices, "session", "algo-1", environ) == ()
