"""Which hosts to pair for a measurement, and which of them are slow: pure.

A pair is as slow as the slower of its two hosts, so a host is as fast as its best pair. Suspects are paired again, with
hosts that have been fast with somebody; who is slow with those, too, is named.
"""

from statistics import median
from typing import Iterator, NamedTuple, Sequence

from musterpoint.tools.check.blame import Pair
from musterpoint.tools.check.findings import Finding, Severity, finding

SLOW, VERY_SLOW = 0.5, 0.2
"""Parts of what is usual among the hosts: below the first is warned about, below the second fails."""
SMALL = 5
"""Up to so many hosts every pair is measured: two bad ones may be in every pair of a round, so that all look alike."""
ENOUGH = 2
"""Sound hosts that a suspect is paired with: with one alone, what is between the two may be slow."""
MOST_ROUNDS = 10
_TRIES = 3
"""Rounds in which not one pair has to work before that is believed."""
PART_OF_LINK = 0.05
"""A network is called slow where collectives reach less of the interface's own speed: Gloo takes one connection."""
_LEAST_GIVEN = 1e-6
"""Ranks that did nothing but wait may be as fast as any."""
NOISY, _MOST_BUSY = 0.1, 4
"""Hosts are named as busy from this part on, and so many."""
_LATE, _LATE_BY = 10.0, 0.005
"""A host is late whose small all-reduce takes so many times what is usual, and so many seconds more."""


class Measured(NamedTuple):
    """Collectives between two hosts.

    first, second: the hosts.
    ranks: how many took part, on both together.
    all_reduce: bytes of the tensor by time, in GB/s (the algorithm's bandwidth); 0: it failed.
    broadcast: the same, of the slower direction.
    latency: seconds that a small all-reduce takes.
    backend: nccl or gloo.
    error: why it failed.
    waited: for what part of the time the ranks of each host waited for a processor: what else runs there has it, and
        the network isn't to blame.
    """

    first: str
    second: str
    ranks: int = 2
    all_reduce: float = 0.0
    broadcast: float = 0.0
    latency: float = 0.0
    backend: str = ""
    error: str = ""
    waited: tuple[float, float] = (0.0, 0.0)

    @property
    def pair(self) -> Pair:
        return (self.first, self.second)

    @property
    def bus(self) -> float:
        """What of an all-reduce crosses each link, in GB/s: 2(n-1)/n of the tensor (nccl-tests, PERFORMANCE.md)."""
        return self.all_reduce * 2 * (self.ranks - 1) / self.ranks

    @property
    def speed(self) -> float:
        """The slower of the two collectives; 0 where one failed."""
        return 0.0 if self.error else min(self.bus, self.broadcast)

    @property
    def given(self) -> float:
        """What part of the time it would have needed at least had nobody waited for a processor."""
        return max(_LEAST_GIVEN, 1 - sum(self.waited))

    @property
    def quiet(self) -> "Measured":
        """The pair with the figures that it may have where nothing else runs."""
        return self._replace(
            all_reduce=self.all_reduce / self.given,
            broadcast=self.broadcast / self.given,
            latency=self.latency * self.given,
        )


def next_pairs(hosts: Sequence[str], measured: Sequence[Measured], rounds: int) -> tuple[Pair, ...]:
    """The pairs of the next round, in which each host is at most once; empty when enough is known.

    ``hosts``: in rank order; ``rounds``: those that there were.
    """
    done = {frozenset(each.pair) for each in measured}
    if len(hosts) < 2 or rounds >= MOST_ROUNDS:
        return ()
    if len(hosts) <= SMALL:
        return _untried(hosts, done)
    speeds = host_speeds(hosts, measured)
    best = max(speeds.values(), default=0.0)
    sound = [host for host in speeds if best and speeds[host] >= SLOW * best]
    if len(sound) in (0, len(speeds)):
        # every pair is as good as any other: all hosts are sound, or each pair has one that isn't
        if not measured or (not best and rounds < _TRIES):
            return _matched(hosts, hosts, done)
        return _matched([host for host in hosts if host not in speeds], hosts, done)
    enough = min(ENOUGH, len(sound))
    suspects = [host for host in hosts if host not in sound]
    open_cases = [host for host in suspects if sum(frozenset((host, other)) in done for other in sound) < enough]
    return _matched(open_cases, [*sound, *open_cases], done)


