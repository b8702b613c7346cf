"""The configuration, and the ranks: each has the whole model, so all are replicas of each other."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Mapping, NamedTuple

from ...shared.parameters import VERSION_1, ParameterError
from ...shared.rank_environment import Place, place
from ...shared.sources import Given, read
from ..backend.exceptions import SMPConfigError, SMPNotInitializedError, SMPUnsupportedError

__all__ = [
    "barrier", "dp_rank", "dp_size", "get_dp_group", "get_mp_group", "get_pp_group", "init", "is_initialized",
    "local_rank", "local_size", "mp_rank", "mp_size", "num_microbatches", "pp_rank", "pp_size", "rank", "rdp_rank",
    "rdp_size", "size", "tp_rank", "tp_size",
]  # fmt: skip
DEGREES = ("pipeline_parallel_degree", "tensor_parallel_degree")
_INSTEAD = (
    "set it to 1; to divide a model over ranks, use smdistributed.modelparallel.torch with PyTorch, or tf.distribute's "
    "ParameterServerStrategy for large tables"
)


class World(NamedTuple):
    """This rank's place, and how many microbatches a batch is divided into."""

    place: Place
    microbatches: int


_world: World | None = None


def init(config: Mapping[str, Any] | None = None) -> None:
    """Reads the job's parameters, or else those of ``config``. Called again it does nothing.

    Raises:
        SMPUnsupportedError: the model is to be divided.
        SMPConfigError: a parameter is wrong, or can't be read.
    """
    global _world
    if _world is not None:
        return
    own = place(os.environ)
    try:
        found = read(os.environ, sys.argv, config, VERSION_1)
    except ParameterError as error:
        raise SMPConfigError(str(error)) from None
    one = Given(1, "the default")
    for name in DEGREES:
        degree = found.get(name, one)
        if degree.value != 1:
            raise SMPUnsupportedError(
                f"{name}={degree.value!r} ({degree.where}): musterpoint's smdistributed.modelparallel.tensorflow "
                f"doesn't divide a model; {_INSTEAD}"
            )
    _world = World(own, found.get("microbatches", one).value)


def world() -> World:
    """What :func:`init` found."""
    if _world is None:
        raise SMPNotInitializedError("smdistributed.modelparallel.tensorflow: call smp.init() first")
    return _world


def is_initialized() -> bool:
    return _world is not None


def num_microbatches() -> int:
    return world().microbatches


def _of_place(name: str) -> int:
    return int(getattr(world().place, name))


rank, size = functools.partial(_of_place, "rank"), functools.partial(_of_place, "size")
local_rank, local_size = functools.partial(_of_place, "local_rank"), functools.partial(_of_place, "local_size")
dp_rank, dp_size = rank, size
rdp_rank, rdp_size = rank, size


def mp_rank() -> int:
    world()
    return 0


def mp_size() -> int:
    world()
    return 1


pp_rank = tp_rank = mp_rank
pp_size = tp_size = mp_size


def get_mp_group() -> list[int]:
    return [rank()]


get_pp_group = get_mp_group


def get_dp_group() -> list[int]:
    return list(range(size()))


def barrier(*_group: Any) -> None:
    """Returns when every rank is here; the ranks meet as those of ``smdistributed.dataparallel.tensorflow`` do.
    Raises RuntimeError: there are several ranks, and that package's ``init()`` wasn't called."""
    if size() == 1:
        return
    import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]

    from ...dataparallel.tensorflow import oob_allreduce

    oob_allreduce(tf.zeros(()))
