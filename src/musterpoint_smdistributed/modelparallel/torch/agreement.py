"""What ranks that share tensors must have in common when a step begins: batches of one shape, random numbers.

In a collective of other shapes they would wait for each other for ever, or compute nonsense without a word.
"""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

from . import log, randomness, same_calls
from .errors import SMPStepError
from .nn.dropout import drawn, own_device, shares_activations
from .randomness import Stream
from .state import state


@contextlib.contextmanager
def alike(step: str, arguments: Any) -> Iterator[None]:
    """Around a step, on each rank that runs the step function.

    Where ranks compute the same in places they draw the same random numbers inside; afterwards each goes on with its
    own.
    """
    group = state.group("tp")
    if group.size == 1:
        yield
        return
    shapes = same_calls.shapes(arguments)
    told = [drawn() if shares_activations() else 0, same_calls.digest(shapes)]
    with log.waiting(f"the step function {step}, for the ranks {list(group.ranks)} that share tensors"):
        said = list(same_calls.told_by_all(told, group.ranks, group.process_group).values())
    digests = [digest for _, digest in said]
    if len(set(digests)) > 1:
        raise SMPStepError(_different(step, shapes, digests))
    if not shares_activations():
        yield
        return
    device = own_device()
    before = Stream.current(device)
    randomness.begin(said[0][0], device)
    try:
        yield
    finally:
        before.resume(device)


def _different(step: str, shapes: list[str], digests: list[int]) -> str:
    ranks = state.group("tp").ranks
    own = digests[state.group("tp").rank]
    others = [rank for rank, digest in zip(ranks, digests) if digest != own]
    feed = (
        "with prescaled_batch all of them get the same batch: use smp.rdp_rank() and smp.rdp_size() in the sampler"
        if state.cfg.prescaled_batch
        else "their batches must have the same shapes: use drop_last=True, and pad sequences to one length"
    )
    return (
        f"{step}: rank {state.world.rank} was called with tensors of shapes {', '.join(shapes) or 'none'}, and ranks "
        f"{others}, which share its tensors, with others; {feed}"
    )
