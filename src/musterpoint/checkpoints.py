"""For training programs that want more of ``--checkpoints`` than it does by itself. The standard library only.

A program that is started without ``--checkpoints`` may call all of it: nothing is kept then, and no stop has a time.
"""

from __future__ import annotations

import os
import time

from musterpoint.base.below import notes_of
from musterpoint.embedded.programs.checkpoint_kinds import newest_of, units_of
from musterpoint.embedded.programs.checkpoint_look import World, look_at

DIRECTORY = "SM_CHECKPOINT_DIR"
_SAID = os.path.join("said", "paths")
_RESTORED = os.path.join("said", "restored")
_STOP_FILE = ".muster-stop"

__all__ = ["deadline", "latest", "saved"]


def _directory() -> str:
    return os.environ.get(DIRECTORY, "")


def _world() -> World:
    number = os.environ.get("RANK", "0")
    rank = int(number) if number.isdecimal() else 0
    local = int(os.environ.get("LOCAL_RANK", "0") or 0)
    own = int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1)
    return World(int(os.environ.get("WORLD_SIZE", "1") or 1), rank - local, own)


def latest(directory: str = "") -> str | None:
    """The path of the newest whole checkpoint in ``directory`` (empty: ``SM_CHECKPOINT_DIR``); None: there is none.

    Whole is what its kind says: see docs/data.md. For files without a mark this is the directory itself.
    """
    directory = directory or _directory()
    if not directory or not os.path.isdir(directory):
        return None
    look = look_at(os.path.realpath(directory), _world(), said=_said(directory))
    found = newest_of(units_of(look))
    if not found:
        return None
    newest = max(found, key=lambda unit: max((facts.changed for facts in unit.files.values()), default=0))
    return os.path.normpath(os.path.join(directory, newest.name.removesuffix("/*.ckpt")))


def _said(directory: str) -> frozenset[str]:
    """What this program said is whole, and what was restored before it."""
    found: set[str] = set()
    for path in (_SAID, _RESTORED):
        try:
            with open(os.path.join(notes_of(directory), path), encoding="utf-8", errors="surrogateescape") as file:
                found.update(os.path.relpath(line.rstrip("\n"), directory) for line in file)
        except OSError:
            continue
    return frozenset(found)


def saved(path: str | os.PathLike[str]) -> None:
    """Says that ``path``, a file or folder in ``SM_CHECKPOINT_DIR``, is whole on this host, and may be kept.

    Call it on each host that has a part, when nothing below ``path`` changes any more. A new checkpoint needs a new
    name.

    Raises:
        FileNotFoundError: there is no such file.
    """
    os.stat(path)
    directory = _directory()
    said = os.path.join(notes_of(directory), _SAID) if directory else ""
    if not said or not os.path.isdir(os.path.dirname(said)):
        return
    fd = os.open(said, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(fd, os.fsencode(os.path.abspath(path)) + b"\n")
    finally:
        os.close(fd)


def deadline() -> float | None:
    """Seconds until this rank is killed, where the job is being stopped; None: it isn't."""
    try:
        with open(os.path.join(_directory(), _STOP_FILE), encoding="utf-8") as file:
            at = float(file.read())
    except (OSError, ValueError):
        return None
    return max(0.0, at - time.clock_gettime(time.CLOCK_MONOTONIC))
