"""Programs of ours that other processes read or run: the rank stub, the launch agent, servers of a framework.

Each is the text of a module beside this one, in a memfd, so that nothing need be writable or cleaned up.
"""

from __future__ import annotations

import errno
import os
import sys

from musterpoint.module_text import module_text

SCRIPTS = frozenset({"agent"})
"""What is called by its path alone, and so needs a first line that says who runs it."""

LONGEST_FIRST_LINE = 127
"""Bytes of a ``#!`` line that Linux reads (255 from 5.1 on); blanks part it, whatever is quoted."""

_MFD_CLOEXEC, _MFD_NOEXEC_SEAL, _MFD_EXEC = 1, 8, 16


class Texts:
    """Written when they are first asked for; :meth:`close` removes them. Other processes of this user can open them."""

    def __init__(self) -> None:
        self._paths: dict[str, str] = {}
        self._fds: list[int] = []
        self._folder = ""

    def path(self, name: str) -> str:
        """Where the text of ``supervise/NAME.py``, or of the module of a full name, lies. That of :data:`SCRIPTS` can
        be executed.
        """
        if name not in self._paths:
            self._paths[name] = self._script(name) if name in SCRIPTS else self._write(name, _source(name))
        return self._paths[name]

    def hold(self, name: str, text: str) -> str:
        """Where a text that isn't ours to know lies under ``name``; a program may write to it."""
        self._paths[name] = self._write(name, text)
        return self._paths[name]

    def _script(self, name: str) -> str:
        first = f"#!{sys.executable} -IS"
        if len(first.encode()) <= LONGEST_FIRST_LINE and not {" ", "\t", "\n"} & set(sys.executable):
            return self._write(name, f"{first}\n{_source(name)}", executable=True)
        import shlex

        words = [sys.executable, "-IS", self._write(f"{name}-text", _source(name))]
        return self._write(name, f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', executable=True)

    def _write(self, name: str, text: str, executable: bool = False) -> str:
        fd = _memfd(f"muster-{name}", executable)
        if fd >= 0:
            self._fds.append(fd)
            os.write(fd, text.encode())
            return f"/proc/{os.getpid()}/fd/{fd}"
        import tempfile

        self._folder = self._folder or tempfile.mkdtemp(prefix="muster-")
        path = os.path.join(self._folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o700 if executable else 0o600), "wb") as file:
            file.write(text.encode())
        return path

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        if self._folder:
            import shutil

            shutil.rmtree(self._folder, ignore_errors=True)
        self._fds, self._folder, self._paths = [], "", {}


def _source(name: str) -> str:
    return module_text(name if "." in name else f"musterpoint.supervise.{name}")


def _memfd(name: str, executable: bool) -> int:
    """-1 where it can't be had. Linux before 6.3 knows no flag about execution; later ones may insist on it, or refuse
    it (sysctl ``vm.memfd_noexec``).
    """
    if not hasattr(os, "memfd_create"):
        return -1
    for flag in (_MFD_EXEC if executable else _MFD_NOEXEC_SEAL, 0):
        try:
            return os.memfd_create(name, _MFD_CLOEXEC | flag)
        except OSError as error:
            if error.errno != errno.EINVAL:
                return -1
    return -1
