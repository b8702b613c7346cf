"""Finds the network interface that reaches the other hosts, and makes NCCL, Gloo and TensorPipe use it.

By default NCCL takes the first interface that isn't Docker's or the loopback, and Gloo and TensorPipe (torch's RPC) the
one that the host's own name resolves to. On a machine with several interfaces, either may be one that reaches no other
host.
"""

from __future__ import annotations

import array
import os
import socket
import struct
import sys
from typing import Iterable, Mapping

from musterpoint.base.posix import fcntl
from musterpoint.core.fabric.configured import configured, fits_any
from musterpoint.core.fabric.devices import Devices, read_text
from musterpoint.core.fabric.setting import EnvSetting

NCCL = "NCCL_SOCKET_IFNAME"
GLOO = "GLOO_SOCKET_IFNAME"
TENSORPIPE = "TP_SOCKET_IFNAME"
_SIOCGIFCONF, _MOST_ADDRESSES = 0x8912, 4096
"""The request for all addresses, and how many are read at most."""
_IFREQ = 40 if struct.calcsize("P") == 8 else 32
"""The bytes of one (struct ifreq)."""


def network_settings(
    devices: Devices, leader: str, hosts: int, environ: Mapping[str, str], root: str = "/"
) -> tuple[EnvSetting, ...]:
    """The interface settings for a group of ``hosts`` hosts whose leader has the numeric address ``leader``.

    None for one host that has a network, or where the route's interface isn't among ``devices``. A value that the user
    set in ``environ`` or in NCCL's configuration files is kept.
    """
    if hosts == 1:
        return () if GLOO in environ or "lo" not in devices.interfaces else _alone(root)
    interface = interface_toward(leader, root)
    if interface not in devices.interfaces:
        return ()
    return chosen(interface, devices.interfaces, leader, environ, root)


def chosen(
    interface: str, interfaces: Iterable[str], leader: str, environ: Mapping[str, str], root: str = "/"
) -> tuple[EnvSetting, ...]:
    """The settings for an ``interface`` of a host that has these ``interfaces``; none of what the user has set."""
    # NCCL matches by prefix: eth1 would take eth10 too
    crowded = any(other != interface and other.startswith(interface) for other in interfaces)
    reason = f"the interface by which this host reaches the leader, {leader}"
    settings = (
        EnvSetting(NCCL, "=" + interface if crowded else interface, reason),
        EnvSetting(GLOO, interface, reason),
        EnvSetting(TENSORPIPE, interface, reason),
    )
    taken = configured(environ, root)
    return tuple(setting for setting in settings if setting.name not in taken)


def wrong_interfaces(devices: Devices, leader: str, environ: Mapping[str, str], root: str = "/") -> tuple[str, ...]:
    """Warnings about interfaces that are set already, and by which the hosts of a job can't meet."""
    here, taken, found = devices.interfaces, configured(environ, root), []
    for name in (NCCL, GLOO, TENSORPIPE):
        value, where = taken.get(name, ("", ""))
        if not value or not here:
            continue
        if not fits_any(value, here, exact=name != NCCL):
            found.append(
                f"warning: {name}={value} ({where}) names no interface of this host, which has {', '.join(here)}: the "
                "ranks' connections will fail"
            )
        elif interface_toward(leader, root) in ("lo", ""):
            continue
        elif value.lstrip("=") == "lo":
            found.append(f"warning: {name}=lo ({where}): the loopback reaches no other host, and ranks will not meet")
        elif name == NCCL and value.startswith("^") and fits_any(value, ("lo",)):
            found.append(
                f"warning: {name}={value} ({where}) lets NCCL take the loopback, which reaches no other host: write "
                f"{name}={value},lo"
            )
    return tuple(found)


def missing_interface(devices: Devices, platform: str, leader: str, root: str = "/") -> str:
    """A warning where the interface that the ``platform`` names isn't on this host; empty where it is, or none is
    named.
    """
    if not platform or not devices.interfaces or platform in devices.interfaces:
        return ""
    toward = interface_toward(leader, root)
    instead = (
        f"{toward}, by which this host reaches the leader, is used" if toward in devices.interfaces else "none is set"
    )
    return (
        f"warning: the platform names the network interface {platform} (network_interface_name), but this host has "
        f"{', '.join(devices.interfaces)}: {instead}"
    )


