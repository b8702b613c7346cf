"""What every way of making hosts must do: codes, signals, and nothing left behind."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.core.channel.names import read_hosts
from musterpoint.local import docker_cleanup, netns_hosts
from musterpoint.local.backend import Backend, Running, choose_backend
from musterpoint.local.job_request import LocalJob
from musterpoint.local.netns_hosts import NetnsHosts, why_unavailable
from musterpoint.local.process_hosts import ProcessHosts
from musterpoint.local.tree import Layout

HOSTS = ("algo-1", "algo-2")
NO_NETNS = why_unavailable()
needs_netns = pytest.mark.skipif(bool(NO_NETNS), reason=NO_NETNS)


def pids_of(mark: str) -> set[int]:
    """Every process of this machine with ``mark`` in its command line."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
    return found


class Machine:
    """A backend with two hosts, and a mark that all their processes carry."""

    def __init__(self, hosts: Backend, layout: Layout) -> None:
        self.hosts = hosts
        self.layout = layout
        self.mark = f"mark-{uuid.uuid4().hex}"

    def start(self, host: str, code: str) -> tuple[Running, int]:
        """Runs the Python ``code`` as the host's entry point; its handle, and the read end of its output."""
        read, write = os.pipe()
        env = {**os.environ, **self.hosts.environment(host)}
        try:
            argv = [sys.executable, "-c", code, self.mark]
            return self.hosts.start(host, argv, env, subprocess.DEVNULL, write), read
        finally:
            os.close(write)

    def run(self, host: str, code: str) -> tuple[int, str]:
        handle, read = self.start(host, code)
        output = drained(read)
        return handle.wait(), output


def drained(fd: int) -> str:
    with open(fd, encoding="utf-8") as file:
        return file.read()


@pytest.fixture(params=["process", "one-address", pytest.param("netns", marks=needs_netns)])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    layout = Layout(str(tmp_path))
    for host in HOSTS:
        os.makedirs(layout.tree(host))
    made: dict[str, Callable[[], Backend]] = {
        "process": lambda: ProcessHosts(layout, HOSTS),
        "one-address": lambda: ProcessHosts(layout, HOSTS, one_address=True),
        "netns": lambda: NetnsHosts(layout, HOSTS),
    }
    machine = Machine(made[request.param](), layout)
    machine.hosts.open(lambda: None)
    yield machine
    machine.hosts.close()
    assert pids_of(machine.mark) == set()


ORPHAN = """
import os, signal, sys, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(write, b".")
        os.close(1), os.close(2)
        time.sleep(3600)
    os._exit(0)
os.wait()
os.read(read, 1)
os.write(1, b"ready\\n")
"""


def test_orphans_end_with_their_host(machine: Machine) -> None:
    code, output = machine.run("algo-1", ORPHAN + "sys.exit(3)")
    assert (code, output) == (3, "ready\n")
    assert pids_of(machine.mark) == set()


@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
def test_nothing_outlives_the_end_of_its_host(machine: Machine, closed: bool) -> None:
    handle, read = machine.start("algo-2", ORPHAN + "time.sleep(3600)")
    assert os.read(read, 6) == b"ready\n"
    if closed:
        machine.hosts.close()
    else:
        machine.hosts.kill("algo-2")
        assert handle.wait() == 137
    os.close(read)
    assert pids_of(machine.mark) == set()


STOPPABLE = """
import os, signal, sys, time
child = os.fork()
def stop(signo, frame):
    if child:
        os.kill(child, signal.SIGKILL)
        sys.exit(143)
    print("the child was signalled too", flush=True)
signal.signal(signal.SIGTERM, stop)
if child:
    os.write(1, b"ready\\n")
while True:
    time.sleep(0.05)
"""


def test_signals_go_to_the_entry_point_alone(machine: Machine) -> None:
    handle, read = machine.start("algo-1", STOPPABLE)
    assert os.read(read, 6) == b"ready\n"
    machine.hosts.signal("algo-1", signal.SIGTERM)
    assert (handle.wait(), drained(read)) == (143, "")
    machine.hosts.signal("algo-1", signal.SIGTERM)
    machine.hosts.kill("algo-1")


def test_hosts_reach_each_other(machine: Machine) -> None:
    """The first listens on its own address; the second reaches it there, from its own."""
    listen = (
        "import socket; server = socket.create_server(('{}', 0)); print(server.getsockname()[1], flush=True);"
        "print(server.accept()[1][0], flush=True)"
    ).format(machine.hosts.addresses["algo-1"])
    handle, read = machine.start("algo-1", listen)
    with open(read, encoding="utf-8") as output:
        port = output.readline().strip()
        there, here = machine.hosts.addresses["algo-1"], machine.hosts.addresses["algo-2"]
        code = f"import socket; socket.create_connection(('{there}', {port}), 10, ('{here}', 0))"
        assert machine.run("algo-2", code) == (0, "")
        assert output.readline().strip() == here
    assert handle.wait() == 0


