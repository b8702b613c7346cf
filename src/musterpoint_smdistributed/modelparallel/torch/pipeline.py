"""Connects the ranks of this rank's pipeline."""

from __future__ import annotations

import os

import torch

from . import communication
from .inbox import Inbox
from .leader import Leader
from .routing import ModuleRouting
from .server import Schedule, Server
from .state import state
from .transport import Transport, new_token, own_host
from .worker import Worker


def connect(routing: ModuleRouting, device: torch.device | None) -> Server:
    """This rank's part in the steps of its pipeline, connected with the others. All ranks of the job call it.

    Args:
        device: this rank's GPU.
    """
    pipeline, world = state.group("pp"), state.world
    inbox = Inbox()
    own = own_host(os.environ.get("MASTER_ADDR") or "127.0.0.1")
    transport = Transport(world.rank, inbox.put, own, device)
    inbox.reads(transport)
    told = communication.allgather((transport.address, new_token()))
    sharing = state.group("tp").ranks
    peers = [rank for rank in (*pipeline.ranks, *sharing) if rank != world.rank]
    transport.connect(told[0][1], {rank: address for rank, (address, _) in enumerate(told)}, peers)
    schedule: Schedule = "simple" if state.cfg.pipeline == "simple" else "interleaved"
    kind = Leader if pipeline.rank == 0 else Worker
    return kind(
        transport,
        inbox,
        pipeline.ranks,
        pipeline.rank,
        range(world.topology.world),
        routing,
        schedule,
        state.cfg.active_microbatches,
        device,
        sharing,
    )
