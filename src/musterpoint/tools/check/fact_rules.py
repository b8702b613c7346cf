"""What hosts' facts mean: findings about a host alone, then about what differs between hosts. It does no I/O."""

from __future__ import annotations

from collections import Counter
from statistics import median, median_low
from typing import Callable, Iterable, Iterator, Mapping, NamedTuple, Sequence

from musterpoint.base.stop_budget import UPLOAD_RESERVE
from musterpoint.tools.check.facts import ERRORS_PER_PACKET, HostFacts, Links
from musterpoint.tools.check.findings import Finding, Severity, finding
from musterpoint.tools.check.machine import LARGE, UNLIMITED, XIDS

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

ENOUGH_SHM = GIB
"""Docker's default of 64 MiB is too little for NCCL and for DataLoader workers (NVIDIA/nccl issues 290, 342, 525)."""
LEAST_SHM = 64 * MIB
LOW_DISK, LEAST_DISK = 2 * GIB, 100 * MIB
LOW_INODES, LEAST_INODES = 10_000, 100
RDMA_MEMLOCK, LEAST_MEMLOCK = 16 * GIB, 64 * MIB
"""AWS's gpu-cluster-healthcheck warns below 16 GiB; the usual default, 64 KiB to 8 MiB, fits no buffer of NCCL's."""
LOW_FILES, LEAST_FILES = 4096, 256
LOW_PROCESSES, LEAST_PROCESSES = 1024, 128
"""For each rank: threads of the framework, and workers that load data, with theirs."""
LOW_MEMORY, LEAST_MEMORY = 2 * GIB, 256 * MIB
FLAPS = 20

Told = tuple[str, Severity, str, str]
"""A finding about the host: its code and severity, what was found, and what was expected."""


def host_findings(facts: HostFacts) -> list[Finding]:
    """All findings about a host by its own facts, one of severity ok for each group without another."""
    groups = (
        ("/dev/shm", _shm), ("disks", _disks), ("limits", _limits), ("memory", _memory), ("GPUs", _gpus),
        ("network ports", _links), ("name", _own_name), ("data", _places),
    )  # fmt: skip
    found: list[Finding] = []
    fine = []
    there = {"data": bool(facts.places), "GPUs": facts.gpus > 0, "name": bool(facts.own_addresses)}
    for name, told in groups:
        group = [finding(code, severity, facts.host, said, expected) for code, severity, said, expected in told(facts)]
        found += group
        if not group and there.get(name, True):
            fine.append(name)
    if fine:
        found.append(finding("looked-at", "ok", facts.host, f"{', '.join(fine)}{_sizes(facts)}"))
    return found


def _places(facts: HostFacts) -> Iterator[Told]:
    for place in facts.places:
        where = f"{place.uri} ({place.used_for})"
        if place.problem:
            yield ("place-unusable", "fail", f"{where}: {place.problem}", "a place that answers")
            continue
        speeds = [f"{rate:.0f} MiB/s {way}" for rate, way in ((place.write, "to it"), (place.read, "from it")) if rate]
        time = max(0.0, place.grace - UPLOAD_RESERVE)
        room = place.write * time
        if place.used_for == "checkpoints" and place.newest > room:
            found = f"{where}: {', '.join(speeds)}, and the newest checkpoint has {place.newest:.0f} MiB"
            yield ("place-slow", "warn", found, f"{place.newest / max(1.0, time):.0f} MiB/s or more")
            continue
        if place.used_for == "checkpoints":
            speeds.append(f"{room:,.0f} MiB in the {place.grace:.0f} s that a stop leaves")
        yield ("place-measured", "ok", f"{where}: {', '.join(speeds) or 'it answers'}", "")


def _sizes(facts: HostFacts) -> str:
    parts = [f"{facts.cpus} processor{'s' if facts.cpus != 1 else ''}"]
    parts += [f"{size(facts.machine.memory_total)} memory"] if facts.machine.memory_total else []
    parts += [f"{size(facts.machine.shm_total)} /dev/shm"] if facts.machine.shm_total else []
    parts += [f"{facts.gpus} GPUs"] if facts.gpus else []
    parts += [f"{facts.neuron_cores} Neuron cores"] if facts.neuron_cores else []
    return f" ({', '.join(parts)})"


