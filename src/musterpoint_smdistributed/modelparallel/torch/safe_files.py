"""Reads checkpoints that may be anybody's: what is in them is data, and runs nothing.

``torch.load`` with ``weights_only=True`` takes tensors, Python's own values and containers. Some kinds of harmless
values that scripts put beside them are allowed as well; the script names others by
``torch.serialization.add_safe_globals``.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import pickle
import types
from typing import Any

import torch

from .checkpoint_folders import SMPCheckpointError

PLAIN = (argparse.Namespace, types.SimpleNamespace, pathlib.PosixPath, pathlib.PurePosixPath, collections.deque)
"""Classes of the standard library whose objects hold values and do nothing when they are made."""


def read(path: str, otherwise: str = "") -> Any:
    """The object in a file.

    Args:
        otherwise: what else the script may do about a file with other objects, if it trusts it.

    Raises:
        SMPCheckpointError: it has objects of other kinds, which might run code when they are loaded.
    """
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
