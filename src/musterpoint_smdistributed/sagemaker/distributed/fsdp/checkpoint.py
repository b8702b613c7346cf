"""Saves and loads a model in shards with its optimizer and scheduler, as AWS's training scripts of version 2 do.

Source of the signatures: the calls in AWS's public scripts (aws/amazon-sagemaker-examples, model_parallel_v2,
checkpoints.py). Files are those of ``torch.distributed.checkpoint``.
"""

from __future__ import annotations

import os
from typing import Any, Mapping

import torch
from torch.distributed.checkpoint import state_dict as dcp
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

from ...errors import SMPUnsupportedError
from ...logger import get_logger
from ...state import state
from ..checkpoint import state_dict_loader, state_dict_saver

Group = tuple[Any, int, bool]
"""The process group that has one copy of the model, its first rank, and whether this rank is of the first copy."""


def save_model_checkpoint(
    model: FullyShardedDataParallel,
    state_dict_type: StateDictType,
    save_dir: str | os.PathLike[str],
    sharding_strategy: Any,
    checkpointing_pg_metadata: Group,
    log: bool = True,
    optimizer: Any = None,
    scheduler: Any = None,
    extra_exports: Mapping[str, Any] | None = None,
) -> None:
    """Writes one copy of the model into ``save_dir``, where an older one stays until it is whole; every rank calls it.
    Raises SMPUnsupportedError: another type of state dict than the sharded one, or a place on S3."""
    _check(state_dict_type)
    group, writes, place = _writers(checkpointing_pg_metadata, save_dir)
    values = {**_values(model, optimizer, scheduler), **(extra_exports or {})}
    if writes:
        state_dict_saver.save(values, checkpoint_id=place, process_group=group)
    torch.distributed.barrier()
    if log:
        get_logger().info("saved %s", place)


def load_model_checkpoint(
    model: FullyShardedDataParallel,
    state_dict_type: StateDictType,
    checkpoint_dir: str | os.PathLike[str],
    sharding_strategy: Any,
    checkpointing_pg_metadata: Group,
    log: bool = True,
    optimizer: Any = None,
    scheduler: Any = None,
    extra_imports: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Loads what :func:`save_model_checkpoint` has written, at any number of ranks; returns ``extra_imports`` with the
    values that were saved.

    Raises:
        SMPUnsupportedError: another type of state dict than the sharded one, or a place on S3.
    """
    _check(state_dict_type)
    group, _, place = _writers(checkpointing_pg_metadata, checkpoint_dir)
    values = {**_values(model, optimizer, scheduler), **(extra_imports or {})}
    state_dict_loader.load(values, checkpoint_id=place, process_group=group)
    dcp.set_model_state_dict(model, values["model"])
    if optimizer is not None:
        dcp.set_optimizer_state_dict(model, optimizer, values["optimizer"])
    if scheduler is not None:
        scheduler.load_state_dict(values["scheduler"])
    if log:
        get_logger().info("loaded %s", place)
    return {name: values[name] for name in extra_imports or ()}


def _values(model: FullyShardedDataParallel, optimizer: Any, scheduler: Any) -> dict[str, Any]:
    """What there is to save; an optimizer that hasn't stepped yet gets the state that there is to load."""
    values: dict[str, Any] = {"model": dcp.get_model_state_dict(model)}
    if optimizer is not None:
        values["optimizer"] = dcp.get_optimizer_state_dict(model, optimizer)
    if scheduler is not None:
        values["scheduler"] = scheduler.state_dict()
    return values


def _writers(metadata: Group, place: str | os.PathLike[str]) -> tuple[Any, bool, str | os.PathLike[str]]:
    """The group that writes or reads together, whether this rank writes, and where.

    Ranks that share layers have parts of one tensor, so all of the job write into the first rank's directory.
    """
    if state.world.tensor is None:
        return metadata[0], metadata[2], place
    places = [place]
    torch.distributed.broadcast_object_list(places, 0)
    return None, True, places[0]


def _check(kind: StateDictType) -> None:
    if kind != StateDictType.SHARDED_STATE_DICT:
        raise SMPUnsupportedError(
            f"state_dict_type={kind}: expected StateDictType.SHARDED_STATE_DICT; save a whole model with torch.save "
            "under FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT)"
        )
