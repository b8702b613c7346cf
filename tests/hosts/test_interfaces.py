"""The interface of the leader's address, on hosts that have several: real networks, and a job whose ranks must meet."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest

from .network import Network, ip, usable

pytestmark = [pytest.mark.netns, pytest.mark.skipif(not usable(), reason="can't make network namespaces here")]

JOB = """
import json, os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print(json.dumps({"what": "rank", "total": total.item(), "by": os.environ["GLOO_SOCKET_IFNAME"]}), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def tunnelled() -> Iterator[Network]:
    """Two hosts with a default route by eth0, and a tunnel between them as WireGuard makes it: an address of /32 at
    each end of ``wg0``, and a route to the other's.
    """
    net = Network(2)
    one, two = (net.netns(host) for host in net.hosts)
    ip("-n", one, "link", "add", "wg0", "type", "veth", "peer", "name", "wg0", "netns", two)
    for here, number, other in ((one, 1, 2), (two, 2, 1)):
        ip("-n", here, "addr", "add", f"10.9.0.{number}/32", "dev", "wg0")
        ip("-n", here, "addr", "add", f"10.9.1.{number}/32", "dev", "lo")
        ip("-n", here, "link", "set", "wg0", "up")
        ip("-n", here, "route", "add", f"10.9.0.{other}/32", "dev", "wg0")
        ip("-n", here, "route", "add", "default", "via", net.switch_address)
        ip("-n", here, "addr", "add", f"10.9.2.{number}/32", "dev", "eth0", "label", "eth0:7")
    yield net
    net.close()


def test_ranks_meet_by_a_tunnel(tunnelled: Network, tmp_path: Path) -> None:
    """Gloo binds to the interface that it is told: the leader's ranks once took eth0, the others' wg0."""
    words = ["-m", "musterpoint", "launch", "--nnodes", "2", "--rollcall-leader", "10.9.0.1", "--launcher", "ranks"]
    program = tmp_path / "meet.py"
    program.write_text(JOB)
    hosts = [
        tunnelled.run(host, *words, "--node-rank", str(number), "--slots", "1", str(program))
        for number, host in enumerate(tunnelled.hosts)
    ]
    ranks = [host.wait("rank") for host in hosts]
    assert ranks == [{"what": "rank", "total": 3.0, "by": "wg0"}] * 2
    assert [host.code() for host in hosts] == [0, 0]
