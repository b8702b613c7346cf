"""What the ranks of a pipeline say to each other during a step."""

from __future__ import annotations

import functools
import pickle
from typing import Any, Callable, NamedTuple

from .aliases import View
from .context import Context


class Link(NamedTuple):
    """One part of a call: what runs, and on which rank of the pipeline. ``target`` is for the model's routing."""

    rank: int
    target: tuple[Any, ...]


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


@functools.lru_cache(maxsize=256)
def _written(links: tuple[Link, ...]) -> bytes:
    return pickle.dumps(links, pickle.HIGHEST_PROTOCOL)


@functools.lru_cache(maxsize=256)
def _read(links: bytes) -> tuple[Link, ...]:
    known: tuple[Link, ...] = pickle.loads(links)
    return known


def _call(rank: int, number: int, links: bytes, step: int, microbatch: int) -> Call:
    return Call(CallId(rank, number), _read(links), step, microbatch)


class Start(NamedTuple):
    """The leader begins a step, its ``number``-th. ``training`` has a byte per module: its flags count, not others'.

    met: how many collectives of all ranks of this pipeline the leader has come through before.
    """

    name: str
    number: int
    met: int
    context: Context
    training: bytes


class Started(NamedTuple):
    """A rank has begun to serve that step."""

    number: int


class Forward(NamedTuple):
    """Run link ``position`` of the call. The tensors of ``arguments`` follow; those marked need a gradient.

    seed: of the random numbers there.
    """

    call: Call
    position: int
    seed: int
    context: Context
    arguments: bytes
    need_gradient: tuple[bool, ...]


class Result(NamedTuple):
    """What the call returned. Of the tensors, ``need_gradient`` marks those that autograd follows.

    changed: which of the call's own tensors were changed in place; their new values are the last tensors.
    views: of each tensor, what it is a view of; empty: none is one.
    """

    call: CallId
    value: bytes
    need_gradient: tuple[bool, ...]
    changed: tuple[int, ...]
    views: tuple[View | None, ...] = ()


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
    """What runs next on a rank, for those that share its layers' tensors; see :mod:`.turns`."""

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
