"""Where this host's processes reach us: a directory that only this user can enter, and a look at who calls.

Sockets are files there, not names in Linux' abstract namespace, where every process that shares the network can
connect: a sidecar of the pod, a container on the host's network.
"""

from __future__ import annotations

import os
import socket
import stat
import struct

from musterpoint.base.errors import LauncherError

FOLDERS = ("/tmp", "/dev/shm", "/var/tmp")
"""Where the directory is made: the first one that takes it. The same for all of a host's entry points, as TMPDIR may
not be."""
MOST_TRIES = 1000
"""Tries to use the directory: another job of this user's may remove it, as it does when it is empty."""
SOCKET = ".socket"
TOKEN = ".token"
_CREDENTIALS = struct.Struct("=iII")
"""Pid, uid and gid of a caller (``struct ucred``, unix(7))."""


def private_folder(folders: tuple[str, ...] = FOLDERS) -> str:
    """The directory, made where there is none yet; it is ours and nobody else can enter it.

    Raises:
        LauncherError: none of ``folders`` takes it.
    """
    why = []
    for above in folders:
        path = os.path.join(above, f"musterpoint-{os.geteuid()}")
        unfit = _unfit(path)
        if not unfit:
            return path
        why.append(unfit)
    raise LauncherError(f"the processes of this host have no directory to meet in ({'; '.join(why)})")


def _unfit(path: str) -> str:
    """Why the directory, which is made where there is none, can't be used; empty if it can."""
    for _ in range(MOST_TRIES):
        try:
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                pass
            found = os.lstat(path)
            own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if not own or stat.S_IMODE(found.st_mode) & 0o077:
                return f"{path} isn't a directory that only this user can enter"
            if os.access(path, os.W_OK):
                return ""
            if os.statvfs(path).f_flag & os.ST_RDONLY:  # else it was removed meanwhile, and perhaps made anew
                return f"{path} is on a read-only disk"
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or not os.path.isdir(os.path.dirname(path)):
                return f"{path}: {error.strerror}"
    return f"{path} is removed again and again"


def remove_dead(folder: str, begins: str = "") -> None:
    """Removes what jobs have left that were killed: nobody listens at their sockets, whose names begin with ``begins``.

    Without the directory's lock only those may be looked at that listen before they get their name: another entry
    point's may be about to.
    """
    for name in os.listdir(folder):
        if name.startswith(begins) and name.endswith(SOCKET):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.setblocking(False)
                try:
                    sock.connect(os.path.join(folder, name))
                except ConnectionRefusedError:
                    remove(os.path.join(folder, name))
                    remove(os.path.join(folder, name.removesuffix(SOCKET) + TOKEN))
                except OSError:
                    pass  # it is busy, or gone by now


def remove(path: str) -> None:
    """Removes a file of ours, and the directory where it was the last one; whatever is gone already is fine."""
    try:
        os.unlink(path)
    except OSError:
        pass
    try:
        os.rmdir(os.path.dirname(path))
    except OSError:
        pass  # another job of this user's has files there


def is_same_user(sock: socket.socket) -> bool:
    """Whether the other side runs as our user, or as root."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the directory's mode keeps other users out there
    try:
        return peer_of(sock)[1] in (0, os.geteuid())
    except OSError:
        return False


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """Pid and user of the other side (Linux only)."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _group = _CREDENTIALS.unpack(data)
    return pid, user
