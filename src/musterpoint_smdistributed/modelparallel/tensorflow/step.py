"""``@smp.step``: a function that sees a batch in microbatches, and what it returns."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Iterable, Mapping, Sequence

import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]

from ..backend.exceptions import SMPConfigError
from .world import num_microbatches


class StepOutput:
    """What each microbatch returned in one place of the result; ``outputs`` has them in order."""

    def __init__(self, outputs: Sequence[Any]) -> None:
        self.outputs = list(outputs)

    def _tensors(self) -> list[Any]:
        return [tf.convert_to_tensor(each) for each in self.outputs]

    def reduce_sum(self) -> Any:
        return tf.add_n(self._tensors())

    def reduce_mean(self) -> Any:
        total = self.reduce_sum()
        return total / tf.cast(len(self.outputs), total.dtype)

    def accumulate(self, method: str = "variable", var: Any = None) -> Any:
        """The mean, added to the variable ``var`` where one is given; AWS's methods differ in the memory they take."""
        if method not in ("variable", "add_n", "accumulate_n"):
            raise SMPConfigError(f"accumulate(method={method!r}): expected variable, add_n or accumulate_n")
        mean = self.reduce_mean()
        return mean if var is None else var.assign_add(mean)

    def merge(self) -> Any:
        """All microbatches as one batch."""
        tensors = self._tensors()
        return tf.stack(tensors) if tensors[0].shape.rank == 0 else tf.concat(tensors, 0)

    concat = merge

    def stack(self) -> Any:
        return tf.stack(self._tensors())


def step(
    function: Callable[..., Any] | None = None,
    *,
    non_split_inputs: Iterable[str] | None = None,
    input_split_axes: Mapping[str, int] | None = None,
    **options: Any,
) -> Any:
    """Makes ``function`` one that is called with each microbatch of its tensors in turn, inside a ``tf.function``.

    ``non_split_inputs`` are arguments that every microbatch gets whole, ``input_split_axes`` the axes of those whose
    batch isn't along axis 0; ``options`` are tf.function's. Each tensor of the result becomes a :class:`StepOutput`.
    """
    if function is None:
        return functools.partial(step, non_split_inputs=non_split_inputs, input_split_axes=input_split_axes, **options)
    whole, axes = frozenset(non_split_inputs or ()), dict(input_split_axes or {})
    signature = inspect.signature(function)

    def run(*args: Any, **kwargs: Any) -> list[Any]:
        bound = signature.bind(*args, **kwargs)
        count, found = num_microbatches(), []
        for number in range(count):
            for name, value in signature.bind(*args, **kwargs).arguments.items():
                if name not in whole:
                    piece = functools.partial(_piece, name=name, axis=axes.get(name, 0), number=number, count=count)
                    bound.arguments[name] = tf.nest.map_structure(piece, value)
            found.append(function(*bound.args, **bound.kwargs))
        return found

    compiled = tf.function(run, **options)

    @functools.wraps(function)
    def stepped(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name not in whole:
                check = functools.partial(_check, name, axes.get(name, 0), num_microbatches())
                tf.nest.map_structure(check, value)
        outputs = compiled(*args, **kwargs)
        merged = lambda *leaves: None if leaves[0] is None else StepOutput(leaves)  # noqa: E731
        return tf.nest.map_structure(merged, *outputs)

    return stepped


def _check(name: str, axis: int, count: int, value: Any) -> None:
    """Checks a batch whose length is known, before a function is traced: errors in there come out as others."""
    shape = getattr(value, "shape", None)
    if shape is None or isinstance(value, tf.Variable):
        return
    length = tf.TensorShape(shape)[axis] if tf.TensorShape(shape).rank else None
    if length is not None and length % count:
        raise SMPConfigError(
            f"{name}: a batch of {length} can't be divided into {count} microbatches (microbatches): make one a "
            "multiple of the other, and drop the last, smaller batch"
        )


def _piece(value: Any, name: str, axis: int, number: int, count: int) -> Any:
    """Microbatch ``number`` of ``count`` of a tensor; anything else as it is."""
    if not hasattr(value, "dtype") or not hasattr(value, "shape") or isinstance(value, tf.Variable):
        return value
    tensor = tf.convert_to_tensor(value)
    if tensor.shape.rank == 0:
        return tensor
    length = tensor.shape[axis]
    if length is None:
        length = tf.shape(tensor)[axis]
        tf.debugging.assert_equal(length % count, 0, f"{name}: the batch can't be divided into {count} microbatches")
    return tf.split(tensor, count, axis)[number] if isinstance(length, int) else _dynamic(tensor, axis, number, count)


def _dynamic(tensor: Any, axis: int, number: int, count: int) -> Any:
    width = tf.shape(tensor)[axis] // count
    return tf.gather(tensor, tf.range(number * width, (number + 1) * width), axis=axis)
