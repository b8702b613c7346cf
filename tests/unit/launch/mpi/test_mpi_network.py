"""The network around the hosts' addresses."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.launch.mpi.open_mpi import WIDEST, common_networks, is_ipv4

CASES = [
    (["10.0.1.5", "10.0.1.6"], "10.0.1.4/30"),
    (["10.0.0.2", "10.0.0.3"], "10.0.0.2/31"),
    (["10.77.1.2", "10.77.1.3", "10.77.1.4", "10.77.1.5"], "10.77.1.0/29"),
    (["172.31.4.200", "172.31.60.3"], "172.31.0.0/18"),
    (["10.1.0.1", "10.2.0.1"], "10.1.0.0/31,10.2.0.0/31"),
    (["10.2.0.9", "10.1.0.1", "10.2.0.10"], "10.1.0.0/31,10.2.0.8/30"),
    (["10.0.0.7", "10.0.0.7"], "10.0.0.6/31"),
    (["127.0.0.11", "127.0.0.12"], "127.0.0.0/8"),
    (["127.0.0.1", "127.0.0.1"], "127.0.0.0/8"),
    (["0.0.0.1", "0.0.0.2"], "0.0.0.0/30"),
    (["255.255.255.254", "255.255.255.255"], "255.255.255.254/31"),
]


@pytest.mark.parametrize(("addresses", "network"), CASES)
def test_narrowest(addresses: list[str], network: str) -> None:
    assert common_networks(addresses) == network


@given(st.lists(st.ip_addresses(v=4).map(str), min_size=1, max_size=20))
def test_every_address_is_in_one_of_them_and_none_is_wider_than_docker_s(addresses: list[str]) -> None:
    networks = [ipaddress.ip_network(text) for text in common_networks(addresses).split(",")]
    assert all(any(ipaddress.ip_address(address) in network for network in networks) for address in addresses)
    assert all(network.is_loopback or WIDEST <= network.prefixlen <= 31 for network in networks)


@pytest.mark.parametrize("text", ["algo-1", "10.0.0", "10.0.0.256", "fd00::1", "", "a.b.c.d"])
def test_names_are_no_addresses(text: str) -> None:
    assert not is_ipv4(text)
    assert is_ipv4("10.0.0.1")
