"""What all calls between hosts together mean: which host can't be reached at a port, or can't reach others.

It does no I/O.
"""

from __future__ import annotations

from collections import Counter
from typing import Collection, Iterable, Mapping, NamedTuple, Sequence

from musterpoint.tools.check.fact_rules import names
from musterpoint.tools.check.findings import Finding, Severity, finding
from musterpoint.tools.check.port_calls import Call, Result

_WORDS: Mapping[Result, str] = {
    "ok": "answered",
    "silent": "no answer",
    "refused": "refused",
    "unreachable": "no route",
    "stuck": "connected, then large packets were lost",
}


def port_findings(calls: Sequence[Call], leader: str, agreed: Mapping[int, str], hosts: Sequence[str]) -> list[Finding]:
    """What all calls together mean: the hosts that can't be reached at a port, or can't reach others.

    ``agreed``: ports with a meaning of their own, which every host is called at, and that meaning. The others are any.
    Only the leader needs the agreed ones, so that elsewhere a blocked one is a warning.
    """
    found: list[Finding] = []
    suspects = _suspects(calls, agreed)
    for large in (False, True):
        for port in agreed:
            its = [call for call in calls if call.port == port]
            found += _explained(its, _Port(port, agreed[port], large), leader, suspects)
        others = [call for call in calls if call.port not in agreed]
        of_range: dict[str, Finding] = {}
        for place in sorted({call.place for call in others}):
            its = [call for call in others if call.place == place]
            for each in _explained(its, _Port(0, "", large), leader, suspects):
                of_range.setdefault(f"{each.host} {each.found.partition(' (')[0].partition(':')[0]}", each)
        found += of_range.values()
    if calls and not found:
        ports = " and ".join(f"port {port} ({use})" for port, use in agreed.items()) or "no agreed port"
        said = f"{len(calls)} calls between {len(hosts)} hosts, at {ports} and ports of the system's range"
        found.append(finding("looked-at", "ok", "", f"{said}: all came through"))
    return found


class _Port(NamedTuple):
    """``number`` 0: any of the system's range."""

    number: int
    use: str
    large: bool

    @property
    def words(self) -> str:
        return f"port {self.number} ({self.use})" if self.number else "ports of the system's range"


def _suspects(calls: Sequence[Call], agreed: Collection[int]) -> set[str]:
    """The hosts that explain bad calls at some port."""
    groups: dict[tuple[int, int], list[Call]] = {}
    for call in calls:
        key = (call.port, 0) if call.port in agreed else (0, call.place)
        groups.setdefault(key, []).append(call)
    return {
        host
        for its in groups.values()
        for large in (False, True)
        for host in _in_doubt(_bad(its, large), *_came_through(its))
    }


def _bad(calls: Sequence[Call], large: bool) -> list[Call]:
    return [call for call in calls if call.result != "ok" and (call.result == "stuck") == large]


def _came_through(calls: Sequence[Call]) -> tuple[set[str], set[str]]:
    """The hosts that somebody reached, and those that reached somebody."""
    good = [call for call in calls if call.result == "ok"]
    return {call.called for call in good}, {call.caller for call in good}


def _explained(all_calls: Sequence[Call], port: _Port, leader: str, suspects: Collection[str]) -> Iterable[Finding]:
    """A host is named that nobody reaches, or that reaches nobody, at ``port``; else the one that is called.

    ``suspects``: hosts that explain bad calls at this port or another; of a pair with one such caller it is named. A
    firewall without memory also drops answers, by the number of the caller's own port, which is another each time.
    """
    bad = _bad(all_calls, port.large)
    reached, callers = _came_through(all_calls)
    code = "large-packets-lost" if port.large else "port-blocked"
    left = list(bad)
    for host in _in_doubt(left, reached, callers):
        its = [call for call in left if host in (call.caller, call.called)]
        if not its:
            continue
        left = [call for call in left if call not in its]
        into = [call for call in its if call.called == host]
        severity: Severity = "fail" if host == leader or not port.number or not into or port.large else "warn"
        if not into and port.number and leader not in {call.called for call in its}:
            severity = "warn"
        yield finding(code, severity, host, _direction(host, into, its, port), "connections both ways")
    for call in left:
        severity = "fail" if call.called == leader or not port.number or port.large else "warn"
        if call.caller in suspects and call.called not in suspects:
            where = f"it can't reach {port.words} of {call.called} ({_detail(call)})"
            yield finding(code, severity, call.caller, where, "connections both ways")
        else:
            where = f"{call.caller} can't reach {port.words} of {call.called}: {_detail(call)}"
            yield finding(code, severity, call.called, where, "a connection")


def _in_doubt(bad: Sequence[Call], reached: set[str], callers: set[str]) -> list[str]:
    """The hosts that explain the bad calls, the surest first."""
    hosts = dict.fromkeys(host for call in bad for host in (call.called, call.caller))
    silent = [host for host in hosts if host not in reached and any(call.called == host for call in bad)]
    deaf = [host for host in hosts if host not in callers and any(call.caller == host for call in bad)]
    both = [host for host in silent if host in deaf]
    pairs = {(call.caller, call.called) for call in bad}
    explained = blamed(pairs)
    ranked = [*both, *(host for host in (*silent, *deaf) if host not in both)]
    counts = {host: sum(host in pair for pair in pairs) for host in ranked}
    return sorted(dict.fromkeys(ranked), key=lambda host: (-counts[host], host not in explained))


def _direction(host: str, into: Sequence[Call], its: Sequence[Call], port: _Port) -> str:
    out = [call for call in its if call.caller == host]
    parts = []
    if into:
        callers = names(sorted({call.caller for call in into}))
        parts.append(f"{port.words} can't be reached from {callers} ({_detail(into[0])})")
    if out:
        called = names(sorted({call.called for call in out}))
        parts.append(f"it can't reach {port.words} of {called} ({_detail(out[0])})")
    return "; ".join(parts)


def _detail(call: Call) -> str:
    return f"{_WORDS[call.result]} at port {call.port}"


Pair = tuple[str, str]


def blamed(bad: Collection[Pair]) -> list[str]:
    """The hosts that explain the ``bad`` pairs by themselves: each is in more of them than any other is.

    Pairs of two hosts of which nothing tells which is at fault are left.
    """
    hosts: list[str] = []
    left = list(dict.fromkeys(bad))
    while left:
        ranked = Counter(host for pair in left for host in pair).most_common()
        worst, most = ranked[0]
        if most == 1:
            break
        hosts.append(worst)
        left = [pair for pair in left if worst not in pair]
    return hosts
