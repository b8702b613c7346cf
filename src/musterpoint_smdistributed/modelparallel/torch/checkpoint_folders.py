"""The folders of partial checkpoints: which is the newest, and which are old enough to go."""

from __future__ import annotations

import contextlib
import glob
import os

from ..backend.exceptions import SMPError
from .staging import SAVED, Staging

NEWEST = "newest"
"""The file that names the last checkpoint."""
SUFFIX = "_partial"
_MODEL = "model_*.pt"
_OTHERS = ("optimizer_*.pt", "fp16_states_*.pt", "user_content.pt")


class SMPCheckpointError(SMPError, ValueError):
    """A checkpoint is missing, incomplete, or of another division of the model."""


def name_newest(folder: str, tag: str, partial: bool) -> None:
    """Notes which checkpoint is the last one. By one rank."""
    temporary = os.path.join(folder, f".{NEWEST}.new")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(f"{tag}{SUFFIX if partial else ''}\n")
    os.replace(temporary, os.path.join(folder, NEWEST))


def newest(folder: str, partial: bool) -> str:
    """The tag of the last checkpoint; of the last partial one where ``partial`` and the last of all is a full one.

    Raises:
        SMPCheckpointError: there is none of that kind.
    """
    try:
        with open(os.path.join(folder, NEWEST), encoding="utf-8") as file:
            name = file.read().strip()
    except FileNotFoundError:
        raise SMPCheckpointError(
            f"{folder} has no file {NEWEST!r}, so no checkpoint, unless you pass its tag"
        ) from None
    if not partial and not name.endswith(SUFFIX):
        return name
    if partial and not name.endswith(SUFFIX):  # the last one was a whole model
        others = _whole(folder)
        name = os.path.basename(others[-1]) if others else ""
    if not partial or not name:
        kind, other = ("partial", "False") if partial else ("full", "True")
        raise SMPCheckpointError(f"{folder} names no {kind} checkpoint: pass its tag, or partial={other}")
    return name[: -len(SUFFIX)]


def remove_old(folder: str, tag: str, kept: int) -> None:
    """Removes the files of all checkpoints but that of ``tag`` and the ``kept - 1`` newest others.

    What jobs that died began to write goes as well; what somebody else put there stays.
    """
    own = os.path.join(folder, f"{tag}{SUFFIX}")
    others = [each for each in _whole(folder) if each != own]
    stay = {own, *others[max(len(others) - kept + 1, 0) :]}
    for old in _folders(folder):
        files = _files(old, _MODEL) + [name for pattern in _OTHERS for name in _files(old, pattern)]
        if old in stay or not (files or Staging(old).begun()):
            continue
        for name in files:  # the model first: without it nobody resumes with what is left
            os.unlink(name)
        Staging(old).remove()
        with contextlib.suppress(OSError):
            os.rmdir(old)


def _folders(folder: str) -> list[str]:
    return glob.glob(os.path.join(glob.escape(folder), f"*{SUFFIX}"))


def _whole(folder: str) -> list[str]:
    """Those with files of a model that count, the newest last."""
    ages = {each: max(map(os.path.getmtime, _files(each, _MODEL)), default=None) for each in _folders(folder)}
    return sorted((each for each, age in ages.items() if age is not None), key=lambda each: ages[each] or 0)


def _files(folder: str, pattern: str) -> list[str]:
    places = (folder, os.path.join(folder, SAVED))
    return [name for place in places for name in glob.glob(os.path.join(glob.escape(place), pattern))]
