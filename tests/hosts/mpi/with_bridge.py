"""``muster local`` on hosts that have Docker's bridge each, at the same address, and interfaces of different names."""

from __future__ import annotations

import subprocess
import sys

from musterpoint.cli.main import main
from musterpoint.local import netns_hosts

make_links = netns_hosts._ip


def _ip(holder: subprocess.Popen[bytes], commands: list[str]) -> None:
    """As the backend's own, but the second host's interface is called otherwise, and each host gets a bridge."""
    second = any("port2 " in command or "10.77.1.3/16" in command for command in commands)
    commands = [command.replace("eth0", "ens5") if second else command for command in commands]
    if any(command.startswith("addr add") for command in commands):
        bridge = ["link add docker0 type bridge", "addr add 172.17.0.1/16 dev docker0"]
        plugged = ["link add veth0 type veth peer name veth1", "link set veth0 master docker0 up", "link set veth1 up"]
        commands = [*bridge, *plugged, "link set docker0 up", *commands]
        commands += [f"addr add fd77::{second + 1}/64 dev {'ens5' if second else 'eth0'} nodad"]
    make_links(holder, commands)


netns_hosts._ip = _ip
sys.exit(main(sys.argv[1:]))
