"""Files of checkpoints: how they are written whole and read safely, which is the newest, and which may go."""

from __future__ import annotations

import argparse
import collections
import contextlib
import glob
import os
import pathlib
import pickle
import shutil
import tempfile
import types
from typing import Any, Callable, Iterator

import torch

from ..backend.exceptions import SMPError

# `torch.load` with `weights_only=True` takes tensors, Python's own values and containers. Some kinds of harmless
# values that scripts put beside them are allowed as well; the script names others by
# `torch.serialization.add_safe_globals`.
PLAIN = (argparse.Namespace, types.SimpleNamespace, pathlib.PosixPath, pathlib.PurePosixPath, collections.deque)
"""Classes of the standard library whose objects hold values and do nothing when they are made."""


def read_safely(path: str, otherwise: str = "") -> Any:
    """The object in a file.
    ``otherwise``: what else the script may do about a file with other objects, if it trusts it."""
    try:
        with torch.serialization.safe_globals([*PLAIN, *_numpys()]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        names = ", ".join(_others(path)) or str(error).partition("\n")[0]
        raise SMPCheckpointError(
            f"{path} has more than tensors and plain values: {names}. Loading such objects may run code that "
            "somebody put there. If you trust the file, allow them by torch.serialization.add_safe_globals([…]) first"
            f"{otherwise}"
        ) from None


def _others(path: str) -> list[str]:
    """The names of what isn't allowed, where the file says them."""
    try:
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except Exception:  # of an older format, or no file of torch's at all: the error has its words
        return []


def _numpys() -> list[Any]:
    """What numpy's numbers and arrays are made by: scripts keep learning rates and states of generators in them."""
    try:
        import numpy
    except ImportError:
        return []
    array, number = numpy.zeros(1), numpy.float64(0)
    makers = [array.__reduce__()[0], number.__reduce__()[0]]
    kinds = {type(numpy.dtype(kind)) for kind in "?bBhHiIlLqQefdFD"}
    return [numpy.ndarray, numpy.dtype, *makers, *kinds]


@contextlib.contextmanager
def whole(path: str) -> Iterator[str]:
    """A file to write, which then takes the place of ``path``; its folder is made."""
    folder, name = os.path.split(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    own = tempfile.mkdtemp(prefix=f".{name}.", dir=folder)
    try:
        temporary = os.path.join(own, name)  # torch notes the name
        yield temporary
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(own, name))
        os.rmdir(own)


def write_text(path: str, text: str) -> None:
    """Raises OSError if it can't be written."""
    with whole(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


# Every rank writes into a hidden folder beside the files' places. When the last one is there the folder gets another
# name, and from that moment on its files count: whoever reads one before it has been moved finds it there.
NEW, SAVED = ".new", ".saved"
"""How the folder's name ends, while files are written and once they count."""


class Staging:
    """The files of one checkpoint.

    ``folder``: where they belong. ``label``: whose files they are, where the folder has those of several checkpoints.
    """

    def __init__(self, folder: str, label: str = "") -> None:
        self._folder = folder
        name = f".{label}" if label else ""
        self._new, self._saved = (os.path.join(folder, f"{name}{suffix}") for suffix in (NEW, SAVED))

    def found(self, path: str) -> str:
        """Where the file that belongs to ``path`` is now; ``path`` itself where there is none."""
        saved = os.path.join(self._saved, os.path.basename(path))
        return saved if os.path.exists(saved) else path

    def begun(self) -> bool:
        """Whether a job that died has left something."""
        return os.path.isdir(self._new) or os.path.isdir(self._saved)

    def clear(self) -> None:
        """Ends what a job that died has begun: files that count are moved, others removed. Several ranks may do it."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._saved):
                with contextlib.suppress(FileNotFoundError):
                    self._move(name)
        self.remove()

    def remove(self) -> None:
        """Removes what isn't in its place."""
        for folder in (self._new, self._saved):
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def writing(self, meet: Callable[[], None]) -> Iterator[Callable[[str], str]]:
        """Gives a function that says where to write the file of a path; at the end all are in their places.
        ``meet``: returns when all ranks that write have come there."""
        names: list[str] = []

        def stage(path: str) -> str:
            os.makedirs(self._new, exist_ok=True)
            names.append(os.path.basename(path))
            return os.path.join(self._new, names[-1])

        self.clear()
        meet()
        try:
            yield stage
        except BaseException:
            for name in names:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._new, name))
            with contextlib.suppress(OSError):
                os.rmdir(self._new)  # the last one
            raise
        meet()
        with contextlib.suppress(FileNotFoundError):  # another rank was first
            os.rename(self._new, self._saved)
        for name in names:
            self._move(name)
        meet()
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(self._saved)

    def _move(self, name: str) -> None:
        os.replace(os.path.join(self._saved, name), os.path.join(self._folder, name))


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
    """The tag of the last checkpoint; of the last partial one where ``partial`` and the last of all is a full one."""
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
