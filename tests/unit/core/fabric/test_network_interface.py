"""The interface towards the leader, from recorded route tables, and the settings that follow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from musterpoint.core.fabric.devices import Devices
from musterpoint.core.fabric.network_interface import (
    interface_toward,
    missing_interface,
    network_settings,
    wrong_interfaces,
)
from musterpoint.core.fabric.setting import EnvSetting, unless_set

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"


def route(interface: str, destination: str, mask: str, flags: int = 1, metric: int = 0) -> str:
    """A line of /proc/net/route: addresses are words in the machine's byte order."""

    def word(address: str) -> str:
        return f"{int.from_bytes(bytes(map(int, address.split('.'))), sys.byteorder):08X}"

    return f"{interface}\t{word(destination)}\t00000000\t{flags:04X}\t0\t0\t{metric}\t{word(mask)}\t0\t0\t0\n"


ROUTES = HEAD + "".join(
    (
        route("eth0", "0.0.0.0", "0.0.0.0", 3), route("eth1", "10.0.0.0", "255.255.0.0"),
        route("docker0", "172.17.0.0", "255.255.0.0"), route("eth2", "10.0.7.0", "255.255.255.0", metric=100),
        route("eth3", "10.0.7.0", "255.255.255.0", metric=50), route("eth4", "10.0.8.0", "255.255.255.0", flags=0),
    )
)  # fmt: skip
ZERO = "0" * 32
OWN6 = "fd000000000000000000000000000002 04 40 00 82     eth0\n00000000000000000000000000000001 01 80 10 80       lo\n"
ROUTES6 = (
    f"fd000000000000000000000000000000 40 {ZERO} 00 {ZERO} 00000100 00000001 00000000 00000001     eth1\n"
    f"{ZERO} 00 {ZERO} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth0\n"
    f"{ZERO} 00 {ZERO} 00 {ZERO} ffffffff 00000001 00000000 00200200       lo\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    net = tmp_path / "proc" / "net"
    net.mkdir(parents=True)
    (net / "route").write_text(ROUTES)
    (net / "if_inet6").write_text(OWN6)
    (net / "ipv6_route").write_text(ROUTES6)
    return tmp_path


@pytest.mark.parametrize(
    ("address", "interface"),
    [
        ("10.0.1.2", "eth1"),
        ("10.0.7.9", "eth3"),
        ("10.0.8.9", "eth1"),
        ("172.17.0.3", "docker0"),
        ("192.0.2.1", "eth0"),
        ("127.0.0.12", "lo"),
        ("fd00::2", "eth0"),
        ("fd00::7", "eth1"),
        ("2001:db8::1", "eth0"),
        ("::1", "lo"),
        ("algo-1", ""),
        ("fd00::zz", ""),
        ("10.0.0.256", ""),
    ],
)
def test_interface(root: Path, address: str, interface: str) -> None:
    assert interface_toward(address, str(root)) == interface


def test_no_tables_no_interface(tmp_path: Path) -> None:
    assert interface_toward("10.0.0.1", str(tmp_path)) == ""
    assert interface_toward("fd00::1", str(tmp_path)) == ""


DEVICES = Devices(interfaces=("docker0", "eth0", "eth1", "lo"))
ALL = {"NCCL_SOCKET_IFNAME": "eth1", "GLOO_SOCKET_IFNAME": "eth1", "TP_SOCKET_IFNAME": "eth1"}


def but(name: str) -> dict[str, str]:
    return {other: value for other, value in ALL.items() if other != name}


@pytest.mark.parametrize(
    ("leader", "hosts", "environ", "expected"),
    [
        ("10.0.1.2", 2, {}, ALL),
        ("10.0.1.2", 1, {}, {}),
        ("10.0.1.2", 2, {"NCCL_SOCKET_IFNAME": "ens5"}, but("NCCL_SOCKET_IFNAME")),
        ("10.0.1.2", 2, {"GLOO_SOCKET_IFNAME": ""}, but("GLOO_SOCKET_IFNAME")),
        ("10.0.7.9", 2, {}, {}),
        ("algo-1", 2, {}, {}),
    ],
    ids=["all", "one host", "NCCL is the user's", "Gloo is the user's", "interface not there", "a name"],
)
def test_settings(root: Path, leader: str, hosts: int, environ: dict[str, str], expected: dict[str, str]) -> None:
    settings = network_settings(DEVICES, leader, hosts, environ, str(root))
    assert {setting.name: setting.value for setting in settings} == expected
    assert all(leader in setting.reason for setting in settings)


ONLY_LO6 = "00000000000000000000000000000001 01 80 10 80       lo\n"
EXPECTED = {"GLOO_SOCKET_IFNAME": "lo"}


@pytest.mark.parametrize(
    ("route4", "own6", "interfaces", "environ", "expected"),
    [
        (HEAD, ONLY_LO6, ("lo",), {}, EXPECTED),
        (HEAD, "", ("lo", "sit0", "tunl0"), {}, EXPECTED),
        (HEAD, ONLY_LO6, ("lo",), {"GLOO_SOCKET_IFNAME": "eth0"}, {}),
        (ROUTES, ONLY_LO6, ("eth0", "lo"), {}, {}),
        (HEAD, OWN6, ("eth0", "lo"), {}, {}),
        (HEAD, "", (), {}, {}),
    ],
    ids=["alone", "others are down", "the user's", "an IPv4 route", "an IPv6 address", "no interfaces are known"],
)
def test_one_host_whose_only_interface_is_the_loopback(
    root: Path, route4: str, own6: str, interfaces: tuple[str, ...], environ: dict[str, str], expected: dict[str, str]
) -> None:
    net = root / "proc" / "net"
    (net / "route").write_text(route4)
    (net / "if_inet6").write_text(own6)
    (net / "ipv6_route").write_text("".join(line for line in ROUTES6.splitlines(True) if line.endswith(" lo\n")))
    settings = network_settings(Devices(interfaces=interfaces), "127.0.0.1", 1, environ, str(root))
    assert {setting.name: setting.value for setting in settings} == expected
    assert all("the only interface that is up" in setting.reason for setting in settings)


def test_nccl_configuration_files_are_the_users_word(root: Path, tmp_path: Path) -> None:
    (root / "etc").mkdir()
    (root / "etc" / "nccl.conf").write_text("NCCL_DEBUG=WARN\n# NCCL_SOCKET_IFNAME=ib0\n")
    names = [setting.name for setting in network_settings(DEVICES, "10.0.1.2", 2, {}, str(root))]
    assert "NCCL_SOCKET_IFNAME" in names
    (tmp_path / "mine.conf").write_text("NCCL_SOCKET_IFNAME = ib0\n")
    environ = {"NCCL_CONF_FILE": "/mine.conf"}
    names = [setting.name for setting in network_settings(DEVICES, "10.0.1.2", 2, environ, str(root))]
    assert names == ["GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"]


@pytest.mark.parametrize(
    ("platform", "said"),
    [
        ("eth1", ""),
        ("", ""),
        ("ethwe", "names the network interface ethwe (network_interface_name), but this host has docker0, eth0, eth1"),
    ],
)
def test_the_platforms_interface_exists(root: Path, platform: str, said: str) -> None:
    warning = missing_interface(DEVICES, platform, "10.0.1.2", str(root))
    assert said in warning and bool(warning) == bool(said)
    assert not said or "eth1, by which this host reaches the leader, is used" in warning


def test_nccl_gets_the_exact_interface_where_its_name_begins_another(root: Path) -> None:
    devices = Devices(interfaces=("eth1", "eth10", "lo"))
    settings = {setting.name: setting.value for setting in network_settings(devices, "10.0.1.2", 2, {}, str(root))}
    assert settings == {**ALL, "NCCL_SOCKET_IFNAME": "=eth1"}


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, ""),
        ({"NCCL_SOCKET_IFNAME": "ens5"}, "NCCL_SOCKET_IFNAME=ens5 (the environment) names no interface of this host"),
        ({"NCCL_SOCKET_IFNAME": "eth"}, ""),
        ({"NCCL_SOCKET_IFNAME": "=eth"}, "names no interface of this host, which has docker0, eth0, eth1, lo"),
        ({"NCCL_SOCKET_IFNAME": "^docker,lo"}, ""),
        ({"NCCL_SOCKET_IFNAME": "^=eth"}, "lets NCCL take the loopback, which reaches no other host: write"),
        ({"NCCL_SOCKET_IFNAME": "^docker0"}, "write NCCL_SOCKET_IFNAME=^docker0,lo"),
        ({"NCCL_SOCKET_IFNAME": "^docker,lo,eth"}, "names no interface"),
        ({"GLOO_SOCKET_IFNAME": "eth"}, "GLOO_SOCKET_IFNAME=eth (the environment) names no interface"),
        ({"TP_SOCKET_IFNAME": "eth1"}, ""),
        ({"GLOO_SOCKET_IFNAME": "lo"}, "the loopback reaches no other host, and ranks will not meet"),
        ({"HOME": "/me"}, "NCCL_SOCKET_IFNAME=ib7 (/me/.nccl.conf) names no interface"),
    ],
)
def test_interfaces_by_which_hosts_cannot_meet(root: Path, environ: dict[str, str], said: str) -> None:
    (root / "me").mkdir()
    (root / "me/.nccl.conf").write_text("NCCL_SOCKET_IFNAME=ib7\n")
    warnings = wrong_interfaces(DEVICES, "10.0.1.2", environ, str(root))
    assert len(warnings) == bool(said) and said in "".join(warnings)
    assert wrong_interfaces(DEVICES, "127.0.0.1", {"GLOO_SOCKET_IFNAME": "lo"}, str(root)) == ()
    assert wrong_interfaces(Devices(), "10.0.1.2", environ, str(root)) == ()


def test_the_first_setting_of_a_variable_counts() -> None:
    settings = (EnvSetting("A", "1", ""), EnvSetting("A", "2", ""), EnvSetting("B", "3", ""))
    assert unless_set(settings, {"B": ""}) == (EnvSetting("A", "1", ""),)


def test_a_search_path_goes_on_with_the_users() -> None:
    longer = EnvSetting("LD_LIBRARY_PATH", "/compat:/mine", "r")
    assert unless_set((longer,), {"LD_LIBRARY_PATH": "/mine"}) == (longer,)
