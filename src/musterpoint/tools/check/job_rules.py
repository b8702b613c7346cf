"""What the facts of all hosts mean together: versions, devices, clocks, names, links. It does no I/O."""

from __future__ import annotations

from collections import Counter
from statistics import median, median_low
from typing import Iterable, Iterator, Mapping, NamedTuple, Sequence

from musterpoint.tools.check.facts import ERRORS_PER_PACKET, HostFacts, Links
from musterpoint.tools.check.findings import Finding, Severity, finding

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
    found = [*_versions(hosts), *_devices(hosts), *_links(hosts), *_names(hosts), *_clocks(clocks)]
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


def _links(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
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
