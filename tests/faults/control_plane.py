"""``muster local`` whose hosts have an init of their own, and the faults that the variable FAULT_HOSTS tells of."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Mapping, Sequence

from musterpoint.cli.main import main
from musterpoint.local import control_plane
from musterpoint.local.netns_hosts import NetnsHosts

INIT = Path(__file__).resolve().parent / "programs" / "init.py"
TOLD: dict[str, Any] = json.loads(os.environ.pop("FAULT_HOSTS"))
FOLDER = Path(os.environ["FAULT_FOLDER"])
SECOND = "algo-2"
start, write_etc = NetnsHosts.start, NetnsHosts._write_etc

WAITING = 'until [ -e "$0" ]; do sleep 0.05; done; exec "$@"'


def start_with_faults(
    self: NetnsHosts, host: str, argv: Sequence[str], env: Mapping[str, str], stdin: int, output: int
) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-I", "-S", str(INIT), str(FOLDER / f"left-{host}"), *argv]
    if host != SECOND:
        return start(self, host, argv, env, stdin, output)
    if TOLD["late"]:
        argv = ["sh", "-c", WAITING, str(FOLDER / "late"), *argv]
    if TOLD["output"] == "read":
        return start(self, host, argv, env, stdin, output)
    read, write = os.pipe()
    if TOLD["output"] == "gone":
        os.close(read)
    process = start(self, host, argv, env, stdin, write)
    os.close(write)
    return process


def write_etc_with_faults(self: NetnsHosts, host: str) -> None:
    addresses = self.addresses
    if TOLD["unnamed"] and host == SECOND:
        self.addresses = {name: address for name, address in addresses.items() if name != self.hosts[0]}
    write_etc(self, host)
    self.addresses = addresses


NetnsHosts.start = start_with_faults  # type: ignore[method-assign]
NetnsHosts._write_etc = write_etc_with_faults  # type: ignore[method-assign]
control_plane._PATIENCE = 600.0  # hosts end by themselves here, however slow the machine is

# whoever runs the matrix may be killed, and leaves no job behind then
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
sys.exit(main(sys.argv[1:]))
