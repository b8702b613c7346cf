"""Loads state dicts of models in shards."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader as dcp

from . import state_dict_saver
from .places import Place, unfinished


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: Any = None,
    planner: Any = None,
    process_group: Any = None,
    check_keys_matched: bool = True,
    **more: Any,
) -> None:
    """``torch.distributed.checkpoint.load``, into the tensors of ``state_dict``.

    Raises:
        TypeError: an argument that there isn't.
        ValueError: with ``check_keys_matched`` ranks have different keys.
        ValueError: a job died before the checkpoint was whole.
        SMPUnsupportedError: ``checkpoint_id`` is on S3, without a reader for it.
    """
    state_dict_saver.only_known("load", more)
    state_dict_saver.maybe_finalize_async_calls()
    if check_keys_matched and dist.is_initialized():
        own = sorted(state_dict)
        everyones: list[Any] = [None] * dist.get_world_size(process_group)
        dist.all_gather_object(everyones, own, group=process_group)
        other = next((rank for rank, keys in enumerate(everyones) if keys != own), None)
        if other is not None:
            different = sorted(set(own) ^ set(everyones[other]))
            raise ValueError(f"state_dict has other keys on rank {other} of the group than here: {different[:3]}")
    place = checkpoint_id
    if storage_reader is None and checkpoint_id is not None:
        place = Place(checkpoint_id).to_read()
        if unfinished(place):
            raise ValueError(f"{place} has parts of a checkpoint that wasn't written to its end: load an older one")
    dcp.load(
        state_dict, checkpoint_id=place, storage_reader=storage_reader, planner=planner, process_group=process_group
    )
