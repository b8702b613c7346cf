"""The ports of a job: of the roll call, of its master, and free ones of this host."""

from __future__ import annotations

import errno
import os
import socket
import sys
from typing import Callable, Iterable

from musterpoint.base.errors import LauncherError, UsageError
from musterpoint.base.settings import MASTER_PORT, ROLLCALL_PORT, Settings
from musterpoint.core.job.model import Job

_FIRST_PORT, _LAST_PORT = 20000, 32000
_TAKEN = {errno.EADDRINUSE, errno.EACCES}


def rollcall_port(job: Job, settings: Settings) -> int:
    """The leader's port for the roll call: that of a leader who is told by the platform, else the option's, else the
    platform's usual.
    """
    usual = job.rollcall_port if settings.rollcall_port == ROLLCALL_PORT else 0
    return (job.unnamed.port if job.unnamed is not None else 0) or usual or settings.rollcall_port


def agreed_master_port(asked: int | None, preferred: int = MASTER_PORT) -> int:
    """The master port where no leader can tell it: every host takes this one. ``asked``: ``--master-port``."""
    return asked or preferred


def leaders_master_port(
    asked: int | None, is_free: Callable[[int], bool], warn: Callable[[str], None], preferred: int = MASTER_PORT
) -> int:
    """The master port that the leader tells all hosts: the one asked for, else ``preferred`` if it is free, else any.

    ``preferred``: the platform's own, or 7777.
    """
    if asked is None:
        return preferred if is_free(preferred) else any_free()
    if asked and not is_free(asked):
        warn(f"warning: --master-port {asked} is in use")
    return asked or any_free()


def next_master_port(asked: int | None, last: int, is_free: Callable[[int], bool]) -> int:
    """The master port of another attempt: a late rank of the ``last`` one must not meet its ranks.

    A port that was ``asked`` for stays.
    """
    if asked:
        return asked
    return last + 1 if is_free(last + 1) else any_free()


def offered(wanted: Iterable[int], insisted: str = "") -> tuple[int, ...]:
    """One free port for each in ``wanted``: that port if it is free, else any (0: any).

    ``insisted``: why the wanted ports can't be replaced; empty if they can.

    Raises:
        LauncherError: a port that can't be replaced is taken.
    """
    found: list[int] = []
    for port in wanted:
        if insisted and (not port or not is_free(port)):
            what = f"port {port} is taken here" if port else "other hosts can't learn which port is free here"
            raise LauncherError(
                f"{insisted}: {what}; pass a --tf-port that is free on every host, or neither option, so that the "
                "roll call finds free ones"
            )
        while not port or port in found or not is_free(port):
            port = any_free()
        found.append(port)
    return tuple(found)


def check_agreed(how: str, wanted: int | None, ports: Iterable[int], leads: bool) -> None:
    """Checks the leader's ``ports``, which without a channel every host computes for itself.

    ``how``: the option that leaves the channel out. ``wanted``: the port asked for. ``leads``: this host is the leader.

    Raises:
        UsageError: any free port was asked for, and the other hosts could not learn which.
        LauncherError: this host leads, and one of the ports is taken.
    """
    if wanted == 0:
        raise UsageError(
            f"--master-port 0 with {how}: no host can tell the others which port is free; pass a --master-port that is "
            f"free on the leader, the same on all hosts, or leave it out ({MASTER_PORT})"
        )
    for port in ports if leads else ():
        if not is_free(port):
            raise LauncherError(
                f"{how}: port {port} is taken on this host, the leader, and no other host can be told of another one; "
                "pass a --master-port that is free here, the same on all hosts"
            )


def is_free(port: int) -> bool:
    """Whether ``port`` is valid and can be bound on every address of this host."""
    if port > 65535:
        return False
    for family in (socket.AF_INET6, socket.AF_INET):
        try:
            _bind(family, port)
        except OSError as error:
            if sys.platform == "win32" or error.errno in _TAKEN:
                return False
    return True


def _bind(family: int, port: int) -> None:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(("", port))
    finally:
        sock.close()


def any_free() -> int:
    """A port that is free now, and that the system will not give to a connection.

    It lies below the range from which systems take the local ports of connections (Linux: 32768 on).
    """
    while True:
        port = _FIRST_PORT + int.from_bytes(os.urandom(2), "big") % (_LAST_PORT - _FIRST_PORT)
        if is_free(port):
            return port
