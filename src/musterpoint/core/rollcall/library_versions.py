"""Compares the versions of libraries that hosts say they have: ranks on different ones may fail, or hang, but late."""

from __future__ import annotations

from typing import Mapping, Sequence

_MOST_NAMED = 4


def differences(of_hosts: Mapping[str, Sequence[str]]) -> list[str]:
    """A warning for each library whose versions differ.

    ``of_hosts``: for each host in rank order its libraries, such as ``NCCL=2.27.3``. A host without a GPU or an RDMA
    network, which names none, should not be among them.
    """
    versions: dict[str, dict[str, str]] = {}
    for host, libraries in of_hosts.items():
        for library in libraries:
            name, _, version = library.partition("=")
            versions.setdefault(name, {})[host] = version
    found = []
    for name, by_host in versions.items():
        hosts_of: dict[str, list[str]] = {}
        for host in of_hosts:
            hosts_of.setdefault(by_host.get(host, ""), []).append(host)
        if len(hosts_of) > 1:
            parts = "; ".join(f"{version or 'not found'} on {_named(hosts)}" for version, hosts in hosts_of.items())
            found.append(f"warning: {name} differs between hosts: {parts}. Use one image, on machines set up alike")
    return found


def _named(hosts: Sequence[str]) -> str:
    if len(hosts) > _MOST_NAMED:
        return f"{', '.join(hosts[: _MOST_NAMED - 1])} and {len(hosts) - _MOST_NAMED + 1} more"
    return ", ".join(hosts)
