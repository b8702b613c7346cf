"""A way out for hosts that are network namespaces (``muster local --internet on``): TCP connections, and name lookups.

Run as ``python -m musterpoint.local.way_out PID``, where PID is a process in the namespace that all hosts are connected
to. That namespace is ours, and only there packets are redirected; nothing of this machine's own network is changed.
What arrives is taken by a socket in that namespace, and goes on from a socket in this machine's. It ends with its
stdin, so also when ``muster local`` was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
from typing import Any, Callable, Coroutine, Iterator, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.base.posix import resource
from musterpoint.local.process_init import OUTLIVED

PORT, DNS = 7001, 53
"""Where redirected connections arrive, and name lookups."""
_ORIGINAL_DESTINATION = 80
"""SO_ORIGINAL_DST of linux/netfilter_ipv4.h."""
_NETWORK = 0x40000000
"""CLONE_NEWNET of sched.h."""
MACHINE = "192.0.2.1"
"""Where hosts reach one port of this machine's own loopback, if they may (an address that no network has, RFC 5737)."""
_PATIENCE = 5.0
"""Seconds for a name server to answer before the next is asked."""
_CHUNK = 1 << 18
Ends = Sequence[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def redirect(pid: int, subnet: str) -> None:
    """Redirects the connections that leave ``subnet``, in the network namespace of ``pid``.

    Raises:
        UsageError: this machine can't do that.
    """
    tables = {
        "iptables": f"iptables -t nat -A PREROUTING -p tcp ! -d {subnet} -j REDIRECT --to-ports {PORT}",
        "nft": "nft add table ip muster && "
        "nft 'add chain ip muster in { type nat hook prerouting priority -100 ; }' && "
        f"nft add rule ip muster in ip daddr != {subnet} tcp dport 1-65535 redirect to :{PORT}",
    }
    why = "neither iptables nor nft is installed (Debian: apt-get install iptables)"
    for program, command in tables.items():
        if shutil.which(program) is None:
            continue
        done = subprocess.run(
            ["nsenter", "-t", str(pid), "--net", "sh", "-c", command], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return
        why = f"{program}: {done.stderr.strip() or f'exit code {done.returncode}'}"
    raise UsageError(
        f"--internet on: connections can't be redirected in a network namespace here: {why}; use --backend process, "
        "whose hosts have this machine's own network"
    )


def start(pid: int, address: str, port: int = 0) -> subprocess.Popen[bytes]:
    """Starts the process for the namespace of ``pid``, where it is reached at ``address``; returns once it listens.

    ``port``: of this machine's loopback, which hosts reach at :data:`MACHINE`; 0: none.
    """
    source = os.path.abspath(__file__)
    for _ in __name__.split("."):
        source = os.path.dirname(source)
    run = "import sys; sys.path.append(sys.argv.pop(1)); from musterpoint.local import way_out; way_out.main()"
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", run, source, str(pid), address, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
    )
    assert process.stdout is not None
    if process.stdout.readline() != b"\n":
        process.communicate()
        raise UsageError("--internet on: the process that passes connections on couldn't be started; leave it out")
    return process


def name_servers(text: str) -> list[str]:
    """The name servers of a ``resolv.conf``."""
    rows = [line.split() for line in text.splitlines()]
    return [row[1].partition("%")[0] for row in rows if len(row) > 1 and row[0] == "nameserver"] or ["127.0.0.1"]


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def _sockets(pid: int, address: str) -> tuple[socket.socket, socket.socket, socket.socket]:
    """Sockets in the namespace of ``pid``: for connections, and for lookups by TCP and by UDP."""
    own, other = (os.open(f"/proc/{each}/ns/net", os.O_RDONLY | os.O_CLOEXEC) for each in ("self", pid))
    _enter(other)
    try:
        asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        asked.bind((address, DNS))
        asked.setblocking(False)
        return socket.create_server((address, PORT), backlog=1024), socket.create_server((address, DNS)), asked
    finally:
        _enter(own)
        os.close(own)
        os.close(other)


_running: set[asyncio.Task[None]] = set()


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Has ``work`` run to its end; asyncio's loop alone doesn't hold it."""
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_running.discard)


async def listen(listening: socket.socket, work: Connected) -> None:
    """Has ``work`` run for each connection."""
    await asyncio.start_server(lambda reader, writer: _run(work(reader, writer)), sock=listening)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _reset(ends: Ends) -> None:
    for _, writer in ends:
        with contextlib.suppress(OSError):  # it is closed already
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


async def join(host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes both directions of a connection on to ``host``, each with its end. Where one breaks, or nobody answers
    there, everything is reset.
    """
    ends = [(reader, writer)]
    try:
        ends.append(await asyncio.open_connection(host, port))
        with _watched(ends):
            await asyncio.gather(_copy(reader, ends[1][1]), _copy(ends[1][0], writer))
    except OSError:
        _reset(ends)
    finally:
        for _, each in ends:
            each.close()


@contextlib.contextmanager
def _watched(ends: Ends) -> Iterator[None]:
    """Has everything reset when an end breaks that isn't being read: it has ended, or the other is slow."""
    of: dict[int, tuple[asyncio.StreamReader, Any]] = {
        writer.get_extra_info("socket").fileno(): (reader, writer.transport) for reader, writer in ends
    }
    if min(of) < 0:
        raise ConnectionResetError("an end was reset before the other was there")
    loop = asyncio.get_running_loop()
    with select.epoll() as watch:

        def look() -> None:
            for number, event in watch.poll(0):
                reader, transport = of[number]
                if event & select.EPOLLERR and (reader.at_eof() or not transport.is_reading()):
                    _reset(ends)

        for number in of:
            watch.register(number, select.EPOLLET)  # each change is told once; errors always are
        loop.add_reader(watch.fileno(), look)
        try:
            yield
        finally:
            loop.remove_reader(watch.fileno())


async def _pass_on(own: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        where = writer.get_extra_info("socket").getsockopt(socket.SOL_IP, _ORIGINAL_DESTINATION, 16)
    except OSError:  # it was never redirected
        writer.transport.abort()
        return
    (port,) = struct.unpack_from("!H", where, 2)
    host = socket.inet_ntoa(where[4:8])
    await join("127.0.0.1" if (host, port) == (MACHINE, own) else host, port, reader, writer)


class _Lookups(asyncio.DatagramProtocol):
    """Answers name lookups by asking this machine's name servers."""

    def __init__(self, servers: list[str]) -> None:
        self._servers = servers

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        _run(self._answer(data, address))

    async def _answer(self, question: bytes, address: Any) -> None:
        loop = asyncio.get_running_loop()
        for server in self._servers:
            family = socket.AF_INET6 if ":" in server else socket.AF_INET
            with socket.socket(family, socket.SOCK_DGRAM) as asked, contextlib.suppress(OSError, asyncio.TimeoutError):
                asked.setblocking(False)
                asked.connect((server, DNS))
                await loop.sock_sendall(asked, question)
                self._transport.sendto(await asyncio.wait_for(loop.sock_recv(asked, 65535), _PATIENCE), address)
                return


async def _serve(pid: int, address: str, own: int) -> None:
    connections, lookups, asked = _sockets(pid, address)
    try:
        with open("/etc/resolv.conf", encoding="utf-8", errors="replace") as file:
            servers = name_servers(file.read())
    except OSError:
        servers = name_servers("")
    loop = asyncio.get_running_loop()
    await listen(connections, functools.partial(_pass_on, own))
    await listen(lookups, functools.partial(join, servers[0], DNS))
    await loop.create_datagram_endpoint(lambda: _Lookups(servers), sock=asked)
    over = asyncio.Event()
    loop.add_reader(0, lambda: None if os.read(0, 1024) else over.set())
    os.write(1, b"\n")
    await over.wait()


def main() -> None:
    """Serves the namespace of the process ``sys.argv[1]`` at the address ``sys.argv[2]``, until stdin ends.

    ``sys.argv[3]``: the port of this machine's loopback that its hosts may reach.
    """
    for name in OUTLIVED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
