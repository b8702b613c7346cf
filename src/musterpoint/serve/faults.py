"""Faults of a running host, on demand: it becomes slow, or its disk is full."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

from musterpoint.core.processes.tree import descendants, send

_PERIOD = 0.1
"""Seconds of which a slow host runs a part."""
_FILLED = ("checkpoints", "model", "output")
"""What of ``/opt/ml`` a full disk holds."""
_FILL = r"""
set -e
layers=$(mktemp -d); mount -t tmpfs -o size=64k tmpfs "$layers"
for name in "$@"; do mkdir -p "$layers/$name/upper" "$layers/$name/work"; done
dd if=/dev/zero of="$layers/full" bs=1k 2>/dev/null || true
for name in "$@"; do
    [ -d "/opt/ml/$name" ] || continue
    mount -t overlay overlay -o "lowerdir=/opt/ml/$name,upperdir=$layers/$name/upper,workdir=$layers/$name/work" \
        "/opt/ml/$name"
done
"""


class CannotFail(Exception):
    """The fault can't be made on this machine; the text says why."""


class Slowness:
    """Makes everything below the process ``root`` ``factor`` times slower, until :meth:`end`."""

    def __init__(self, root: int, factor: float) -> None:
        self._root, self._factor = root, factor
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slow", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        runs = _PERIOD / self._factor
        while not self._over.is_set():
            held = [stat.pid for stat in descendants(self._root)]
            for pid in held:
                send(pid, signal.SIGSTOP)
            self._over.wait(_PERIOD - runs)
            for pid in held:
                send(pid, signal.SIGCONT)
            self._over.wait(runs)


def fill_disk(root: int) -> None:
    """From now on nothing more fits onto the disk of the host whose first process is ``root``: ENOSPC, as there.

    What it has stays readable. Only that host's own view of ``/opt/ml`` is changed.

    Raises:
        CannotFail: the host has no mount namespace of its own, or we may not change it.
    """
    own = _namespace(os.getpid())
    inside = next((stat.pid for stat in descendants(root) if _namespace(stat.pid) not in ("", own)), None)
    if inside is None:
        raise CannotFail("the host shares this machine's file systems: fill-disk needs root, or --backend docker")
    words = ["nsenter", "--target", str(inside), "--mount", "sh", "-c", _FILL, "sh", *_FILLED]
    try:
        done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise CannotFail(f"nsenter: {error.strerror}") from None
    if done.returncode:
        raise CannotFail(f"the host's file systems can't be changed: {done.stderr.strip()[-300:]}")


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return ""
