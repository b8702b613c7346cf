"""Network interfaces and RDMA ports, from recorded trees."""

from __future__ import annotations

from pathlib import Path

from musterpoint.tools.check.facts import Interface, RdmaPort, survey_links

from .test_machine import tree

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
