"""What a host finds on itself, as the leader gets it: facts, links, records, and the findings' codes."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint import __version__
from musterpoint.base import probe
from musterpoint.core.fabric.devices import survey
from musterpoint.core.job.model import Paths
from musterpoint.tools.check.fact_rules import host_findings
from musterpoint.tools.check.facts import (
    Asked,
    HostFacts,
    Interface,
    Links,
    RdmaPort,
    Version,
    survey_host,
    survey_links,
    survey_versions,
)
from musterpoint.tools.check.findings import CODES, Finding, finding, in_order, worst
from musterpoint.tools.check.machine import Disk, Gpu, Gpus, MachineState, Space, System, Xid
from musterpoint.tools.check.steps import Told, from_json, to_json

from ...core.fabric.trees import NAMES, unpack
from .test_machine import Recorded, tree

GIB = 1 << 30
OF_TREES = {
    "dgx_roce": {("rdma-down", "warn")},
    "nd96isr_h100_v5": {("rdma-down", "warn")},
    "p4d_container": {("rdma-hidden", "warn")},
}
"""Findings beside those of machines with GPUs, whose driver isn't on the machine that runs this."""


def facts_of(root: Path, limits: dict[str, int]) -> HostFacts:
    system = Recorded(root, limits, {"/dev/shm": Space(64 * GIB, 64 * GIB)})
    devices = survey({}, str(root))._replace(cpus=256)
    return survey_host(Asked("algo-1", None, "eth0"), devices, Paths(code="/w"), {}, probe.ask, system)


@pytest.mark.parametrize("name", NAMES)
def test_recorded_machines(name: str, tmp_path: Path) -> None:
    unpack(name, tmp_path)
    facts = facts_of(tmp_path, {})
    found = {(each.code, each.severity) for each in host_findings(facts) if each.severity != "ok"}
    assert found - {("gpus-unchecked", "warn")} == OF_TREES.get(name, set())
    assert (("gpus-unchecked", "warn") in found) == bool(facts.gpus)


@pytest.mark.parametrize("name", ["p4d", "nd40rs_v2", "trn1"])
def test_machines_with_rdma_need_locked_memory(name: str, tmp_path: Path) -> None:
    unpack(name, tmp_path)
    found = host_findings(facts_of(tmp_path, {"MEMLOCK": 65536}))
    assert ("memlock-low", "fail") in [(each.code, each.severity) for each in found]


def test_the_quick_part_is_quick() -> None:
    """Its promise is half a second; processor time doesn't count what else this machine does."""
    environ, system = dict(os.environ), System()
    begun = time.process_time()
    facts = survey_host(Asked("algo-1", None), survey(environ), Paths(code="/tmp"), environ, probe.ask, system)
    host_findings(facts)
    assert time.process_time() - begun < 0.25


OF_P4D = {
    "musterpoint": __version__, "NCCL": "2.16.2", "libfabric": "1.16.1amzn3.0", "aws-ofi-nccl": "1.5.0",
    "the EFA driver": "2.1.0", "GDRCopy": "2.3", "Linux": "5.10.199-190.747.amzn2.x86_64",
}  # fmt: skip


def test_versions_of_a_recorded_host(tmp_path: Path) -> None:
    root = unpack("p4d", tmp_path)
    found = survey_versions(sys.executable, dict(os.environ), probe.ask, root)
    installed = {each.metadata["Name"].lower(): each.version for each in distributions()}
    packages = {"torch", "tensorflow", "jax", "deepspeed", "mpi4py"} & installed.keys()
    asked = {"python": platform.python_version(), **{name: installed[name] for name in packages}}
    assert dict(found) == {**OF_P4D, **asked}
    assert dict(survey_versions("", {}, probe.ask, root)) == OF_P4D, "no Python is asked"


def test_a_python_that_does_not_answer_has_no_versions(tmp_path: Path) -> None:
    for interpreter in ("/no/python", "/bin/echo"):
        assert dict(survey_versions(interpreter, {}, probe.ask, str(tmp_path))) == {"musterpoint": __version__}


ETH0 = {
    "operstate": "up\n", "speed": "25000\n", "mtu": "9001\n", "carrier_changes": "2\n",
    "statistics/rx_packets": "1000\n", "statistics/tx_packets": "500\n", "statistics/rx_errors": "3\n",
    "statistics/tx_errors": "1\n", "statistics/tx_dropped": "2\n", "statistics/rx_missed_errors": "4\n",
    "statistics/rx_dropped": "99\n",
}  # fmt: skip
MLX5 = {
    "state": "4: ACTIVE\n", "link_layer": "InfiniBand\n", "rate": "200 Gb/sec (4X HDR)\n",
    "counters/symbol_error": "5\n", "counters/port_rcv_errors": "2\n", "counters/link_downed": "1\n",
    "counters/port_xmit_data": "123456\n",
}  # fmt: skip


