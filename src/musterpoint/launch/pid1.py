"""Whether a stop of the container reaches us at all: PID 1 gets it, and a shell there passes nothing on."""

from __future__ import annotations

import os

_KNOWN_TO_IGNORE = ("sh", "bash", "dash", "ash", "zsh", "ksh", "busybox", "python", "perl", "node")
"""Programs that wait for a child without a handler of their own; any other is given the benefit of the doubt."""

_TERM = 1 << (15 - 1)


def pid1_note(proc_root: str = "/proc", own_pid: int | None = None) -> str | None:
    """One sentence where PID 1 is a shell (or a script) that won't pass SIGTERM on, else None.

    Read from ``status`` in ``proc_root``: the kernel drops signals to PID 1 that it has no handler for.
    """
    if (os.getpid() if own_pid is None else own_pid) == 1:
        return None
    try:
        with open(os.path.join(proc_root, "1", "status"), encoding="utf-8", errors="replace") as file:
            fields = dict(line.split(":", 1) for line in file.read().splitlines() if ":" in line)
    except OSError:
        return None
    name = fields.get("Name", "").strip()
    handled = _mask(fields, "SigCgt") | _mask(fields, "SigBlk")
    if handled & _TERM or name.rstrip("0123456789.") not in _KNOWN_TO_IGNORE:
        return None
    return (
        f"PID 1 of this container is {name}, which won't pass SIGTERM on: a stop will kill the job without a "
        "checkpoint; start the entry point with exec, or run the container with --init"
    )


def _mask(fields: dict[str, str], name: str) -> int:
    try:
        return int(fields.get(name, "0"), 16)
    except ValueError:
        return 0
