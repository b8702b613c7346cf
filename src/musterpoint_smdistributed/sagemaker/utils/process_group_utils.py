"""The ranks of process groups."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist


def get_global_ranks(process_group: Any = None) -> list[int]:
    """The global ranks of a group, in its order; of all ranks where it is None."""
    return list(dist.get_process_group_ranks(process_group or dist.group.WORLD))
