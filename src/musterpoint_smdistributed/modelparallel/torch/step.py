"""``smp.step``: a function of the script that runs once per microbatch, over all ranks of a pipeline."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Mapping, Sequence

from .errors import SMPStepError
from .splitting import split_arguments
from .state import state
from .step_output import detached, merge

Function = Callable[..., Any]


def step(
    function: Function | None = None,
    non_split_inputs: Sequence[str] | None = None,
    input_split_axes: Mapping[str, int] | None = None,
    detach_outputs: bool = True,
) -> Any:
    """Decorates a step function: ``@smp.step``, or ``@smp.step(…)`` with options.

    The batch is cut into microbatches, and the function is called with each. It calls the model, and for training
    ``model.backward(loss)``. What it returns is put together: tensors become a :class:`.StepOutput`, other values a
    list with one per microbatch. Every rank of the pipeline calls the decorated function and gets the same result; the
    arguments of the first of them count.

    Args:
        non_split_inputs: names of arguments that each microbatch gets whole.
        input_split_axes: by argument, the axis on which it is cut, if it isn't 0.
        detach_outputs: returned tensors don't keep their graphs.
    """
    if function is None:
        return functools.partial(
            step, non_split_inputs=non_split_inputs, input_split_axes=input_split_axes, detach_outputs=detach_outputs
        )
    body: Function = function
    signature = inspect.signature(body)
    whole, axes = frozenset(non_split_inputs or ()), dict(input_split_axes or {})
    name = f"{body.__module__}.{body.__qualname__}"

    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        model = state.model
        if model is None:
            raise SMPStepError(f"{name}: wrap the model with smp.DistributedModel before the first step")
        bound = signature.bind(*args, **kwargs)

        def one(part: inspect.BoundArguments) -> Any:
            result = body(*part.args, **part.kwargs)
            return detached(result) if detach_outputs else result

        def bodies() -> list[Callable[[], Any]]:
            parts = split_arguments(bound, state.cfg.microbatches, whole, axes)
            return [functools.partial(one, part) for part in parts]

        return model.run_step(name, bodies, merge, bound.arguments)

    return run
