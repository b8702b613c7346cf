"""Hosts as Linux namespaces: own network, name, processes, shared memory and ``/opt/ml`` each, on an isolated bridge.

No name can outlive the run or clash with another run. A namespace exists while a process is in it; its holder ends
with this process, because its stdin is a pipe from here; and everything on a host ends with the host's
PID 1, which the kernel kills when this process dies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Callable, Final, Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.core.processes.process_tree import catches, children_of
from musterpoint.local import way_out
from musterpoint.local.tree import BASE, Layout, write_text

SUBNET = "10.77"
GATEWAY = SUBNET + ".0.1"
"""The way out, where the hosts have one."""

_FIRST = 'exec 3>&2 2>/dev/null; setpriv --pdeathsig KILL "$0" "$@" 2>&3 3>&-; exit $?'
"""Starts the host's PID 1 and ends with its code (``unshare --fork`` ends with 1 when a PID 1 was killed)."""

_SET_UP = r"""
set -e
mount -t proc proc /proc
files=$1 tree=$2; shift 2
for name in hosts resolv.conf nsswitch.conf; do
    if [ -e /etc/$name ]; then mount --bind "$files/$name" "$(readlink -f /etc/$name)"; fi
done
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -p "$files/cgroup"
if mount --rbind /sys/fs/cgroup "$files/cgroup" 2>/dev/null; then
    mount -t sysfs sysfs /sys; mount --rbind "$files/cgroup" /sys/fs/cgroup; umount -l "$files/cgroup"
fi
rmdir "$files/cgroup"
mkdir -p /opt/ml
mount --bind "$tree" /opt/ml
cd /
exec "$@"
"""


class NetnsHosts:
    """Implements :class:`musterpoint.local.backend.Backend`; needs root.

    ``port``: of this machine's loopback, which hosts with a way out reach at :data:`way_out.MACHINE`.
    """

    name: Final = "netns"
    shares_python = True
    interface = "eth0"

    def __init__(self, layout: Layout, hosts: tuple[str, ...], *, internet: bool = False, port: int = 0) -> None:
        self.layout = layout
        self._port = port
        self.internet, self.isolated = internet, not internet
        self.about = "a network namespace each, " + (
            "with a way out of this machine for TCP" if internet else "with no way out of this machine"
        )
        self.hosts = hosts
        self.addresses = {host: address_of(index) for index, host in enumerate(hosts, 1)}
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._switch: subprocess.Popen[bytes] | None = None
        self._way_out: subprocess.Popen[bytes] | None = None
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def open(self, on_end: Callable[[], None]) -> None:
        self._switch = _start_holder("switch")
        _ip(self._switch, ["link add br0 type bridge", "link set br0 up"])
        for host in self.hosts:
            self._holders[host] = _start_holder(host)
        for host in self.hosts:
            self._write_etc(host)
            self._connect(host)
        if self.internet:
            _ip(self._switch, ["link set lo up", f"addr add {GATEWAY}/16 dev br0"])
            way_out.redirect(self._switch.pid, f"{SUBNET}.0.0/16")
            self._way_out = way_out.start(self._switch.pid, GATEWAY, self._port)

    def _write_etc(self, host: str) -> None:
        """Writes the files to mount over those in ``/etc``: all hosts' names, and a resolver if there is a way out."""
        directory = self._etc(host)
        os.makedirs(directory, exist_ok=True)
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
        for name, address in self.addresses.items():
            # a dual-stack server sees this form; without a name for it torch warns about each connection
            lines += [f"{address} {name}", f"::ffff:{address} {name}.mapped"]
        resolver = "# this network has no resolver: names are in /etc/hosts\n"
        if self.internet:
            lines += _lines_of("/etc/hosts", lambda words: not {"localhost", *self.addresses}.intersection(words[1:]))
            kept = _lines_of("/etc/resolv.conf", lambda words: words[0] in ("search", "domain", "options"))
            resolver = "\n".join([f"nameserver {GATEWAY}", *kept]) + "\n"
        write_text(os.path.join(directory, "hosts"), "\n".join(lines) + "\n")
        write_text(os.path.join(directory, "resolv.conf"), resolver)
        try:
            with open("/etc/nsswitch.conf", encoding="utf-8") as file:
                kept = [line for line in file.read().splitlines() if not line.startswith("hosts:")]
        except OSError:
            kept = []
        write_text(os.path.join(directory, "nsswitch.conf"), "\n".join([*kept, "hosts: files dns"]) + "\n")

    def _etc(self, host: str) -> str:
        return os.path.join(self.layout.host(host), "etc")

    def _connect(self, host: str) -> None:
        """Gives ``host`` its ``eth0``. Neighbours are permanent: the kernel's neighbour table is shared and small."""
        assert self._switch is not None
        index = self.hosts.index(host) + 1
        holder = self._holders[host]
        _ip(
            self._switch,
            [
                f"link add port{index} type veth peer name eth0 address {_hardware(index)} netns {holder.pid}",
                f"link set port{index} master br0 up",
            ],
        )
        neighbours = [
            f"neigh add {self.addresses[peer]} lladdr {_hardware(other)} dev eth0 nud permanent"
            for other, peer in enumerate(self.hosts, 1)
            if peer != host
        ]
        _ip(holder, [f"addr add {self.addresses[host]}/16 dev eth0", "link set lo up", "link set eth0 up", *neighbours])
        if self.internet:
            _ip(holder, [f"route add default via {GATEWAY}"])

    def inherited(self, environ: Mapping[str, str]) -> dict[str, str]:
        return dict(environ)

    def environment(self, host: str) -> dict[str, str]:
        return {"MUSTER_LOG_DIR": self.layout.ranks(host), "HOSTNAME": host}

    def tree(self, host: str) -> str:
        return BASE

    def start(
        self, host: str, argv: Sequence[str], env: Mapping[str, str], stdin: int, output: int
    ) -> subprocess.Popen[bytes]:
        handle = subprocess.Popen(
            [
                "setpriv",
                "--pdeathsig",
                "KILL",
                "nsenter",
                "-t",
                str(self._holders[host].pid),
                "--net",
                "--uts",
                "unshare",
                "--mount",
                "--propagation",
                "private",
                "--ipc",
                "--pid",
                "sh",
                "-c",
                _FIRST,
                "sh",
                "-c",
                _SET_UP,
                "host",
                self._etc(host),
                self.layout.tree(host),
                *argv,
            ],
            stdin=stdin,
            stdout=output,
            stderr=output,
            cwd="/",
            env=dict(env),
            start_new_session=True,
        )
        self._started[host] = handle
        return handle

    def _first_pid(self, host: str) -> int:
        """The host's PID 1 as this machine numbers it; 0 if there is none (not yet, or no longer)."""
        return next((child.pid for child in children_of(self._started[host].pid)), 0)

    def signal(self, host: str, signo: int) -> None:
        """Signals the host's PID 1. Without a handler it would ignore the signal, so then the host is killed."""
        first = self._first_pid(host)
        if not first or not catches(first, signo):
            self.kill(host)
            return
        try:
            os.kill(first, signo)
        except ProcessLookupError:
            pass  # it has just ended

    def kill(self, host: str) -> None:
        first = self._first_pid(host)
        try:
            if first:
                os.kill(first, 9)
            elif self._started[host].poll() is None:
                self._started[host].kill()
        except ProcessLookupError:
            pass  # it has just ended

    def out_of_memory(self, host: str) -> bool:
        return False

    def close(self) -> None:
        for host, handle in self._started.items():
            if handle.poll() is None:
                self.kill(host)
            handle.wait()
        holders = [*self._holders.values(), *filter(None, (self._way_out, self._switch))]
        self._started, self._holders, self._way_out, self._switch = {}, {}, None, None
        for holder in holders:
            holder.communicate()


