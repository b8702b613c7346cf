"""What facts mean: tables of one host's, and of several hosts' together."""

from __future__ import annotations

import pytest

from musterpoint.tools.check.fact_rules import Clock, clock_of, grown_findings, host_findings, job_findings, size
from musterpoint.tools.check.facts import HostFacts, Interface, Links, RdmaPort, Version
from musterpoint.tools.check.findings import CODES, Finding
from musterpoint.tools.check.machine import Disk, Gpu, Gpus, MachineState, Xid

MIB, GIB = 1 << 20, 1 << 30
MACHINE = MachineState(
    8 * GIB, 8 * GIB, (Disk("output", "/o", 99 * GIB, 50 * GIB, 10**6),), -1, 65536, 10**5, 64 * GIB, -1, 60 * GIB
)
GPU = Gpu(0, "A100", uncorrected=0, lanes=16, most_lanes=16)
FINE = HostFacts("algo-1", 1, cpus=8, machine=MACHINE)
WITH_GPUS = FINE._replace(gpus=2, slots=2, health=Gpus(driver="550", all=(GPU, GPU._replace(number=1))))
LINK = Interface("eth0", "up", 25000, 9001, 10**6)
ACTIVE = RdmaPort("mlx5_0/1", "ACTIVE", "InfiniBand")


def machine(**values: object) -> HostFacts:
    return FINE._replace(machine=MACHINE._replace(**values))


def disk(**values: object) -> HostFacts:
    return machine(disks=(MACHINE.disks[0]._replace(**values),))


def gpu(**values: object) -> HostFacts:
    return WITH_GPUS._replace(health=WITH_GPUS.health._replace(all=(GPU, GPU._replace(number=1, **values))))


def links(*interfaces: Interface, rdma: tuple[RdmaPort, ...] = ()) -> HostFacts:
    return FINE._replace(links=Links("eth0", interfaces, rdma))


def bad(found: list[Finding]) -> list[tuple[str, str]]:
    for each in found:
        assert each.severity in CODES[each.code].severities, each
    return [(each.code, each.severity) for each in found if each.severity != "ok"]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (FINE, []),
        (WITH_GPUS, []),
        (machine(shm_total=64 * MIB), [("shm-small", "warn")]),
        (machine(shm_total=63 * MIB), [("shm-small", "fail")]),
        (machine(shm_total=64 * MIB)._replace(slots=2), [("shm-small", "fail")]),
        (machine(shm_total=0, shm_free=0), [("shm-small", "fail")]),
        (machine(shm_free=100 * MIB), [("shm-full", "warn")]),
        (disk(free=GIB), [("disk-full", "warn")]),
        (disk(free=MIB), [("disk-full", "fail")]),
        (disk(inodes=500), [("inodes-few", "warn")]),
        (disk(inodes=5), [("inodes-few", "fail")]),
        (disk(inodes=-1), []),
        (disk(writable=False), [("not-writable", "fail")]),
        (disk(writable=False, used_for="the working directory"), []),
        (machine(memlock=64 * 1024), []),
        (machine(memlock=64 * 1024)._replace(rdma=("efa_0",)), [("memlock-low", "fail")]),
        (machine(memlock=GIB)._replace(rdma=("efa_0",)), [("memlock-low", "warn")]),
        (machine(open_files=1024), [("open-files-low", "warn")]),
        (machine(open_files=64), [("open-files-low", "fail")]),
        (machine(processes_left=1000), [("processes-few", "warn")]),
        (machine(processes_left=1500)._replace(slots=2), [("processes-few", "warn")]),
        (machine(processes_left=100), [("processes-few", "fail")]),
        (machine(processes_left=-1), []),
        (machine(memory_free=GIB), [("memory-low", "warn")]),
        (machine(memory_free=MIB), [("memory-low", "fail")]),
        (FINE._replace(slots=9), [("cpus-few", "warn")]),
        (WITH_GPUS._replace(slots=4, slots_asked=True), [("gpus-missing", "fail")]),
        (WITH_GPUS._replace(health=Gpus("no nvidia-ml-py")), [("gpus-unchecked", "warn")]),
        (WITH_GPUS._replace(health=Gpus(all=(GPU,))), [("gpus-missing", "fail")]),
        (gpu(recovery="reboot"), [("gpu-recovery", "fail")]),
        (gpu(repair="rows of its memory couldn't be remapped"), [("gpu-memory", "fail")]),
        (gpu(uncorrected=2), [("gpu-memory", "warn")]),
        (gpu(throttled=("power brake",)), [("gpu-throttled", "warn")]),
        (gpu(lanes=8), [("gpu-link-narrow", "warn")]),
        (gpu(used=GIB), [("gpu-busy", "warn")]),
        (WITH_GPUS._replace(health=WITH_GPUS.health._replace(xids=(Xid("0:1", 79), Xid("0:1", 31)))),
         [("gpu-xid", "fail")]),
        (links(LINK), []),
        (links(LINK._replace(state="down")), [("nic-down", "fail")]),
        (links(LINK._replace(errors=50, dropped=60)), [("nic-errors", "warn")]),
        (links(LINK._replace(errors=50)), []),
        (links(LINK._replace(carrier_changes=30)), [("nic-errors", "warn")]),
        (links(LINK, rdma=(ACTIVE, ACTIVE._replace(state="DOWN"))), [("rdma-down", "warn")]),
        (links(LINK, rdma=(ACTIVE._replace(state="DOWN"),)), [("rdma-down", "fail")]),
        (links(LINK, rdma=(ACTIVE._replace(link_downed=1),)), [("rdma-errors", "warn")]),
        (links(LINK, rdma=(ACTIVE._replace(state="DOWN", reachable=False),)), [("rdma-hidden", "warn")]),
        (FINE._replace(own_addresses=("127.0.1.1",)), [("name-loopback", "warn")]),
        (FINE._replace(own_addresses=("127.0.1.1", "10.0.0.1")), []),
    ],
)  # fmt: skip
def test_what_a_host_alone_means(facts: HostFacts, expected: list[tuple[str, str]]) -> None:
    found = host_findings(facts)
    assert bad(found) == expected
    assert {each.host for each in found} == {"algo-1"}
    assert all(each.found and each.advice for each in found)


