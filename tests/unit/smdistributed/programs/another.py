"""One process tries many models; a job has one, and ends where a step fails."""

import itertools

import smdistributed.modelparallel.torch as smp
import torch.distributed as dist
from smdistributed.modelparallel.torch import absent


def forget():
    """There has been no model yet."""
    smp.state.model = smp.state.optimizer = absent.fetch = absent.describe = None
    smp.state.wait = lambda work, kind: work.wait()


def begin(world):
    """As in a process of its own."""
    forget()
    smp.state._world = None
    smp.init(world)


def together(model):
    """No rank begins the first step before all have divided the model.

    Else one that fails at once ends the others' division: right for a job, but here the next model is to be tried.
    """
    model.register_post_partition_hook(lambda *_: dist.barrier())
    return model


_meetings = itertools.count()


def meet(said=""):
    """Ranks go on when all are here; what each has said. By the store: a collective of a model that failed may still be
    under way."""
    store, number = dist.distributed_c10d._get_default_store(), next(_meetings)
    found = []
    for turn in range(2):  # rank 0 has the store, and leaves behind the others
        store.set(f"meeting {number} {turn} {dist.get_rank()}", said)
        if turn == 0 or dist.get_rank() == 0:
            found = [store.get(f"meeting {number} {turn} {rank}").decode() for rank in range(dist.get_world_size())]
    return found
