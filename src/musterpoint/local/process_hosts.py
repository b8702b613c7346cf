"""Hosts as process trees: no root, no namespaces, one loopback address each where the machine has 127/8.

Host names are known to musterpoint only (a hosts file of its own); a program that resolves them itself needs the
``netns`` backend.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import sys
import tempfile
from typing import Callable, Final, Mapping, Sequence

from musterpoint.core.ports import Ports
from musterpoint.local import process_init
from musterpoint.local.tree import BASE, Layout, write_text

FIRST_ADDRESS = ipaddress.IPv4Address("127.0.0.11")
ONE_ADDRESS = "127.0.0.1"


_OWN_TREE = 'mkdir -p "$1" && mount --bind "$0" "$1" && shift && exec "$@"'
_IN_ITS_OWN = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _OWN_TREE)


class ProcessHosts:
    """Implements :class:`musterpoint.local.backend.Backend`. ``one_address`` puts all hosts on 127.0.0.1. ``own_tree``:
    each host finds its tree at ``/opt/ml``, as on the platform; see :func:`can_have_own_tree`.
    """

    name: Final = "process"
    shares_python = True
    isolated = False
    interface = ""

    def __init__(
        self, layout: Layout, hosts: tuple[str, ...], *, one_address: bool = False, own_tree: bool = False
    ) -> None:
        self.layout = layout
        self.own_tree = own_tree
        self.hosts = hosts
        self.one_address = one_address or not _binds(str(FIRST_ADDRESS))
        self.about = "processes of this machine, " + (
            f"all on {ONE_ADDRESS}" if self.one_address else "a loopback address each"
        )
        self.addresses = {
            host: ONE_ADDRESS if self.one_address else str(FIRST_ADDRESS + index) for index, host in enumerate(hosts)
        }
        self._started: dict[str, tuple[subprocess.Popen[bytes], int]] = {}
        self._held = Ports()
        self._ports = (0, 0)

    def open(self, on_end: Callable[[], None]) -> None:
        write_text(self._hosts_file, "".join(f"{address} {host}\n" for host, address in self.addresses.items()))
        self._ports = (self._held.take_any(), self._held.take_any())

    @property
    def _hosts_file(self) -> str:
        return self.layout.artifact("hosts-file")

    def inherited(self, environ: Mapping[str, str]) -> dict[str, str]:
        return dict(environ)

    def environment(self, host: str) -> dict[str, str]:
        own = {"MUSTER_LOG_DIR": self.layout.ranks(host)}
        # other jobs share these ports, so free ones are held; set on every host, as a job may have no channel
        rollcall, master = map(str, self._ports)
        own.update(MUSTER_HOSTS_FILE=self._hosts_file, MUSTER_ROLLCALL_PORT=rollcall, MUSTER_MASTER_PORT=master)
        return {**own, "MUSTER_TF_PORT": "0"} if len(self.hosts) > 1 else own

    def tree(self, host: str) -> str:
        return BASE if self.own_tree else self.layout.tree(host)

    def start(
        self, host: str, argv: Sequence[str], env: Mapping[str, str], stdin: int, output: int
    ) -> subprocess.Popen[bytes]:
        if self.own_tree:
            argv = [*_IN_ITS_OWN, self.layout.tree(host), BASE, *argv]
        control_read, control = os.pipe()
        try:
            handle = subprocess.Popen(
                process_init.command(control_read, argv),
                stdin=stdin,
                stdout=output,
                stderr=output,
                cwd="/",
                env=dict(env),
                pass_fds=(control_read,),
                start_new_session=True,
            )
        except BaseException:
            os.close(control)
            raise
        finally:
            os.close(control_read)
        self._started[host] = (handle, control)
        return handle

    def signal(self, host: str, signo: int) -> None:
        try:
            os.write(self._started[host][1], bytes([signo]))
        except BrokenPipeError:
            pass  # the host has ended

    def kill(self, host: str) -> None:
        self.signal(host, 9)

    def out_of_memory(self, host: str) -> bool:
        return False

    def close(self) -> None:
        started, self._started = self._started, {}
        for _, control in started.values():
            os.close(control)
        for handle, _ in started.values():
            handle.wait()
        self._held.keep(())


def can_have_own_tree() -> bool:
    """Whether this process may mount, in a namespace of its own."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        try:
            done = subprocess.run([*_IN_ITS_OWN, folder, folder, "true"], capture_output=True, check=False)
        except OSError:  # there is no unshare
            return False
    return done.returncode == 0


def _binds(address: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
