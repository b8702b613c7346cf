"""Saves state dicts of models in shards."""

from __future__ import annotations

import os
from typing import Any

from torch.distributed.checkpoint import state_dict_saver as dcp

from .places import checked

_saving: list[Any] = []
"""Futures of those that were begun, in order."""


def save(
    state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None, storage_writer: Any = None,
    planner: Any = None, process_group: Any = None, **more: Any,
) -> None:  # fmt: skip
    """``torch.distributed.checkpoint.save``. What AWS's library adds about its own writers is taken without effect.

    Raises:
        SMPUnsupportedError: ``checkpoint_id`` is on S3, without a writer for it.
    """
    maybe_finalize_async_calls()
    place = checkpoint_id if storage_writer is not None else checked(checkpoint_id)
    dcp.save(
        state_dict, checkpoint_id=place, storage_writer=storage_writer, planner=planner, process_group=process_group
    )


def async_save(
    state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None, storage_writer: Any = None,
    planner: Any = None, process_group: Any = None, **more: Any,
) -> None:  # fmt: skip
    """As :func:`save`, but writes while training goes on; ``maybe_finalize_async_calls`` waits for it.

    One after the other: a second call waits for the first.
    """
    maybe_finalize_async_calls()
    place = checkpoint_id if storage_writer is not None else checked(checkpoint_id)
    _saving.append(
        dcp.async_save(
            state_dict, checkpoint_id=place, storage_writer=storage_writer, planner=planner,
            process_group=process_group,
        )
    )  # fmt: skip


def maybe_finalize_async_calls(blocking: bool = True, process_group: Any = None) -> list[int]:
    """Ends what has been written, all of it where ``blocking``; the indices of those, from the oldest on.

    Raises:
        Exception: what the writing of one ended with.
    """
    done = []
    for index, future in enumerate(list(_saving)):
        if blocking or future.done():
            _saving.remove(future)
            future.result()
            done.append(index)
    return done
