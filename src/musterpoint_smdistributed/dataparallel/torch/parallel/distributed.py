"""Torch's DistributedDataParallel with the arguments of the library's versions before 1.4."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .. import distributed


class DistributedDataParallel(nn.parallel.DistributedDataParallel):
    """Averages gradients over all ranks; joins them first where the script hasn't.

    Differs from torch's in that a module on the CPU may be given ``device_ids``, which don't matter then. Raises
    ValueError: ``gradient_accumulation_steps`` is more than 1.
    """

    def __init__(
        self,
        module: nn.Module,
        device_ids: list[int | torch.device] | None = None,
        output_device: int | torch.device | None = None,
        broadcast_buffers: bool = True,
        process_group: Any = None,
        bucket_cap_mb: int | None = None,
        gradient_accumulation_steps: int = 1,
        **more: Any,
    ) -> None:
        if gradient_accumulation_steps > 1:
            raise ValueError(
                f"gradient_accumulation_steps={gradient_accumulation_steps}: AWS doesn't say what it does, so it isn't "
                "supported; run all but the last of the backward passes inside `with model.no_sync():`"
            )
        distributed.init_process_group()
        if not broadcast_buffers:  # else left out: newer versions of torch warn of whoever gives it
            more["broadcast_buffers"] = False
        on_gpu = any(parameter.is_cuda for parameter in module.parameters())
        super().__init__(
            module,
            device_ids=device_ids if on_gpu else None,
            output_device=output_device if on_gpu else None,
            process_group=process_group,
            bucket_cap_mb=bucket_cap_mb,
            **more,
        )
