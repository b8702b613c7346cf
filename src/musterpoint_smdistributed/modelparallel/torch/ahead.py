"""Whether a rank of a pipeline runs forward or backward passes first."""

from __future__ import annotations

from .scheduler import Task


class Ahead:
    """Of how many microbatches the forward pass of a rank is ahead of the backward pass.

    As long as there are few of them forward passes come first, so that there is something to do until the gradients of
    the next one are there. A loss has to be computed on the first rank in between, hence one more than in 1F1B.
    """

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._forward: set[int] = set()
        self._backward: set[int] = set()

    @property
    def far(self) -> bool:
        return len(self._forward) >= self._enough

    def begin(self) -> None:
        """A step begins."""
        self._forward.clear()
        self._backward.clear()

    def runs(self, task: Task) -> None:
        if task.backward:
            self._backward.add(task.microbatch)
            self._forward.discard(task.microbatch)
        elif task.microbatch not in self._backward:
            self._forward.add(task.microbatch)
