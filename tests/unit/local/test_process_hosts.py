"""Hosts as process trees: their addresses and what they are told. What they do is tested with every backend."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path

import pytest

from musterpoint.core.channel.names import read_hosts
from musterpoint.local.process_hosts import ProcessHosts
from musterpoint.local.tree import Layout

HOSTS = tuple(f"algo-{number}" for number in range(1, 301))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    os.makedirs(tmp_path / "hosts")
    return Layout(str(tmp_path))


def test_each_host_has_a_loopback_address_of_its_own(layout: Layout) -> None:
    made = ProcessHosts(layout, HOSTS)
    if made.one_address:
        pytest.skip("this machine has only 127.0.0.1")
    made.open(lambda: None)
    assert len(set(made.addresses.values())) == len(HOSTS)
    assert all(ipaddress.ip_address(address).is_loopback for address in made.addresses.values())
    with socket.socket() as probe:
        probe.bind((made.addresses["algo-300"], 0))
    made.close()


@pytest.mark.parametrize("one_address", [False, True])
def test_the_names_are_in_a_file_that_the_hosts_are_told_of(layout: Layout, one_address: bool) -> None:
    made = ProcessHosts(layout, HOSTS[:3], one_address=one_address)
    made.open(lambda: None)
    told = made.environment("algo-2")
    assert read_hosts(told["MUSTER_HOSTS_FILE"]) == {name: (address,) for name, address in made.addresses.items()}
    port = made.environment("algo-1")["MUSTER_ROLLCALL_PORT"]
    assert told["MUSTER_ROLLCALL_PORT"] == port, "every host must know the leader's port"
    assert made.tree("algo-2") == layout.tree("algo-2")
    assert 0 < int(told["MUSTER_ROLLCALL_PORT"]) < 65536
    masters = {made.environment(host)["MUSTER_MASTER_PORT"] for host in HOSTS[:3]}
    assert len(masters) == 1, "without a channel nobody could tell the others"
    assert 0 < int(masters.pop()) < 65536
    assert told["MUSTER_MASTER_PORT"] != port
    assert told["MUSTER_TF_PORT"] == "0"
    alone = ProcessHosts(layout, HOSTS[:1], one_address=one_address)
    alone.open(lambda: None)
    assert "MUSTER_TF_PORT" not in alone.environment("algo-1"), "it would ask for a TF_CONFIG"
    alone.close()
    made.close()


def test_one_address_where_there_is_no_other(layout: Layout) -> None:
    made = ProcessHosts(layout, HOSTS[:2], one_address=True)
    made.open(lambda: None)
    assert set(made.addresses.values()) == {"127.0.0.1"}
    assert made.about == "processes of this machine, all on 127.0.0.1"
    made.close()
    assert ProcessHosts(layout, HOSTS[:2]).about != made.about
