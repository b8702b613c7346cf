"""The functions of ``sdp``: ranks, reductions and broadcasts."""

from __future__ import annotations

import enum
import functools
from typing import Any, Iterable, Sequence

import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]

from .world import Collectives, Merge, World, make_world

__all__ = [
    "BroadcastGlobalVariablesHook", "Compression", "ReduceOp", "allreduce", "broadcast", "broadcast_global_variables",
    "broadcast_variables", "get_worker_comm", "init", "local_rank", "local_size", "oob_allreduce", "overlap", "rank",
    "shutdown", "size",
]  # fmt: skip
_BUCKET = 25 << 20
"""Bytes of gradients that are sent together."""


class ReduceOp(enum.Enum):
    """How values of the ranks are put together."""

    AVERAGE = "average"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


class Compressor:
    """Makes a tensor smaller for the way; ``None`` leaves it as it is."""

    def __init__(self, dtype: Any = None) -> None:
        self._dtype = dtype

    def compress(self, tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and what :meth:`decompress` needs."""
        if self._dtype is None or not tensor.dtype.is_floating or tensor.dtype.size <= self._dtype.size:
            return tensor, None
        return tf.cast(tensor, self._dtype), tensor.dtype

    def decompress(self, tensor: Any, was: Any) -> Any:
        return tensor if was is None else tf.cast(tensor, was)


class Compression:
    """``none``, or ``fp16``: floating-point values travel as 16 bits."""

    none = Compressor()
    fp16 = Compressor(tf.float16)


_world: World | None = None


def init() -> None:
    """Meets the other ranks. To be called once, before TensorFlow computes anything.
    Raises RuntimeError: it was called before."""
    global _world
    if _world is not None:
        raise RuntimeError("init() called more than once. smdistributed.dataparallel is already initialized.")
    _world = make_world()


def world() -> World:
    """The world that :func:`init` made."""
    if _world is None:
        raise RuntimeError("smdistributed.dataparallel.tensorflow: call init() first")
    return _world


def shutdown() -> None:
    """Ends the world; :func:`init` may be called again only where it is Horovod's."""
    global _world
    if _world is not None:
        _world.close()
    _world = None


def _of_world(name: str) -> int:
    return int(getattr(world(), name))


rank, size = functools.partial(_of_world, "rank"), functools.partial(_of_world, "size")
local_rank, local_size = functools.partial(_of_world, "local_rank"), functools.partial(_of_world, "local_size")


def get_worker_comm() -> Any:
    """mpi4py's communicator of all ranks, under mpirun."""
    from mpi4py import MPI  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return MPI.COMM_WORLD


def allreduce(
    tensor: Any,
    param_index: int,
    num_params: int,
    compression: Compressor = Compression.none,
    op: ReduceOp = ReduceOp.AVERAGE,
) -> Any:
    """The average (or …) of the gradient of parameter ``param_index`` of ``num_params`` over all ranks."""
    return _reduced(tensor, f"gradient {param_index} of {num_params}", compression, op)


def oob_allreduce(tensor: Any, compression: Compressor = Compression.none, op: ReduceOp = ReduceOp.AVERAGE) -> Any:
    """The average (or …) over all ranks of a tensor that is no gradient."""
    return _reduced(tensor, "value", compression, op)


def reduce_gradients(
    gradients: Sequence[Any], compression: Compressor, op: ReduceOp, bucket: int = _BUCKET
) -> list[Any]:
    """Gradients over all ranks, None where there is none. Those of one type travel together, ``bucket`` bytes at once.

    A sparse gradient becomes a dense one.
    """
    dense: list[Any] = [None if each is None else tf.convert_to_tensor(each) for each in gradients]
    if size() == 1 and op is not ReduceOp.SUM:
        return dense
    for number, group in enumerate(_buckets(dense, bucket)):
        flat = tf.concat([tf.reshape(dense[at], [-1]) for at in group], 0)
        flat = _reduced(flat, f"gradients {number}", compression, op)
        parts = tf.split(flat, [int(tf.TensorShape(dense[at].shape).num_elements()) for at in group])
        for at, part in zip(group, parts):
            dense[at] = tf.reshape(part, dense[at].shape)
    return dense


def _buckets(tensors: Sequence[Any], most: int) -> list[list[int]]:
    """Places in ``tensors`` that travel together: of one type, and at most so many bytes unless it is one."""
    found: list[list[int]] = []
    for dtype in dict.fromkeys(each.dtype for each in tensors if each is not None):
        taken = most + 1
        for at, each in enumerate(tensors):
            if each is None or each.dtype != dtype:
                continue
            needs = int(each.shape.num_elements()) * dtype.size
            if taken + needs > most:
                found.append([])
                taken = 0
            found[-1].append(at)
            taken += needs
    return found


def _reduced(tensor: Any, label: str, compression: Compressor, op: ReduceOp) -> Any:
    ranks = world()
    op = ReduceOp(op)
    merge: Merge = "sum" if op is ReduceOp.AVERAGE else op.value
    small, was = compression.compress(tf.convert_to_tensor(tensor))
    found = compression.decompress(ranks.reduce(small, merge, label), was)
    if op is not ReduceOp.AVERAGE:
        return found
    divisor = tf.cast(ranks.size, found.dtype)
    return found / divisor if found.dtype.is_floating or found.dtype.is_complex else found // divisor


def broadcast(tensor: Any, root_rank: int) -> Any:
    """``tensor`` of rank ``root_rank``."""
    return _sent(tensor, root_rank, "value")


def broadcast_variables(variables: Iterable[Any], root_rank: int) -> None:
    """Gives every rank the values that ``variables`` have on ``root_rank``."""
    for number, variable in enumerate(variables):
        variable.assign(_sent(variable, root_rank, f"variable {number}"))


def broadcast_global_variables(root_rank: int) -> None:
    """As :func:`broadcast_variables`, for those that TensorFlow 1 knows by itself; there are none in eager mode."""
    broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def _sent(tensor: Any, root: int, label: str) -> Any:
    ranks = world()
    if not 0 <= root < ranks.size:
        raise ValueError(f"root_rank {root}: expected a rank from 0 to {ranks.size - 1}")
    value = tf.convert_to_tensor(tensor)
    plain = value.dtype if value.dtype in (tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16) else None
    found = ranks.broadcast(value if plain is None else tf.cast(value, tf.int32), root, label)
    return found if plain is None else tf.cast(found, plain)


def overlap(tensor: Any) -> Any:
    """``tensor`` itself: a hint for XLA in AWS's library."""
    return tensor


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Gives every rank the variables of ``root_rank`` when a session of TensorFlow 1 begins; needs Horovod.
    Raises NotImplementedError: Horovod isn't installed: TensorFlow's own operations have no sessions here."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        if isinstance(world(), Collectives):
            raise NotImplementedError(
                "BroadcastGlobalVariablesHook: sessions of TensorFlow 1 need Horovod, which this Python doesn't have; "
                "install it, or call broadcast_variables() in TensorFlow 2"
            )
        self._root, self._operation = root_rank, None

    def begin(self) -> None:
        variables = tf.compat.v1.global_variables()
        assigned = [variable.assign(broadcast(variable, self._root)) for variable in variables]
        self._operation = tf.group(*assigned)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._operation)