def _lines_of(path: str, wanted: Callable[[list[str]], bool]) -> list[str]:
    """The lines of a file of this machine whose words are ``wanted``."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            rows = [line.partition("#")[0].strip() for line in file]
    except OSError:
        return []
    return [row for row in rows if row and wanted(row.split())]


def _start_holder(name: str) -> subprocess.Popen[bytes]:
    """A process that keeps a network and a host name alive until its stdin ends; returns once they exist."""
    holder = subprocess.Popen(
        ["unshare", "--net", "--uts", "sh", "-c", 'hostname "$0"; echo; exec cat', name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert holder.stdout is not None
    if holder.stdout.readline() != b"\n":
        raise UsageError(f"--backend netns: no namespace could be made for {name}; use --backend process")
    return holder


def _ip(holder: subprocess.Popen[bytes], commands: list[str]) -> None:
    done = subprocess.run(
        ["nsenter", "-t", str(holder.pid), "--net", "ip", "-batch", "-"],
        input="".join(command + "\n" for command in commands).encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        error = done.stderr.decode(errors="replace").strip()
        raise UsageError(f"--backend netns: the network couldn't be made: {error}; use --backend process")


def address_of(index: int) -> str:
    """The address of host number ``index``, from 1."""
    return f"{SUBNET}.{1 + index // 250}.{1 + index % 250}"


def _hardware(index: int) -> str:
    return f"02:4d:75:73:{index >> 8:02x}:{index & 255:02x}"


def why_unavailable() -> str:
    """Why network namespaces can't be made here, in a few words; empty if a trial succeeds."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "it needs root"
    for program in ("ip", "unshare", "nsenter", "setpriv", "mount"):
        if shutil.which(program) is None:
            package = "iproute2" if program == "ip" else "util-linux"
            return f"the program {program!r} is missing (Debian: apt-get install {package})"
    trial = subprocess.run(
        ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "ip", "-batch", "-"],
        input=b"link add br0 type bridge\nlink add port1 type veth peer name eth0\n",
        capture_output=True,
        check=False,
    )
    if trial.returncode:
        words = trial.stderr.decode(errors="replace").strip().splitlines()
        return f"a trial failed: {words[0] if words else f'exit code {trial.returncode}'}"
    return ""
