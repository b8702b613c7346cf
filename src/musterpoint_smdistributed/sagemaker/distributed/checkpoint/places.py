"""Where checkpoints go, and how a new one takes the place of an old one.

torch writes into the folder itself, and its index (``.metadata``) last. Over an older checkpoint that would mix the two
where a job dies meanwhile, so the new one is written into a hidden folder beside it, which counts from the moment on at
which it is called ``.NAME.saved``.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

import torch.distributed as dist

from ...errors import SMPUnsupportedError

INDEX = ".metadata"
DATA = ".distcp"
STAGED = (".new", ".saved")
"""How the names of hidden folders end."""


def unfinished(folder: str | os.PathLike[str]) -> bool:
    """Whether torch began to write a checkpoint there and didn't come to the end."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return INDEX not in names and any(name.endswith(DATA) for name in names)


class Place:
    """The folder of one checkpoint. Raises SMPUnsupportedError: it is no path of a file system."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if str(folder).startswith("s3://"):
            raise SMPUnsupportedError(
                f"checkpoint_id={folder}: musterpoint's torch.sagemaker writes to file systems; save to a path "
                "(/opt/ml/checkpoints, which SageMaker uploads), or pass a storage_writer or storage_reader for S3"
            )
        self._folder = os.path.abspath(folder)
        above, name = os.path.split(self._folder)
        self._new, self._saved = (os.path.join(above, f".{name}{end}") for end in STAGED)

    def to_read(self) -> str:
        """Where the checkpoint is now."""
        return self._saved if os.path.isdir(self._saved) else self._folder

    def to_write(self, group: Any) -> str:
        """Where to write: the folder itself, or another one if there is a checkpoint. All ranks of ``group`` ask."""
        answer: list[Any] = [None]
        if rank_in(group) == 0:
            self.replace(written=False)
            shutil.rmtree(self._new, ignore_errors=True)
            taken = os.path.exists(os.path.join(self._folder, INDEX))
            answer = [self._new if taken else self._folder]
        if dist.is_initialized():
            dist.broadcast_object_list(answer, group_src=0, group=group)
        return str(answer[0])

    def replace(self, written: bool = True) -> None:
        """Puts what was ``written`` in the place of the old checkpoint; goes on where a job died amid that."""
        if written and os.path.isdir(self._new):
            os.rename(self._new, self._saved)
        if not os.path.isdir(self._saved):
            return
        for name in os.listdir(self._folder) if os.path.isdir(self._folder) else []:
            if name != INDEX and not name.endswith(DATA):  # of the script's own
                os.rename(os.path.join(self._folder, name), os.path.join(self._saved, name))
        shutil.rmtree(self._folder, ignore_errors=True)
        os.rename(self._saved, self._folder)


def finish(place: Place, group: Any) -> None:
    """Ends a save into ``place``: by the first rank, and on hosts with a file system of their own by their first one.

    All ranks call it, and return when the new checkpoint is there.
    """
    if rank_in(group) == 0:
        place.replace()
    if dist.is_initialized():
        dist.barrier(group)
        if rank_in(group) and os.environ.get("LOCAL_RANK") == "0":
            place.replace()


def rank_in(group: Any) -> int:
    """This rank in ``group``; 0 where there are no others."""
    return dist.get_rank(group) if dist.is_initialized() else 0