def test_links_of_a_host_with_infiniband(tmp_path: Path) -> None:
    files = {f"sys/class/net/eth0/{name}": text for name, text in ETH0.items()}
    files |= {f"sys/class/net/{name}/operstate": "up\n" for name in ("lo", "docker0", "veth12")}
    files |= {f"sys/class/infiniband/mlx5_0/ports/1/{name}": text for name, text in MLX5.items()}
    files |= {"sys/class/infiniband/rdmap0s6/ports/1/state": "1: DOWN\n"}
    found = survey_links("eth0", str(tree(tmp_path, files)))
    # what a host drops because nobody listens is no fault of the link
    assert found.interfaces == (Interface("eth0", "up", 25000, 9001, 1500, 4, 6, 2),)
    assert found.used == found.interfaces[0]
    assert found.rdma == (
        RdmaPort("mlx5_0/1", "ACTIVE", "InfiniBand", "200 Gb/sec (4X HDR)", 7, 1), RdmaPort("rdmap0s6/1", "DOWN"),
    )  # fmt: skip


def test_a_virtual_interface_counts_where_it_leads_to_the_leader(tmp_path: Path) -> None:
    files = {f"sys/class/net/{name}/speed": "-1\n" for name in ("lo", "veth12")}
    found = survey_links("veth12", str(tree(tmp_path, files)))
    assert [(each.name, each.speed) for each in found.interfaces] == [("veth12", 0)]
    assert survey_links("", str(tmp_path)).used is None


def test_the_codes_are_those_promised() -> None:
    """They are the public interface: one that is taken away or renamed breaks somebody's script."""
    assert list(CODES) == [
        "shm-small", "shm-full", "disk-full", "place-unusable", "place-slow", "place-measured",
        "inodes-few", "not-writable", "memlock-low", "open-files-low",
        "processes-few", "memory-low", "cpus-few", "gpus-missing", "gpus-unchecked", "gpu-recovery", "gpu-memory",
        "gpu-xid", "gpu-throttled", "gpu-link-narrow", "gpu-busy", "rdma-down", "rdma-hidden",
        "rdma-errors", "nic-down", "nic-errors",
        "name-unresolved", "name-loopback", "name-differs", "host-missing", "host-silent", "port-blocked",
        "large-packets-lost", "clock-skew", "devices-differ", "slots-differ", "versions-differ", "mtu-differs",
        "link-speed-differs",
        "looked-at",
    ]  # fmt: skip


def test_the_worst_counts_and_comes_first() -> None:
    rows = (("looked-at", "ok", "a"), ("shm-small", "fail", "b"), ("disk-full", "warn", "c"))
    found = [finding(*row, "x") for row in rows]
    assert (worst(found), worst(found[:1]), worst([])) == ("fail", "ok", "ok")
    assert [each.host for each in in_order(found)] == ["b", "c", "a"]


def test_a_finding_comes_back_from_json() -> None:
    sent = finding("shm-small", "fail", "algo-2", "/dev/shm has 64 MiB", "1 GiB or more")
    assert Finding.from_wire(json.loads(json.dumps(sent))) == sent
    assert sent.sentence.startswith("shm-small on algo-2: /dev/shm has 64 MiB; expected 1 GiB or more; give the")


@pytest.mark.parametrize(
    "value",
    [None, [], ["a"] * 6, ["shm-small", "bad", "", "", "", ""], ["shm-small", "ok", 1, "", "", ""], {"code": "x"}],
)
def test_what_is_no_finding_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        Finding.from_wire(value)


TOLD = Told(
    HostFacts(
        "algo-1", 8, True, 96, 8, 0, ("efa_0",), MachineState(disks=(Disk("output", "/o"),)),
        Links("eth0", (Interface("eth0"),), (RdmaPort("efa_0/1", "ACTIVE"),)),
        Gpus("", "550", (Gpu(0, throttled=("power brake",)),), (Xid("0:1", 79),)), (Version("torch", "2.1"),), ("::1",),
    ),
    (7777, 40000),
)  # fmt: skip


def test_facts_come_back_as_they_were() -> None:
    assert from_json(Told, json.loads(json.dumps(to_json(TOLD)))) == TOLD


def test_fields_that_another_release_has_are_left_out_and_missing_ones_have_defaults() -> None:
    assert from_json(HostFacts, {"host": "a", "new": 1}) == HostFacts("a")


@pytest.mark.parametrize(
    "value",
    [
        None, [], {}, {"facts": {}}, {"facts": {"host": 1}}, {"facts": {"host": "a", "slots": True}},
        {"facts": {"host": "a"}, "ports": ["x"]}, {"facts": {"host": "a", "machine": {"shm_total": 2**70}}},
        {"facts": {"host": "a", "rdma": [[]]}},
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        from_json(Told, value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*HostFacts._fields, "facts"]), inner),
    max_leaves=12,
)


@given(JSON)
def test_nothing_that_json_can_say_does_harm(value: Any) -> None:
    try:
        told = from_json(Told, value)
    except ValueError:
        return
    json.dumps(to_json(told))
