"""What the ranks of a pipeline say to each other during a step."""

from __future__ import annotations

import contextlib
import functools
import pickle
from collections import deque
from typing import Any, Callable, Iterator, NamedTuple, Sequence, cast

import torch

from .aliases import View

_DEVICES = ("cpu", "cuda")


class Autocast(NamedTuple):
    """``torch.autocast`` for one type of device."""

    device: str
    enabled: bool
    dtype: torch.dtype


class Context(NamedTuple):
    """Whether gradients are recorded, and in which types is computed; torch has both for each thread."""

    grad: bool
    inference: bool
    autocast: tuple[Autocast, ...]
    cache: bool

    @classmethod
    def current(cls) -> Context:
        casts = (Autocast(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _DEVICES)
        grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        return cls(grad, inference, tuple(casts), torch.is_autocast_cache_enabled())

    def __reduce__(self) -> tuple[Callable[[bytes], Context], tuple[bytes]]:
        """Written once and not for each message: there are few of them."""
        return _context, (_written(tuple(self)),)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Computes under this context in the calling thread."""
        with contextlib.ExitStack() as stack:
            if self.inference != torch.is_inference_mode_enabled():
                stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for each in self.autocast:
                if each.enabled or torch.is_autocast_enabled(each.device):
                    stack.enter_context(
                        torch.autocast(each.device, enabled=each.enabled, dtype=each.dtype, cache_enabled=self.cache)
                    )
            yield


@functools.lru_cache(maxsize=256)
def _written(values: tuple[Any, ...]) -> bytes:
    return pickle.dumps(values, pickle.HIGHEST_PROTOCOL)


@functools.lru_cache(maxsize=256)
def _read(data: bytes) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", pickle.loads(data))


def _context(data: bytes) -> Context:
    return Context(*_read(data))


def default_device() -> contextlib.AbstractContextManager[object]:
    """``torch.set_default_device`` of the calling thread, for another thread to enter."""
    device = torch.get_default_device()
    return contextlib.nullcontext() if device.type == "cpu" else device


# Each of these ranks is in a pipeline of its own, and answers requests as they come. But a layer that they share is a
# collective: all of them must come to it for the same microbatch. So the first of them chooses as a single rank
# would, and tells the others, which wait until they have the same task. Their pipelines are alike, so it comes.
class Turns:
    """This rank's part in that order."""

    def __init__(self, partners: Sequence[int], first: bool, send: Callable[[int, Any], None]) -> None:
        self.partners = tuple(partners)
        self.follows = bool(partners) and not first
        self._send = send
        self.told: deque[Turn] = deque()
        """What the first rank has chosen to run, and doesn't run here yet."""

    def announce(self, step: int, key: tuple[Any, ...]) -> None:
        """This rank has chosen."""
        for partner in self.partners:
            self._send(partner, Turn(step, key))

    def next(self, step: int) -> tuple[Any, ...] | None:
        """What this rank has to run; None as long as nobody has said."""
        return self.told[0].key if self.told and self.told[0].step == step else None


class Link(NamedTuple):
    """One part of a call: what runs, and on which rank of the pipeline. ``target`` is for the model's routing."""

    rank: int
    target: tuple[Any, ...]

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the modules that it runs."""
        kind, what = self.target[:2]
        if kind == "again":
            return tuple(what)
        return (getattr(what, "name", what),) if kind in ("module", "with", "stage") else ()

    def __str__(self) -> str:
        name = ", ".join(self.modules) if self.modules else self.target[1]
        return f"{'module' if self.modules else self.target[0]} {name}" if name else "the model"


class CallId(NamedTuple):
    """One call; the caller's rank in the pipeline and a number of its own."""

    rank: int
    number: int


class Call(NamedTuple):
    """A chain of links: each gets what the one before returned, and the last one answers the caller."""

    id: CallId
    links: tuple[Link, ...]
    step: int
    microbatch: int

    def __reduce__(self) -> tuple[Callable[..., Call], tuple[Any, ...]]:
        """Links are written once and not for each message: a model has few chains of them."""
        return _call, (*self.id, _written(self.links), self.step, self.microbatch)


def _call(rank: int, number: int, links: bytes, step: int, microbatch: int) -> Call:
    return Call(CallId(rank, number), _read(links), step, microbatch)


class Start(NamedTuple):
    """The leader begins a step, its ``number``-th. ``training`` has a byte per module: its flags count, not others'.

    wanting: has a byte per parameter, whether it wants a gradient there.
    anew: buffers have been added or replaced since the last step.
    met: how many collectives of all ranks of this pipeline the leader has come through before.
    """

    name: str
    number: int
    met: int
    context: Context
    training: bytes
    wanting: bytes
    anew: bool


class Started(NamedTuple):
    """A rank has begun to serve that step."""

    number: int


class Forward(NamedTuple):
    """Run link ``position`` of the call. The tensors of ``arguments`` follow; those marked need a gradient.

    seed: of the random numbers there.
    brought: how many of the last tensors are in attributes that the call takes along.
    """

    call: Call
    position: int
    seed: int
    context: Context
    arguments: bytes
    need_gradient: tuple[bool, ...]
    brought: int = 0


class Result(NamedTuple):
    """What the call returned. Of the tensors, ``need_gradient`` marks those that autograd follows.

    changed: which of the call's own tensors were changed in place; their new values are the last tensors.
    views: of each tensor, what it is a view of; empty: none is one.
    unused: which of the tensors that it was brought no result depends on.
    """

    call: CallId
    value: bytes
    need_gradient: tuple[bool, ...]
    changed: tuple[int, ...]
    views: tuple[View | None, ...] = ()
    unused: tuple[int, ...] = ()


class Backward(NamedTuple):
    """Gradients of the results of link ``position``; ``present`` says which ones follow.

    keeps: the graph stays for another pass. some: only gradients of the call's own tensors are asked for, and
    parameters get none. number: of the pass.
    """

    call: Call
    position: int
    present: tuple[bool, ...]
    keeps: bool = False
    some: bool = False
    number: int = 0


class Gradients(NamedTuple):
    """Gradients of the call's own tensors; ``present`` says which ones follow."""

    call: CallId
    present: tuple[bool, ...]


class Turn(NamedTuple):
    """What runs next on a rank, for those that share its layers' tensors; see :class:`Turns`."""

    step: int
    key: tuple[Any, ...]


class Routes(NamedTuple):
    """Which modules run as chains from now on; see :mod:`.stages`."""

    chains: tuple[Any, ...]


class End(NamedTuple):
    """Step ``number`` is over: what the step function returned for each microbatch, and whether there was a backward
    pass.
    """

    number: int
    outputs: bytes
    backward: bool


class Report(NamedTuple):
    """What a rank says to all others behind step ``number``; see :mod:`.guard`."""

    number: int
    said: bytes


class Failed(NamedTuple):
    """A rank can't go on. ``rank``: its global rank."""

    rank: int
    traceback: str
