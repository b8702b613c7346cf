"""A network of this process's own: the ports and abstract socket names that others use on this machine aren't taken."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # os.unshare and os.setns came with Python 3.12
_namespaces: list[int] = []  # this thread's first one and its own, once made


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """This thread, and what it starts meanwhile, is in a network namespace with nothing but loopback.

    One namespace serves the whole process. Only root can make one: for others this does nothing.
    """
    if os.geteuid() != 0:
        yield
        return
    if not _namespaces:
        _namespaces.extend(_made())
    first, own = _namespaces
    _enter(own)
    try:
        yield
    finally:
        _enter(first)


def _made() -> tuple[int, int]:
    """The namespace of this thread and a new one, as open files; the thread is in the new one."""
    here = f"/proc/{os.getpid()}/task/{_LIBC.gettid()}/ns/net"
    first = os.open(here, os.O_RDONLY | os.O_CLOEXEC)
    _checked(_LIBC.unshare(_CLONE_NEWNET), "unshare")
    with socket.socket() as sock:
        flags = struct.unpack_from("16sH", fcntl.ioctl(sock, _SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0)))[1]
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | _IFF_UP))
    return first, os.open(here, os.O_RDONLY | os.O_CLOEXEC)


def _enter(namespace: int) -> None:
    _checked(_LIBC.setns(namespace, _CLONE_NEWNET), "setns")


def _checked(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
