"""A gradient tape, and optimizers, whose gradients are those of all ranks."""

from __future__ import annotations

from typing import Any, Iterable

import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]

from .operations import Compression, Compressor, ReduceOp, reduce_gradients

_ALIGNED = 128


class DistributedGradientTape:
    """``gradtape``, whose :meth:`gradient` gives the average (or …) over all ranks."""

    def __init__(
        self,
        gradtape: Any,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Compressor = Compression.none,
        sparse_as_dense: bool = True,
        op: ReduceOp = ReduceOp.AVERAGE,
    ) -> None:
        _no_devices(device_dense, device_sparse)
        self._tape, self._compression, self._op = gradtape, compression, op

    def __enter__(self) -> DistributedGradientTape:
        self._tape.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._tape.__exit__(*error)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator,unused-ignore]
    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        found = self._tape.gradient(target, sources, *args, **kwargs)
        flat = tf.nest.flatten(found, expand_composites=False)
        reduced = reduce_gradients(flat, self._compression, self._op)
        return tf.nest.pack_sequence_as(found, reduced, expand_composites=False)


def _passed_on(name: str) -> Any:
    """A method of the tape's own."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator,unused-ignore]
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._tape, name)(*args, **kwargs)

    return call


# no __getattr__: AutoGraph of TensorFlow 2.15 would convert it, and fail
for _name in ("watch", "watched_variables", "stop_recording", "reset", "jacobian", "batch_jacobian"):
    setattr(DistributedGradientTape, _name, _passed_on(_name))


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = Compression.none,
    sparse_as_dense: bool = True,
    op: ReduceOp = ReduceOp.AVERAGE,
    bucket_cap_mb: int = 25,
) -> Any:
    """An optimizer like ``optimizer`` that applies the gradients of all ranks.

    Raises:
        ValueError: ``bucket_cap_mb`` isn't what AWS's library takes.
        NotImplementedError: a device is named.
    """
    _no_devices(device_dense, device_sparse)
    bucket = int(bucket_cap_mb * 1024 * 1024)
    if bucket_cap_mb <= 0 or bucket % _ALIGNED:
        raise ValueError(
            f"bucket_cap_mb {bucket_cap_mb}: expected megabytes above 0, in bytes a multiple of {_ALIGNED}"
        )

    def reduce(gradients: Iterable[Any]) -> list[Any]:
        return reduce_gradients(list(gradients), compression, op, bucket)

    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return _of_tensorflow_1(optimizer, name, use_locking, reduce)
    base = type(optimizer)

    class Distributed(base):  # type: ignore[misc,valid-type]
        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator,unused-ignore]
        def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            pairs = list(grads_and_vars)
            reduced = reduce(gradient for gradient, _ in pairs)
            return super().apply_gradients(
                [(gradient, variable) for gradient, (_, variable) in zip(reduced, pairs)], *args, **kwargs
            )

    Distributed.__name__ = Distributed.__qualname__ = base.__name__  # saved models name the class
    return Distributed.from_config(optimizer.get_config())


def _of_tensorflow_1(optimizer: Any, name: str | None, use_locking: bool, reduce: Any) -> Any:
    class Distributed(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
        def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
            pairs = optimizer.compute_gradients(*args, **kwargs)
            return list(zip(reduce(gradient for gradient, _ in pairs), [variable for _, variable in pairs]))

    for method in ("apply_gradients", "get_slot", "get_slot_names", "variables"):
        setattr(Distributed, method, staticmethod(getattr(optimizer, method)))
    return Distributed(use_locking, name or f"Distributed{type(optimizer).__name__}")


def _no_devices(*devices: str) -> None:
    if any(devices):
        raise NotImplementedError(
            "device_dense and device_sparse aren't supported, as in AWS's library: gradients are reduced in place"
        )
