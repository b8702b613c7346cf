"""Where the entry points of one host find each other: a socket in a directory that only this user can enter.

The platforms that start several (Slurm's ``srun``, AzureML) start all of a host's in one container or on one machine,
so they have one ``/tmp``. Other containers of the machine have another, also where they share its network; a socket in
Linux' abstract namespace would be theirs, too.

Who holds the directory's lock either connects to the one that leads, or, where nobody listens any more, listens itself.
The directory is removed when it is empty, also by those that have no lock. So who has the lock puts a file into it:
that fails where the locked one was removed, and another one that somebody else has locked may be at its path by now.
"""

from __future__ import annotations

import _thread
import binascii
import os
import socket
from typing import Callable

from musterpoint.base.errors import LauncherError
from musterpoint.base.loop import Loop
from musterpoint.base.posix import fcntl
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.secret import derived
from musterpoint.core.processes.private_folder import (
    FOLDERS,
    MOST_TRIES,
    SOCKET,
    TOKEN,
    private_folder,
    remove,
    remove_dead,
)

_LONGEST_NAME = 40
_IN_NAMES = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._")
_BACKLOG = 4096
_TOKEN_BYTES = 32
_HELD = ".held"
"""The file that keeps the directory."""


class MeetingFiles(NamedTuple):
    """``folder``: the directory. ``name``: of the files of one job and host in it."""

    folder: str
    name: str

    @property
    def socket(self) -> str:
        return os.path.join(self.folder, self.name + SOCKET)

    @property
    def token(self) -> str:
        return os.path.join(self.folder, self.name + TOKEN)


class Meeting(NamedTuple):
    """``sock``: listens where ``leads``, else it is connected to the one that leads. ``token``: what all of a host's
    entry points know, and no others."""

    place: MeetingFiles
    sock: socket.socket
    leads: bool
    token: str


def file_name(*parts: str) -> str:
    """A file's name for what ``parts`` say, which may have any characters and any length."""
    text = "\0".join(parts)
    known = "".join(letter if letter in _IN_NAMES else "_" for letter in parts[-1][:_LONGEST_NAME])
    return f"{binascii.crc32(text.encode('utf-8', 'surrogateescape')):08x}-{known}"


def elect(
    loop: Loop,
    name: str,
    secret: str = "",
    check_stop: Callable[[], None] = lambda: None,
    folders: tuple[str, ...] = FOLDERS,
) -> Meeting:
    """Meets the other entry points at ``name``. With a ``secret`` the token derives from it; else the first makes one.

    Raises:
        LauncherError: there is no directory for it.
        Exception: what ``check_stop`` raised while another one was at it.
    """
    for _ in range(MOST_TRIES):
        folder = private_folder(folders)
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _wait_for_lock(loop, fd, check_stop)
            os.close(os.open(_HELD, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=fd))
            try:
                return _meet(MeetingFiles(folder, name), secret)
            finally:
                remove(os.path.join(folder, _HELD))
        except FileNotFoundError:
            continue  # it was removed before it was ours
        except OSError as error:
            raise LauncherError(f"the entry points of this host can't meet in {folder}: {error.strerror}") from None
        finally:
            os.close(fd)
    raise LauncherError(f"the entry points of this host can't meet: {folder} is removed again and again")


def leave(place: MeetingFiles) -> None:
    """Removes what the one that leads has made."""
    for path in (place.socket, place.token):
        remove(path)


def _wait_for_lock(loop: Loop, fd: int, check_stop: Callable[[], None]) -> None:
    """Another one is at it, which takes a moment, unless it was stopped: in a thread, so that a stop ends the wait."""
    loop.prepare_posts()
    ours = os.dup(fd)  # shares the lock; the thread may outlive the wait
    locked: list[bool] = []

    def wait() -> None:
        fcntl.flock(ours, fcntl.LOCK_EX)
        os.close(ours)
        loop.post(lambda: locked.append(True))

    _thread.start_new_thread(wait, ())
    while not locked:
        loop.turn()
        check_stop()


def _meet(place: MeetingFiles, secret: str) -> Meeting:
    """Connects to the one that leads, or becomes it; the lock of the directory is held."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            sock.connect(place.socket)
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            remove_dead(place.folder)
            sock.bind(place.socket)
            token = _derived(secret, place.name) if secret else _new_token(place.token)
            sock.listen(_BACKLOG)
            return Meeting(place, sock, True, token)
        token = _derived(secret, place.name) if secret else _read_token(place.token)
        return Meeting(place, sock, False, token)
    except BaseException:
        sock.close()
        raise


def _new_token(path: str) -> str:
    token = os.urandom(_TOKEN_BYTES).hex()
    if os.path.lexists(path):
        os.unlink(path)  # of a start that was killed between its two files
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, token.encode())
    finally:
        os.close(fd)
    return token


def _read_token(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(2 * _TOKEN_BYTES)


def _derived(secret: str, name: str) -> str:
    return derived(secret, f"entry points {name}")
