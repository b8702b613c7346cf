"""Saves state dicts of models in shards."""

from __future__ import annotations

import atexit
import os
from typing import Any, Mapping

from torch.distributed.checkpoint import state_dict_saver as dcp

from .places import Place, finish, rank_in

_saving: list[tuple[Any, Place | None]] = []
"""Those that were begun: torch's future, and where it goes in the end, on the rank that puts it there."""
WITHOUT_EFFECT = frozenset(
    {"coordinator_rank", "queue", "force_check_all_plans", "wait_error", "sharded_strategy", "s3_region", "replicate"}
)
"""What AWS's library takes for its own writers and readers."""


def only_known(what: str, given: Mapping[str, Any]) -> None:
    """Raises TypeError for an argument that neither this library nor AWS's has; None is no value."""
    unknown = sorted(name for name, value in given.items() if name not in WITHOUT_EFFECT and value is not None)
    if unknown:
        raise TypeError(f"{what}: {', '.join(unknown)}: there is no such argument; leave it out")


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: Any = None,
    planner: Any = None,
    process_group: Any = None,
    **more: Any,
) -> None:
    """``torch.distributed.checkpoint.save``. What AWS's library adds about its own writers is taken without effect.

    A job that dies meanwhile leaves the checkpoint that was there before, whole.

    Raises:
        SMPUnsupportedError: ``checkpoint_id`` is on S3, without a writer for it.
        TypeError: an argument that there isn't.
    """
    only_known("save", more)
    place, where = _place(checkpoint_id, storage_writer, process_group)
    dcp.save(
        state_dict, checkpoint_id=where, storage_writer=storage_writer, planner=planner, process_group=process_group
    )
    if place is not None:
        finish(place, process_group)


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: Any = None,
    planner: Any = None,
    process_group: Any = None,
    **more: Any,
) -> None:
    """As :func:`save`, but writes while training goes on; ``maybe_finalize_async_calls`` waits for it.

    One after the other: a second call waits for the first.
    """
    only_known("async_save", more)
    place, where = _place(checkpoint_id, storage_writer, process_group)
    future = dcp.async_save(
        state_dict, checkpoint_id=where, storage_writer=storage_writer, planner=planner, process_group=process_group
    )
    _saving.append((future, place if rank_in(process_group) == 0 else None))
    atexit.unregister(maybe_finalize_async_calls)
    atexit.register(maybe_finalize_async_calls)


def maybe_finalize_async_calls(blocking: bool = True, process_group: Any = None) -> list[int]:
    """Ends what has been written, all of it where ``blocking``; the indices of those, from the oldest on.
    Raises Exception: what the writing of one ended with."""
    done = []
    for index, (future, place) in enumerate(list(_saving)):
        if blocking or future.done():
            _saving.remove((future, place))
            future.result()
            if place is not None:
                place.replace()
            done.append(index)
    return done


def _place(checkpoint_id: Any, storage_writer: Any, group: Any) -> tuple[Place | None, Any]:
    """What has to be put in its place in the end, and where to write, when all earlier ones are written."""
    maybe_finalize_async_calls()
    if storage_writer is not None or checkpoint_id is None:
        return None, checkpoint_id
    place = Place(checkpoint_id)
    return place, place.to_write(group)
