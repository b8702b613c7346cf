"""GPUs that no process of the job has opened some time after its start: they are paid for, and compute nothing.

Seen by the device files that processes below us have open (``/proc/<pid>/fd``), in any container and without NVML,
whose process list is empty in most. A program that opens every GPU and uses one isn't found out.
"""

from __future__ import annotations

import os
from typing import Callable, Collection, Mapping

from musterpoint.base.loop import Loop
from musterpoint.core.fabric.gpus import seen_gpus, survey_gpus
from musterpoint.core.processes import tree

AFTER = 120.0
"""Seconds after the start: programs import, load data and only then touch a GPU."""


def look_later(loop: Loop, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Looks :data:`AFTER` seconds from now, and says which of the GPUs that the program may use are idle."""
    loop.call_later(AFTER, lambda: warn_of_idle([gpu.number for gpu in seen_gpus(survey_gpus(), environ)], say))


def warn_of_idle(gpus: Collection[int], say: Callable[[str], None], root: str = "/", pid: int = 0) -> None:
    """Says which of ``gpus`` (by the numbers of their nodes in /dev) no process below ``pid`` (ours) has opened."""
    text = idle(gpus, root, pid or os.getpid())
    if text:
        say(text)


def idle(gpus: Collection[int], root: str, pid: int) -> str:
    """The warning; empty where all of ``gpus`` are open, or where no process is left that could tell."""
    proc = os.path.join(root, "proc")
    processes = tree.descendants(pid, proc)
    if not processes or not gpus:
        return ""
    opened: set[str] = set()
    for process in processes:
        files = _opened(f"{proc}/{process.pid}/fd")
        if files is None:  # of another user: it may have opened any
            return ""
        opened |= files
    unused = [str(gpu) for gpu in sorted(gpus) if f"/dev/nvidia{gpu}" not in opened]
    if not unused:
        return ""
    which = f"GPU{'s' if len(unused) > 1 else ''} {', '.join(unused)}"
    all_of_them = "none of its GPUs is in use" if len(unused) == len(gpus) else f"{which} of {len(gpus)} not in use"
    return (
        f"warning: {AFTER:g} s after the start, {all_of_them}: no process of this host has opened "
        f"{'it' if len(unused) == 1 else 'them'}. Does the program compute on a CPU, or are there too few slots?"
    )


def _opened(folder: str) -> set[str] | None:
    """The files that a process has open; empty where it has ended, None where it may not be asked."""
    found: set[str] = set()
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return found
    except OSError:
        return None
    for name in names:
        try:
            found.add(os.readlink(f"{folder}/{name}"))
        except OSError:
            continue
    return found
