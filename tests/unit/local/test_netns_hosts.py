"""Hosts as namespaces: addresses and names. What they do is tested with every backend."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from musterpoint.core.channel.names import read_hosts
from musterpoint.local import netns_hosts
from musterpoint.local.netns_hosts import NetnsHosts, why_unavailable
from musterpoint.local.tree import Layout


def test_thousands_of_hosts_have_addresses_of_their_own() -> None:
    addresses = [ipaddress.ip_address(netns_hosts.address_of(index)) for index in range(1, 10001)]
    network = ipaddress.ip_network(f"{netns_hosts.SUBNET}.0.0/16")
    assert len(set(addresses)) == len(addresses)
    assert all(address in network for address in addresses)
    assert not {network.network_address, network.broadcast_address} & set(addresses)
    hardware = {netns_hosts._hardware(index) for index in range(1, 10001)}
    assert len(hardware) == 10000
    assert all(int(address[:2], 16) & 3 == 2 for address in hardware), "locally administered, one card"


@pytest.mark.netns
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "made")
def test_what_a_host_knows(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path))
    made = NetnsHosts(layout, ("algo-1", "algo-2"))
    made.open(lambda: None)
    try:
        own = {"HOSTNAME": "algo-2"}
        assert made.environment("algo-2") == {**own, "MUSTER_LOG_DIR": made.layout.ranks("algo-2")}
        known = read_hosts(str(tmp_path / "hosts" / "algo-2" / "etc" / "hosts"))
        assert known["algo-1"] == (made.addresses["algo-1"],)
        assert known["localhost"] == ("127.0.0.1", "::1")[:1] + known["localhost"][1:]
        switch = (tmp_path / "hosts" / "algo-2" / "etc" / "nsswitch.conf").read_text()
        assert switch.splitlines()[-1] == "hosts: files dns"
    finally:
        made.close()
    made.close()