def _shm(facts: HostFacts) -> Iterator[Told]:
    total, free = facts.machine.shm_total, facts.machine.shm_free
    crowded, least = max(facts.gpus, facts.slots) > 1, min(ENOUGH_SHM, total // 10)
    if total < ENOUGH_SHM:
        severity: Severity = "fail" if total < LEAST_SHM or (crowded and total <= LEAST_SHM) else "warn"
        yield "shm-small", severity, f"/dev/shm has {size(total)}", f"{size(ENOUGH_SHM)} or more"
    elif free < least:
        yield "shm-full", "warn", f"{size(free)} of /dev/shm's {size(total)} are free", f"{size(least)} or more"


def _disks(facts: HostFacts) -> Iterator[Told]:
    for disk in facts.machine.disks:
        where = f"{disk.path} ({disk.used_for})"
        if not disk.writable and disk.used_for != "the working directory":
            yield "not-writable", "fail", f"{where} can't be written", "a directory to write to"
            continue
        space = f"{size(disk.free)} of {size(disk.total)} are free at {where}"
        yield from _levels("disk-full", disk.free, (LOW_DISK, LEAST_DISK), space, size)
        if disk.inodes >= 0:
            more = f"{disk.inodes:,} more files can be made at {where}"
            yield from _levels("inodes-few", disk.inodes, (LOW_INODES, LEAST_INODES), more)


def _limits(facts: HostFacts) -> Iterator[Told]:
    machine, slots = facts.machine, max(1, facts.slots)
    if facts.rdma and machine.memlock != UNLIMITED:
        devices = ", ".join(facts.rdma[:4])
        found = f"{size(machine.memlock)} may be locked, and there are RDMA devices ({devices})"
        limits = RDMA_MEMLOCK, LEAST_MEMLOCK
        yield from _levels("memlock-low", machine.memlock, limits, found, lambda low: f"unlimited, or {size(low)}")
    if machine.open_files != UNLIMITED:
        found = f"{machine.open_files:,} files may be open"
        yield from _levels("open-files-low", machine.open_files, (LOW_FILES, LEAST_FILES), found)
    if machine.processes_left != UNLIMITED:
        found = f"{machine.processes_left:,} more processes and threads may be started, for {slots} rank(s)"
        limits = LOW_PROCESSES * slots, LEAST_PROCESSES * slots
        yield from _levels("processes-few", machine.processes_left, limits, found)
    if slots > facts.cpus:
        yield "cpus-few", "warn", f"{facts.cpus} processors for {slots} ranks", "a processor for each rank, or more"


def _memory(facts: HostFacts) -> Iterator[Told]:
    machine, slots = facts.machine, max(1, facts.slots)
    if machine.memory_free == UNLIMITED:
        return
    limit = "" if machine.memory_limit == UNLIMITED else f" (the container's limit is {size(machine.memory_limit)})"
    found = f"{size(machine.memory_free)} are left for {slots} rank(s){limit}"
    yield from _levels("memory-low", machine.memory_free, (LOW_MEMORY * slots, LEAST_MEMORY * slots), found, size)


def _gpus(facts: HostFacts) -> Iterator[Told]:
    health = facts.health
    if not facts.gpus:
        return
    if facts.slots_asked and facts.slots > facts.gpus:
        few = f"{facts.gpus} GPUs are here for {facts.slots} ranks"
        yield "gpus-missing", "fail", few, f"{facts.slots} GPUs, or --slots {facts.gpus}"
    if health.unlooked:
        yield ("gpus-unchecked", "warn", f"not looked at: {health.unlooked}", "NVML's answer")
    elif len(health.all) < facts.gpus:
        few = f"NVML finds {len(health.all)} GPUs, and {facts.gpus} are here"
        yield "gpus-missing", "fail", few, f"{facts.gpus} GPUs"
    for gpu in health.all:
        which = f"GPU {gpu.number}" + (f" ({gpu.name})" if gpu.name else "")
        if gpu.recovery:
            yield ("gpu-recovery", "fail", f"{which} needs {gpu.recovery}", "nothing")
        if gpu.repair:
            yield ("gpu-memory", "fail", f"{which}: {gpu.repair}", "no repair due")
        if gpu.uncorrected > 0:
            yield ("gpu-memory", "warn", f"{which} had {gpu.uncorrected} uncorrected memory errors", "none")
        if gpu.throttled:
            yield ("gpu-throttled", "warn", f"{which} is slowed: {', '.join(gpu.throttled)}", "full clocks")
        if 0 < gpu.lanes < gpu.most_lanes:
            yield ("gpu-link-narrow", "warn", f"{which} uses {gpu.lanes} lanes", f"{gpu.most_lanes} lanes")
        if gpu.used > LARGE:
            yield ("gpu-busy", "warn", f"{size(gpu.used)} of the memory of {which} are used", "free memory")
    for xid in health.xids:
        if xid.number in XIDS:
            severity: Severity = "warn" if xid.number == 74 else "fail"
            found = f"Xid {xid.number} of the GPU at {xid.bus} in the kernel's log ({XIDS[xid.number]})"
            yield "gpu-xid", severity, found, "no Xid but those of programs"


def _links(facts: HostFacts) -> Iterator[Told]:
    used = facts.links.used
    if used is not None and used.state == "down":
        yield ("nic-down", "fail", f"{used.name} is down", "up")
    for each in facts.links.interfaces:
        bad = each.errors + each.dropped
        if bad > max(10, each.packets * ERRORS_PER_PACKET):
            found = f"{each.name} counts {each.errors:,} errors and {each.dropped:,} drops in {each.packets:,} packets"
            yield "nic-errors", "warn", found, "at most one in ten thousand"
        elif each.carrier_changes > FLAPS:
            found = f"{each.name} changed between up and down {each.carrier_changes} times"
            yield "nic-errors", "warn", found, f"{FLAPS} times at most"
    ports = [port for port in facts.links.rdma if port.reachable]
    active = [port for port in ports if port.state == "ACTIVE"]
    # a pod may have one of the machine's ports alone; Ethernet ports without GPUs are for other traffic
    hidden = [
        port.name
        for port in facts.links.rdma
        if not port.reachable and not active and (facts.gpus or port.layer != "Ethernet")
    ]
    if hidden:
        yield ("rdma-hidden", "warn", f"{', '.join(hidden[:4])} can't be used from here", "nodes in /dev/infiniband")
    for port in ports:
        if port.state != "ACTIVE":
            severity: Severity = "warn" if active else "fail"
            yield ("rdma-down", severity, f"{port.name} ({port.layer}) is {port.state or 'unknown'}", "ACTIVE")
        elif port.link_downed or port.errors:
            found = f"{port.name} lost its link {port.link_downed} times and counts {port.errors:,} errors"
            yield "rdma-errors", "warn", found, "none"


def _own_name(facts: HostFacts) -> Iterator[Told]:
    addresses = facts.own_addresses
    if addresses and all(each.startswith("127.") or each == "::1" for each in addresses):
        found = f"{facts.host} is {', '.join(addresses)} on itself"
        yield "name-loopback", "warn", found, "an address that others reach"


def _levels(
    code: str, value: int, limits: tuple[int, int], found: str, shown: Callable[[int], str] = "{:,}".format
) -> Iterator[Told]:
    low, least = limits
    if value < low:
        yield code, "fail" if value < least else "warn", found, f"{shown(low)} or more"


def size(count: int) -> str:
    """Bytes for people: ``64 MiB``, ``1.5 GiB``."""
    for unit, name in ((1 << 40, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{count} bytes"


SKEW_WARNS, SKEW_FAILS = 2.0, 300.0
"""Seconds. Kerberos refuses requests that are five minutes off, S3 fifteen; two put the files of a shared directory out
of order."""
MUST_AGREE = frozenset({"musterpoint", "torch", "NCCL", "tensorflow", "jax", "deepspeed"})
"""What refuses to talk to another version, or crashes: NCCL says ``NCCL version mismatch``."""
_MOST_NAMES = 8


class Clock(NamedTuple):
    """How far a host's clock is ahead of the leader's, in seconds, and by how much that may be wrong."""

    host: str
    ahead: float
    uncertainty: float


def clock_of(host: str, exchanges: Iterable[tuple[float, float, float]]) -> Clock | None:
    """The best of several exchanges: when the leader asked, what the host's clock said, when the answer came.

    The answer was given between the two, so half of the time between them is the uncertainty.
    """
    clocks = [Clock(host, there - (asked + came) / 2, (came - asked) / 2) for asked, there, came in exchanges]
    return min((clock for clock in clocks if clock.uncertainty >= 0), key=lambda each: each.uncertainty, default=None)


def job_findings(hosts: Sequence[HostFacts], clocks: Sequence[Clock] = ()) -> list[Finding]:
    """Findings about what differs between hosts. ``hosts``: in rank order, without those that sent nothing."""
    found = [*_versions(hosts), *_devices(hosts), *_links_differ(hosts), *_names(hosts), *_clocks(clocks)]
    if len(hosts) > 1 and not found:
        what = "clocks, versions, devices and links" if clocks else "versions, devices and links"
        found.append(finding("looked-at", "ok", "", f"{what} of {len(hosts)} hosts: the same{_farthest(clocks)}"))
    return found


def _farthest(clocks: Sequence[Clock]) -> str:
    if not clocks:
        return ""
    clock = max(clocks, key=lambda each: abs(each.ahead))
    return f" (clocks within {abs(clock.ahead) * 1000:.1f} ms, ± {clock.uncertainty * 1000:.1f} ms)"


def _versions(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    names = dict.fromkeys(version.name for host in hosts for version in host.versions)
    for name in names:
        values = {host.host: dict(host.versions).get(name, "") for host in hosts}
        severity: Severity = "fail" if name in MUST_AGREE else "warn"
        yield from differing("versions-differ", severity, values, name)


def _devices(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    looked = [host for host in hosts if host.health.all]
    for what, values in (
        ("GPUs", {host.host: str(host.gpus) for host in hosts}),
        ("Neuron cores", {host.host: str(host.neuron_cores) for host in hosts}),
        ("RDMA devices", {host.host: str(len(host.rdma)) for host in hosts}),
        ("kind of GPU", {host.host: ", ".join(sorted({gpu.name for gpu in host.health.all})) for host in looked}),
    ):
        yield from differing("devices-differ", "warn", values, what)
    slots = {host.host: str(host.slots) for host in hosts if host.slots}
    yield from differing("slots-differ", "fail", slots, "ranks")


def _links_differ(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    used = {host.host: host.links.used for host in hosts}
    mtus = {host: str(link.mtu) for host, link in used.items() if link is not None and link.mtu}
    speeds = {host: link.speed for host, link in used.items() if link is not None and link.speed}
    yield from differing("mtu-differs", "warn", mtus, "MTU of the interface between hosts")
    usual = median(speeds.values()) if speeds else 0
    for host, speed in speeds.items():
        if speed < usual:
            expected = f"{usual:,.0f} Mbit/s, as on the others"
            yield finding("link-speed-differs", "warn", host, f"{speed:,} Mbit/s", expected)


def grown_findings(host: str, before: Links, after: Links) -> list[Finding]:
    """What the links of ``host`` counted between two looks: errors while something was sent are not of long ago."""
    found = []
    interfaces = {each.name: each for each in before.interfaces}
    for each in after.interfaces:
        old = interfaces.get(each.name, each)
        errors, dropped = each.errors - old.errors, each.dropped - old.dropped
        if errors > 0 or dropped > max(0, each.packets - old.packets) * ERRORS_PER_PACKET + 10:
            counted = f"{each.name} counted {errors:,} errors and {dropped:,} drops during the check"
            found.append(finding("nic-errors", "warn", host, counted, "none"))
    ports = {each.name: each for each in before.rdma}
    for port in after.rdma:
        was = ports.get(port.name, port)
        if port.errors > was.errors or port.link_downed > was.link_downed:
            errors, lost = port.errors - was.errors, port.link_downed - was.link_downed
            counted = f"{port.name} counted {errors:,} errors and lost its link {lost} times during the check"
            found.append(finding("rdma-errors", "warn", host, counted, "none"))
    return found


def _names(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    for host in hosts:
        if host.name_looked_up and not host.own_addresses:
            found = f"{host.host} doesn't resolve on itself"
            yield finding("name-unresolved", "warn", host.host, found, "its address")


def _clocks(clocks: Sequence[Clock]) -> Iterator[Finding]:
    """A clock is compared with the middle of all, the leader's among them: the leader's may be the wrong one."""
    usual = median_low(clock.ahead for clock in clocks) if len(clocks) > 2 else 0.0
    others = "that of most hosts" if len(clocks) > 2 else "the leader's"
    for clock in clocks:
        off = clock.ahead - usual
        sure = abs(off) - clock.uncertainty
        if sure > SKEW_WARNS:
            severity: Severity = "fail" if sure > SKEW_FAILS else "warn"
            direction = "ahead of" if off > 0 else "behind"
            found = f"its clock is {abs(off):.1f} s (± {clock.uncertainty:.3f} s) {direction} {others}"
            yield finding("clock-skew", severity, clock.host, found, f"{SKEW_WARNS:g} s at most")


def differing(code: str, severity: Severity, values: Mapping[str, str], what: str) -> Iterator[Finding]:
    """A finding for each value that fewer hosts have than the usual one; none where all agree.

    ``values``: by host, in rank order. Of two values that as many hosts have, the earlier host's is the usual one.
    """
    counts = Counter(values.values())
    if len(counts) < 2:
        return
    usual = max(counts, key=lambda value: counts[value])
    for value in counts:
        if value != usual:
            odd = [host for host, its in values.items() if its == value]
            where = odd[0] if len(odd) == 1 else ""
            on = "" if where else f" on {names(odd)}"
            expected = f"{usual or 'none'}, as on {_rest(counts[usual], len(values) - 1)}"
            yield finding(code, severity, where, f"{what}: {value or 'none'}{on}", expected)


def _rest(count: int, others: int) -> str:
    return "all others" if count == others else f"{count} other host{'s' if count > 1 else ''}"


def names(hosts: Sequence[str]) -> str:
    """Names for a sentence; the first 8 of many."""
    shown = list(hosts[:_MOST_NAMES])
    more = len(hosts) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