HOSTS = tuple(FINE._replace(host=f"algo-{n}", own_addresses=(f"10.0.0.{n}",), name_looked_up=True) for n in (1, 2, 3))


def with_versions(*texts: str, name: str = "torch") -> list[HostFacts]:
    each = zip(HOSTS, texts, strict=True)
    return [host._replace(versions=(Version(name, text),) if text else ()) for host, text in each]


def with_links(*values: Interface) -> list[HostFacts]:
    return [host._replace(links=Links("eth0", (link,))) for host, link in zip(HOSTS, values, strict=True)]


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (HOSTS, []),
        (HOSTS[:1], []),
        (with_versions("2.1", "2.1", "2.2"), [("versions-differ", "fail", "algo-3")]),
        (with_versions("2.1", "", "2.1"), [("versions-differ", "fail", "algo-2")]),
        (with_versions("2.1", "2.2", "2.3"),
         [("versions-differ", "fail", "algo-2"), ("versions-differ", "fail", "algo-3")]),
        (with_versions("550.1", "550.2", "550.2", name="nvidia-driver"), [("versions-differ", "warn", "algo-1")]),
        ([HOSTS[0], HOSTS[1]._replace(gpus=8), HOSTS[2]], [("devices-differ", "warn", "algo-2")]),
        ([HOSTS[0], HOSTS[1]._replace(slots=7), HOSTS[2]], [("slots-differ", "fail", "algo-2")]),
        ([HOSTS[0], HOSTS[1]._replace(own_addresses=()), HOSTS[2]], [("name-unresolved", "warn", "algo-2")]),
        (with_links(LINK, LINK, LINK._replace(mtu=1500)), [("mtu-differs", "warn", "algo-3")]),
        (with_links(LINK, LINK._replace(speed=1000), LINK), [("link-speed-differs", "warn", "algo-2")]),
    ],
)  # fmt: skip
def test_what_hosts_together_mean(hosts: list[HostFacts], expected: list[tuple[str, str, str]]) -> None:
    found = job_findings(hosts)
    assert [(each.code, each.severity, each.host) for each in found if each.severity != "ok"] == expected
    bad(found)


def test_two_of_one_value_and_two_of_another_name_the_later_ones() -> None:
    hosts = [*with_versions("1", "1", "2"), HOSTS[2]._replace(host="algo-4", versions=(Version("torch", "2"),))]
    (found,) = job_findings(hosts)
    assert (found.host, found.found) == ("", "torch: 2 on algo-3, algo-4")


@pytest.mark.parametrize(
    ("after", "codes"),
    [
        (Links("eth0", (LINK,), (ACTIVE,)), []),
        (Links("eth0", (LINK._replace(packets=2 * 10**6, dropped=50),), (ACTIVE,)), []),
        (Links("eth0", (LINK._replace(errors=1),), (ACTIVE,)), ["nic-errors"]),
        (Links("eth0", (LINK._replace(packets=10**6 + 100, dropped=50),), (ACTIVE,)), ["nic-errors"]),
        (Links("eth0", (LINK,), (ACTIVE._replace(link_downed=1),)), ["rdma-errors"]),
        (Links(), []),
    ],
)
def test_what_links_count_during_a_check(after: Links, codes: list[str]) -> None:
    found = grown_findings("algo-1", Links("eth0", (LINK,), (ACTIVE,)), after)
    assert [each.code for each in found] == codes
    bad(found)


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        ((0.0, 1.9, -1.9), []),
        ((0.0, 400.0, 0.1), [("algo-2", "fail")]),
        ((0.0, 400.0, 400.1), [("algo-1", "fail")]),
        ((0.0, -30.0, 0.1), [("algo-2", "warn")]),
        ((0.0, 30.0), [("algo-2", "warn")]),
        ((0.0, -30.0), [("algo-2", "warn")]),
    ],
)
def test_the_clock_that_differs_from_most_is_wrong(ahead: tuple[float, ...], expected: list[tuple[str, str]]) -> None:
    clocks = [Clock(f"algo-{at + 1}", value, 0.001) for at, value in enumerate(ahead)]
    found = [each for each in job_findings(HOSTS[: len(ahead)], clocks) if each.severity != "ok"]
    assert [(each.host, each.severity) for each in found] == expected


def test_a_slow_answer_proves_nothing_about_a_clock() -> None:
    assert clock_of("a", [(100.0, 130.0, 160.0), (200.0, 230.0, 200.2)]) == Clock("a", 230 - 200.1, pytest.approx(0.1))
    assert clock_of("a", []) is None
    late = Clock("algo-2", 30.0, 29.0)
    assert [each.severity for each in job_findings(HOSTS[:2], [Clock("algo-1", 0, 0), late])] == ["ok"]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (64 * MIB, "64 MiB"), (3 * GIB // 2, "1.5 GiB")]
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert size(count) == text