def _untried(hosts: Sequence[str], done: set[frozenset[str]]) -> tuple[Pair, ...]:
    """The next round of a tournament in which every host meets every other: one stays in its place, the others turn."""
    stays, *turning = [*hosts, ""] if len(hosts) % 2 else hosts
    for _ in turning:
        turning = [turning[-1], *turning[:-1]]
        table = [stays, *turning]
        opposite = zip(table, reversed(table[len(table) // 2 :]), strict=False)
        pairs = tuple((one, two) for one, two in opposite if one and two and frozenset((one, two)) not in done)
        if pairs:
            return pairs
    return ()


def _matched(first: Sequence[str], partners: Sequence[str], done: set[frozenset[str]]) -> tuple[Pair, ...]:
    """A partner for each of ``first`` that it wasn't paired with before, as far as there are any."""
    used: set[str] = set()
    pairs = []
    for host in first:
        for partner in partners if host not in used else ():
            if partner != host and partner not in used and frozenset((host, partner)) not in done:
                used |= {host, partner}
                pairs.append((host, partner))
                break
    return tuple(pairs)


def host_speeds(hosts: Sequence[str], measured: Sequence[Measured]) -> dict[str, float]:
    """The best speed that each host reached with any other; hosts that weren't measured are left out."""
    found: dict[str, float] = {}
    for each in measured:
        for host in each.pair:
            found[host] = max(found.get(host, 0.0), each.speed)
    return {host: found[host] for host in hosts if host in found}


def bandwidth_findings(
    hosts: Sequence[str], measured: Sequence[Measured], expected: float = 0.0, link_speed: float = 0.0
) -> list[Finding]:
    """What the measurements mean. ``expected``: GB/s that were asked for, 0: none; ``link_speed``: the interface's, in
    GB/s, 0: not known.
    """
    speeds = host_speeds(hosts, measured)
    if not speeds:
        return []
    usual = sorted(speeds.values())[len(speeds) // 2]
    found = _verdicts(speeds, measured, usual, expected, link_speed)
    quiet = [each.quiet for each in measured]
    if found and quiet != [*measured]:
        sure = {_about(each): each for each in _verdicts(host_speeds(hosts, quiet), quiet, usual, expected, link_speed)}
        left = [each._replace(severity=sure[_about(each)].severity) for each in found if _about(each) in sure]
        found = left if len(left) == len(found) else [*left, _noisy(measured)]
    return [*found, _summary(measured, usual)]


def _about(found: Finding) -> tuple[str, str, str]:
    """What a finding says, and of whom."""
    return found.code, found.host, found.found.partition(" between ")[2]


def _verdicts(
    speeds: dict[str, float], measured: Sequence[Measured], usual: float, expected: float, link_speed: float
) -> list[Finding]:
    found = list(_slow_hosts(speeds, measured, usual)) if len(speeds) > 2 else []
    named = {each.host for each in found}
    found += _slow_pairs([each for each in measured if not named & set(each.pair)], usual)
    found += _slow_network(sorted(speeds.values())[len(speeds) // 2], expected, link_speed, measured)
    found += _late_hosts(speeds.keys() - named, measured)
    return found


def _noisy(measured: Sequence[Measured]) -> Finding:
    """Some looked slow, but other programs on the hosts may be the whole reason."""
    waited: dict[str, float] = {}
    for each in measured:
        for host, part in zip(each.pair, each.waited):
            waited[host] = max(waited.get(host, 0.0), part)
    busy = sorted((host for host in waited if waited[host] >= NOISY), key=lambda host: -waited[host])[:_MOST_BUSY]
    where = ", ".join(f"{host} ({waited[host]:.0%})" for host in busy)
    return finding(
        "bandwidth-noisy",
        "warn",
        "",
        f"too noisy to tell which hosts are slow: the ranks waited for a processor for part of the time on {where}",
        f"less than {NOISY:.0%}",
    )


def _slow_hosts(speeds: dict[str, float], measured: Sequence[Measured], usual: float) -> Iterator[Finding]:
    for host, speed in speeds.items():
        if speed >= SLOW * usual or not usual:
            continue
        its = [each for each in measured if host in each.pair]
        partners = ", ".join(each.second if each.first == host else each.first for each in its)
        if not speed:
            yield finding(
                "host-mute",
                "fail",
                host,
                f"collectives with {partners} fail: {its[-1].error}",
                f"{_rate(usual)}, as between others",
            )
        else:
            severity: Severity = "fail" if speed < VERY_SLOW * usual else "warn"
            yield finding(
                "host-slow",
                severity,
                host,
                f"{_rate(speed)} at best, with {partners}",
                f"{_rate(usual)}, as between others",
            )


def _slow_pairs(measured: Sequence[Measured], usual: float) -> Iterator[Finding]:
    for each in measured:
        both = f"{each.first} and {each.second}"
        if not each.speed:
            yield finding("pair-mute", "fail", "", f"collectives between {both} fail: {each.error}", "that they work")
        elif each.speed < SLOW * usual:
            yield finding(
                "pair-slow",
                "warn",
                "",
                f"{_rate(each.speed)} between {both}",
                f"{_rate(usual)}, as both have with others",
            )


def _slow_network(usual: float, expected: float, link: float, measured: Sequence[Measured]) -> Iterator[Finding]:
    floor = expected or PART_OF_LINK * link
    if 0 < usual < floor:
        why = "as --expect says" if expected else f"the interface's own speed is {_rate(link)}"
        with_what = ", ".join(sorted({each.backend for each in measured if each.backend}))
        yield finding(
            "network-slow",
            "warn",
            "",
            f"{_rate(usual)} between hosts ({with_what}), and none is slower than the others",
            f"{_rate(floor)} or more: {why}",
        )


def _late_hosts(hosts: "set[str]", measured: Sequence[Measured]) -> Iterator[Finding]:
    best: dict[str, float] = {}
    for each in measured:
        for host in each.pair if each.speed else ():
            best[host] = min(best.get(host, each.latency), each.latency)
    usual = median(best.values()) if best else 0.0
    for host in best if len(best) > 2 else ():
        if host in hosts and best[host] > max(_LATE * usual, usual + _LATE_BY):
            yield finding(
                "host-slow",
                "warn",
                host,
                f"a small all-reduce takes {best[host] * 1e3:.1f} ms at best",
                f"{usual * 1e3:.1f} ms, as between others",
            )


def _summary(measured: Sequence[Measured], usual: float) -> Finding:
    good = [each for each in measured if each.speed and each.speed >= SLOW * usual]
    if not good:
        return finding("bandwidth", "ok", "", f"{len(measured)} pairs were measured, and none of them worked")
    worst, middle = min(good, key=lambda each: each.speed), sorted(good, key=lambda each: each.bus)[len(good) // 2]
    return finding(
        "bandwidth",
        "ok",
        "",
        f"{len(measured)} pairs ({middle.backend}): all-reduce {_rate(middle.all_reduce)} by algorithm and "
        f"{_rate(middle.bus)} on the bus, broadcast {_rate(middle.broadcast)}, {middle.latency * 1e6:.0f} µs for a "
        f"small all-reduce; the slowest of the sound ones: {worst.first} and {worst.second} with {_rate(worst.speed)}",
    )


def _rate(value: float) -> str:
    """GB/s for people, three digits."""
    return f"{value:.3g} GB/s"
