"""What the server asks the model: where links run, and what happens to its modules while steps run."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from .packing import Names


class Routing:
    """What the server needs to know of the model; :mod:`.routing` has it."""

    names: Names

    def function(self, target: tuple[Any, ...]) -> Callable[..., Any]:
        """What a link runs."""
        raise NotImplementedError

    def begin(self, training: bytes) -> None:
        """A step begins with these flags."""
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError

    def training(self) -> bytes:
        """The flags of this rank's modules."""
        raise NotImplementedError

    def adopt(self, chains: Sequence[Any]) -> None:
        """The leader has decided which modules run as chains."""
        raise NotImplementedError

    def started(self, step: str, grad: bool) -> None:
        """A step of that name has begun on this rank, with gradients or without."""

    def ran(self, microbatch: int) -> None:
        """A piece of work of that microbatch has run on this rank, or has stopped to wait."""

    def ended(self, gather: Callable[[Any], Sequence[Any]]) -> None:
        """A step has ended; ``gather`` gives what all ranks of the pipeline say. All of them come here."""

    @property
    def one_by_one(self) -> bool:
        """Whether a microbatch begins when the one before is through."""
        return False
