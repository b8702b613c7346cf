"""This host's keys for ssh, and the port at which other hosts of the job may call.

The port is bound, and waits for callers, before the roll call; they are answered when the roster says who may call
(:mod:`musterpoint.core.supervise.watchers.ssh_sessions`), so that none is ever refused for having come too early.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
from typing import TYPE_CHECKING, Mapping

from musterpoint.base.errors import LauncherError
from musterpoint.base.posix import fcntl
from musterpoint.core.fabric.ssh import TEMPORARY, Ssh
from musterpoint.core.ports import any_free
from musterpoint.core.rollcall.roster import is_ssh_key

if TYPE_CHECKING:
    from musterpoint.base.probe import Answer, Ask

BACKLOG = 1024
_NEW = ".new"
"""Ends the name of a directory whose lock isn't held yet."""
_OURS = re.compile(re.escape(TEMPORARY) + "[0-9a-f]{8}")
_TRIES = 20
_NO_DIRECTORY = re.compile(r"Missing privilege separation directory: (/\S+)")


class SshDoor:
    """Keys in a directory of their own, and the listening socket; :meth:`close` removes both.

    ``key`` is the public key, ``port`` the port.

    Raises:
        LauncherError: they can't be made, or sshd can't run here.
    """

    def __init__(self, ssh: Ssh, environ: Mapping[str, str], ask: Ask) -> None:
        self._ssh, self._environ, self._ask = ssh, environ, ask
        self._made = False
        self._lock = -1
        try:
            self._make_folder()
            self.key = self._make_key()
            self._try_server()
            self.socket = _listening()
        except BaseException:
            self._remove()
            raise
        self.port: int = self.socket.getsockname()[1]

    def _make_folder(self) -> None:
        folder = self._ssh.folder
        remove_dead(folder)
        try:
            os.mkdir(folder + _NEW, 0o700)
            self._lock = _locked(folder + _NEW)
            os.rename(folder + _NEW, folder)
        except OSError as error:
            raise LauncherError(
                f"ssh: the directory {folder} for the job's keys can't be made ({error.strerror}): set TMPDIR to a "
                "directory that can be written"
            ) from None
        self._made = True
        if unsafe := unsafe_parent(folder):
            raise LauncherError(
                f"ssh: others may replace what is in {unsafe}, so no keys are kept there: set TMPDIR to a directory of "
                "this user's, or one with the sticky bit, as /tmp has"
            )

    def _make_key(self) -> str:
        path = os.path.join(self._ssh.folder, "key")
        self._run(self._ssh.keygen, "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path)
        with open(path + ".pub", encoding="ascii") as file:
            key = " ".join(file.read().split()[:2])
        if not key or not is_ssh_key(key):
            raise LauncherError(f"ssh: {self._ssh.keygen} wrote no ed25519 key to {path}.pub, but {key[:80]!r}")
        return key

    def _try_server(self) -> None:
        """Lets sshd check that it could run here; as root it needs a directory that only a system's start makes."""
        test = (self._ssh.sshd, "-t", "-f", os.devnull, "-h", os.path.join(self._ssh.folder, "key"))
        missing = _NO_DIRECTORY.search(self._answer(*test).text)
        if missing:
            os.makedirs(missing[1], 0o755, exist_ok=True)
        self._run(*test)

    def _answer(self, *words: str) -> Answer:
        try:
            return self._ask(words, self._environ, "/", True)
        except (OSError, ValueError) as error:
            raise LauncherError(f"ssh: {words[0]} can't be started: {error}") from None

    def _run(self, *words: str) -> None:
        answer = self._answer(*words)
        if answer.status != 0:
            said = " ".join(answer.text.split())[:300] or "nothing"
            raise LauncherError(f"ssh: {words[0]} ended with {answer.status} and said: {said}")

    def close(self) -> None:
        self.socket.close()
        self._remove()

    def _remove(self) -> None:
        if self._made:
            shutil.rmtree(self._ssh.folder, ignore_errors=True)
            self._made = False
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _locked(folder: str) -> int:
    """A descriptor that holds the lock of ``folder`` until this process ends, however it ends; -1: it can't be had."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return -1
    return fd


def remove_dead(folder: str) -> None:
    """Removes the keys that killed jobs of this user have left beside ``folder``: nobody holds their locks."""
    above = os.path.dirname(folder)
    try:
        names = [name for name in os.listdir(above) if _OURS.fullmatch(name)]
    except OSError:
        return
    for name in names:
        path = os.path.join(above, name)
        try:
            if os.lstat(path).st_uid != os.geteuid():
                continue
            lock = _locked(path)
        except OSError:
            continue
        if lock >= 0:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _listening() -> socket.socket:
    """A listening socket at a port that is free for IPv4 and IPv6, where this host has both."""
    for _ in range(_TRIES):
        port = any_free()
        try:
            if socket.has_dualstack_ipv6():
                return socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
            return socket.create_server(("", port), backlog=BACKLOG)
        except OSError as error:
            last = error
    raise LauncherError(f"ssh: no port can be listened at: {last}")


def unsafe_parent(path: str) -> str:
    """The first directory above ``path`` in which another user could replace what is on the way to it; empty: none.

    As sshd's StrictModes asks, which however refuses directories with the sticky bit too, such as /tmp.
    """
    folder = os.path.realpath(os.path.dirname(path))
    while True:
        found = os.stat(folder)
        others_write = stat.S_IMODE(found.st_mode) & 0o022 and not found.st_mode & stat.S_ISVTX
        if others_write or found.st_uid not in (0, os.geteuid()):
            return folder
        if folder == os.path.dirname(folder):
            return ""
        folder = os.path.dirname(folder)