CONTROL_PLANE = """
import os, subprocess, sys
from musterpoint.local.netns_hosts import NetnsHosts
from musterpoint.local.process_hosts import ProcessHosts
from musterpoint.local.tree import Layout
layout = Layout(sys.argv[1])
os.makedirs(layout.tree("algo-1"))
hosts = {"process": ProcessHosts, "netns": NetnsHosts}[sys.argv[2]](layout, ("algo-1",))
hosts.open(lambda: None)
read, write = os.pipe()
hosts.start("algo-1", [sys.executable, "-c", sys.argv[3], sys.argv[4]], os.environ, subprocess.DEVNULL, write)
os.close(write)
os.read(read, 6)
os.write(1, b"ready\\n")
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("name", ["process", pytest.param("netns", marks=needs_netns)])
def test_nothing_outlives_a_control_plane_that_was_killed(tmp_path: Path, name: str, environ: dict[str, str]) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    host = ORPHAN.replace("os.close(1), os.close(2)", "") + "time.sleep(3600)"
    with subprocess.Popen(
        [sys.executable, "-c", CONTROL_PLANE, str(tmp_path), name, host, mark], stdout=subprocess.PIPE, env=environ
    ) as control:
        assert control.stdout is not None
        assert control.stdout.readline() == b"ready\n"
    deadline = time.monotonic() + 500
    while pids_of(mark):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@needs_netns
def test_a_netns_host_is_a_machine_of_its_own(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path))
    for host in HOSTS:
        os.makedirs(layout.tree(host))
    hosts = NetnsHosts(layout, HOSTS)
    hosts.open(lambda: None)
    code = (
        "import os, socket; print(socket.gethostname(), os.getpid(), *sorted(os.listdir('/sys/class/net')));"
        "print(socket.gethostbyname('algo-1'), socket.gethostbyname('algo-2'), os.listdir('/dev/shm'));"
        "open('/opt/ml/here', 'w').close(); os.stat('/sys/fs/cgroup')"
    )
    code_of, output = Machine(hosts, layout).run("algo-2", code)
    hosts.close()
    lines = output.splitlines()
    assert (code_of, lines[0].split()) == (0, ["algo-2", "1", "eth0", "lo"])
    assert lines[1] == "10.77.1.2 10.77.1.3 []"
    assert os.path.exists(os.path.join(layout.tree("algo-2"), "here"))


@needs_netns
def test_two_jobs_at_once_have_networks_of_their_own(tmp_path: Path) -> None:
    both = []
    for name in ("one", "two"):
        layout = Layout(str(tmp_path / name))
        os.makedirs(layout.tree("algo-1"))
        hosts = NetnsHosts(layout, ("algo-1",))
        hosts.open(lambda: None)
        both.append(Machine(hosts, layout))
    listen = "import socket; socket.create_server(('algo-1', 7776)); print('mine')"
    assert [machine.run("algo-1", listen) for machine in both] == [(0, "mine\n")] * 2
    for machine in both:
        machine.hosts.close()


def test_the_choice(tmp_path: Path) -> None:
    layout, job = Layout(str(tmp_path)), LocalJob("a-job", HOSTS, "train.py", "/code")
    assert choose_backend(None, layout, job).name == ("process" if NO_NETNS else "netns")
    assert choose_backend(None, layout, job._replace(hosts=HOSTS[:1])).name == "process", "one needs no namespace"
    assert choose_backend("process", layout, job).name == "process"
    assert choose_backend(None, layout, job, one_address=True).name == "process"


def test_netns_that_cannot_be_had_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(UsageError, match=r"--backend netns can't be had .* 'ip' is missing .*--backend process"):
        choose_backend("netns", Layout(str(tmp_path)), LocalJob("a-job", HOSTS, "train.py", "/code"))


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


def test_a_process_that_ended_is_dead_even_as_a_zombie() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = docker_cleanup.owner_of(process.pid)
        assert len(owner.split("/")) == 4 and not docker_cleanup.is_dead(owner)
        process.communicate(b"\n")
    assert docker_cleanup.is_dead(owner)


def test_another_process_of_the_same_number_is_another_process() -> None:
    host, namespace, pid, _ = docker_cleanup.owner_of(os.getpid()).split("/")
    assert docker_cleanup.is_dead("/".join((host, namespace, pid, "an earlier start")))


@pytest.mark.parametrize(
    "owner", ["elsewhere/{namespace}/1/x", "{host}/another/1/x", "{host}/{namespace}/one/x", "", "x"]
)
def test_what_cannot_be_seen_from_here_is_left_alone(owner: str) -> None:
    host, namespace, *_ = docker_cleanup.owner_of(os.getpid()).split("/")
    assert not docker_cleanup.is_dead(owner.format(host=host, namespace=namespace))


def test_foreign_files_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to("/nowhere")
    mine = os.stat(tmp_path).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: mine or 12345)
    found = docker_cleanup._foreign(str(tmp_path))
    assert found == ("" if mine else str(tmp_path / "a"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert docker_cleanup._foreign(str(tmp_path)) == ""
