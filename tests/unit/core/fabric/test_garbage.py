"""Trees with anything in them: what can't be read is not there, and nothing raises."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from musterpoint.core.fabric.devices import survey
from musterpoint.core.fabric.fabric_facts import survey_fabric
from musterpoint.core.fabric.network_settings import advise
from musterpoint.core.fabric.placement import cpu_sets, survey_processors

FILES = (
    "dev/nvidia0", "dev/nvidiactl", "dev/neuron3", "dev/infiniband/uverbs0", "proc/cpuinfo", "proc/self/status",
    "proc/self/cgroup", "proc/sys/kernel/osrelease", "proc/driver/nvidia/gpus/0000:10:1c.0/information",
    "proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access", "proc/driver/nvidia/gpus/x",
    "sys/class/infiniband/mlx5_0/ports/1/state", "sys/class/infiniband/mlx5_0/ports/1/rate",
    "sys/class/infiniband/mlx5_0/ports/1/link_layer", "sys/class/infiniband/mlx5_0/device/vendor",
    "sys/class/infiniband/efa_0/device/device", "sys/class/infiniband/efa_0/device/vendor", "sys/class/infiniband/7",
    "sys/class/infiniband_verbs/uverbs0/ibdev", "sys/bus/vmbus/devices/a/class_id", "sys/module/efa/version",
    "sys/module/mlx5_core/version", "sys/bus/pci/devices/0000:10:1c.0/numa_node", "sys/class/net/eth0/mtu",
    "sys/devices/system/node/node0/cpulist", "sys/devices/system/node/node0/distance",
    "sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "opt/amazon/efa_installed_packages",
    "opt/amazon/efa/lib/pkgconfig/libfabric.pc", "opt/aws-ofi-nccl/lib/libnccl-net.so", "usr/bin/ofed_info",
    "var/lib/dpkg/status", "etc/nccl.conf", "opt/microsoft/a-topo.xml", "usr/lib64/libnccl.so.2.x",
)  # fmt: skip
LIKELY = st.sampled_from(
    ["", "0\n", "1\n", "4: ACTIVE\n", "InfiniBand\n", "Ethernet\n", "200 Gb/sec (4X HDR)\n", "0x1d0f\n", "0xefa0\n",
     "0x15b3\n", "mlx5_0\n", "Device Minor: 0\n", "Cpus_allowed_list:\t0-3,9\n", "0-3\n", "10 20\n", "5.4-1.0.3\n",
     "# EFA installer version: 1.\nlibfabric1-aws_\n", "Version: \n", "aws-ofi-nccl 1.18.0", "MLNX_OFED_LINUX-5.4-1",
     "\nPackage: libnccl2\nVersion: 1:2.27.3-1+cuda12\n\n", "NCCL_IB_DISABLE=1\n", '<pci busid="x" class="0x030200"/>'],
) | st.text(max_size=40)  # fmt: skip
TREES = st.dictionaries(st.sampled_from(FILES), LIKELY, max_size=20)
NAMES = ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_TOPO_FILE", "FI_PROVIDER",
         "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "NCCL_ALGO", "UCX_NET_DEVICES", "HOME", "NCCL_CONF_FILE",
         "RDMAV_FORK_SAFE")  # fmt: skip
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
ENVIRONS = st.dictionaries(st.sampled_from(NAMES), TEXT)


@settings(max_examples=30, deadline=None)
@given(TREES, ENVIRONS)
def test_anything_is_read(tree: dict[str, str], environ: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in tree.items():
            file = Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode("utf-8", "surrogatepass"))
        fabric = survey_fabric(survey(environ, folder, 4), environ, "/opt/venv/bin/python", folder)
        advice = advise(fabric, "10.0.0.1")
        assert all(setting.name and setting.value and setting.reason for setting in advice.settings)
        assert not {setting.name for setting in advice.settings} & set(environ)
        sets = cpu_sets(2, "slots", environ, folder)
        assert len(sets) in (0, 2)
        assert bool(sets) == (len(survey_processors(folder).cores) >= 2)