def _alone(root: str) -> tuple[EnvSetting, ...]:
    """Gloo's setting on a host where only the loopback is up.

    Without it Gloo resolves the host's name and waits for an answer. NCCL takes the loopback by itself.
    """
    if any(route[4] != "lo" for route in (*_routes4(root), *_routes6(root))):
        return ()
    return (EnvSetting(GLOO, "lo", "the only interface that is up; Gloo would wait for an answer to this host's name"),)


def interface_toward(address: str, root: str = "/") -> str:
    """The interface that has a numeric ``address`` of this host, or that of the route to another host's; empty if there
    is none.

    Routes are read from the kernel's tables in ``/proc/net``. They don't tell this host's own IPv4 addresses: a /32 (of
    WireGuard, of Tailscale) would be looked for behind the default route. An address on the loopback that others reach
    (as routers have it) is no reason to use the loopback.
    """
    if ":" in address:
        wanted6 = _ipv6_number(address)
        routes = _routes6(root)
        if wanted6 is not None and wanted6 != 1:
            routes = [route for route in routes if route[4] != "lo"]
        return _longest_match(wanted6, routes)
    wanted = ipv4_number(address)
    if wanted is None:
        return ""
    if wanted >> 24 == 127:
        return "lo"
    owner = own_addresses4().get(wanted, "") if root == "/" else ""
    return owner if owner not in ("", "lo") else _longest_match(wanted, _routes4(root))


def own_addresses4() -> dict[int, str]:
    """This host's IPv4 addresses, each with its interface. Files don't tell them; the kernel does (netdevice(7),
    SIOCGIFCONF). Empty where it doesn't, as elsewhere than on Linux.
    """
    room = _IFREQ * _MOST_ADDRESSES
    buffer = array.array("B", bytes(room))
    asked = struct.pack("iL", room, buffer.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            size, _ = struct.unpack("iL", fcntl.ioctl(asking, _SIOCGIFCONF, asked))
    except OSError:
        return {}
    found: dict[int, str] = {}
    for at in range(0, size, _IFREQ):
        name, address = bytes(buffer[at : at + 16]), bytes(buffer[at + 20 : at + 24])
        # a label such as eth0:1 is an address more of eth0
        interface = name.partition(b"\0")[0].decode("ascii", "replace").partition(":")[0]
        found.setdefault(int.from_bytes(address, "big"), interface)
    return found


_Route = tuple[int, int, int, int, str]
"""Destination, mask, prefix length, metric, interface."""


def _longest_match(address: int | None, routes: list[_Route]) -> str:
    if address is None:
        return ""
    fitting = [route for route in routes if address & route[1] == route[0]]
    return min(fitting, key=lambda route: (-route[2], route[3]))[4] if fitting else ""


def _routes4(root: str) -> list[_Route]:
    """``/proc/net/route``: destination and mask are hexadecimal words in this machine's byte order."""
    routes = []
    for line in read_text(os.path.join(root, "proc/net/route")).splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8 or not int(fields[3], 16) & 1:
            continue
        destination, mask = (int.from_bytes(int(fields[at], 16).to_bytes(4, sys.byteorder), "big") for at in (1, 7))
        routes.append((destination, mask, mask.bit_count(), int(fields[6]), fields[0]))
    return routes


def _routes6(root: str) -> list[_Route]:
    """``/proc/net/ipv6_route``, and this host's own addresses from ``/proc/net/if_inet6``."""
    everything = (1 << 128) - 1
    routes = []
    for line in read_text(os.path.join(root, "proc/net/if_inet6")).splitlines():
        fields = line.split()
        if len(fields) == 6:
            routes.append((int(fields[0], 16), everything, 128, -1, fields[5]))
    for line in read_text(os.path.join(root, "proc/net/ipv6_route")).splitlines():
        fields = line.split()
        # 0x200: a reject route
        if len(fields) != 10 or int(fields[8], 16) & 0x200 or not int(fields[8], 16) & 1:
            continue
        length = int(fields[1], 16)
        mask = everything << (128 - length) & everything
        routes.append((int(fields[0], 16), mask, length, int(fields[5], 16), fields[9]))
    return routes


def ipv4_number(address: str) -> int | None:
    """A numeric IPv4 address as 32 bits; None for anything else, such as a name."""
    parts = address.split(".")
    if len(parts) != 4 or not all(part.isdecimal() and int(part) < 256 for part in parts):
        return None
    return int.from_bytes(bytes(map(int, parts)), "big")


def _ipv6_number(address: str) -> int | None:
    try:
        return int.from_bytes(socket.inet_pton(socket.AF_INET6, address.partition("%")[0]), "big")
    except OSError:
        return None
