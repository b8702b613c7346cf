"""``muster local --internet on``: hosts that are namespaces reach what this machine can, and nothing of it stays."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from musterpoint.local.netns_hosts import why_unavailable
from musterpoint.local.way_out import name_servers

from .conftest import end

NO_NETNS = why_unavailable()
pytestmark = pytest.mark.skipif(bool(NO_NETNS), reason=NO_NETNS)

CALLS = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 300) as call:
    call.sendall(b"x" * 300_000)
    call.shutdown(socket.SHUT_WR)
    print("got", call.makefile().read(), flush=True)
if sys.argv[3:]:
    print("waits", flush=True)
    time.sleep(600)
"""


SERVER = """
import os, select, socket, sys, threading
def serve(call):
    count = sum(len(data) for data in iter(lambda: call.recv(65536), b""))
    call.sendall(str(count).encode())
    call.close()
listener = socket.create_server(("198.51.100.1", 8000))
job = os.pidfd_open(os.getppid())
alive = os.open(sys.argv[1], os.O_WRONLY)  # until this process is gone
if os.fork():
    os._exit(0)  # it listens
threading.Thread(target=lambda: (select.select([job], [], []), os._exit(0)), daemon=True).start()
while True:
    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
"""
"""Answers each call with the number of bytes it got, until the job has ended."""
ADDRESS = ("198.51.100.1", "8000")
MACHINE = """
ip link set lo up && ip addr add 198.51.100.1/32 dev lo
"$0" -c "$1" "$2" </dev/null >/dev/null 2>&1
shift 2
exec "$@"
"""
"""A machine with an address that is reached from elsewhere, and the server on it; it runs a command."""


@pytest.fixture
def machine(local: Any) -> Iterator[Any]:
    """``local`` on such a machine, which is a network namespace of this test's own; the server is gone at the end."""
    command, alive = local.command, local.folder / "alive"
    os.mkfifo(alive)
    gone = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    before = ("unshare", "--net", "sh", "-c", MACHINE, sys.executable, SERVER, str(alive))
    local.command = lambda *words: [*before, *command(*words)]
    yield local
    end(local.started)
    os.set_blocking(gone, True)
    assert os.read(gone, 1) == b""
    os.close(gone)


WORDS = ("--hosts", "2", "--backend", "netns", "--internet", "on", "--launcher", "script")


def test_hosts_reach_what_this_machine_does(machine: Any) -> None:
    ran = machine.run(*WORDS, machine.program(CALLS), *ADDRESS)
    assert ran.code == 0, ran.stderr
    assert [line for line in ran.stdout.splitlines() if "got" in line].count("algo-1 | got 300000") == 1
    assert "algo-2 | got 300000" in ran.stdout
    assert "with a way out of this machine for TCP" in ran.stderr


def test_nothing_stays_when_it_is_killed(machine: Any) -> None:
    process = machine.start(*WORDS, machine.program(CALLS), *ADDRESS, "wait")
    assert process.stdout is not None
    for _ in range(2):
        while "waits" not in (line := process.stdout.readline()):
            assert line, process.communicate()
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    below = [pid for pid in found if b"way_out" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(below) == 1
    ends = os.pidfd_open(int(below[0]))
    process.send_signal(signal.SIGKILL)
    assert select.select([ends], [], [], 500)[0]
    os.close(ends)
    process.communicate()


def test_name_servers() -> None:
    assert name_servers("search a\nnameserver 10.0.0.1\nnameserver fe80::1%eth0\n") == ["10.0.0.1", "fe80::1"]
    assert name_servers("") == ["127.0.0.1"]
