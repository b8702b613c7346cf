"""What AWS's mixture of experts is configured with."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class MoEConfig:
    """For ``tsm.transform``, which keeps the model's own routing: ``moe_load_balancing`` is ``none`` or refused."""

    smp_moe: bool = True
    random_seed: int = 12345
    moe_load_balancing: str = "sinkhorn"
    global_token_shuffle: bool = False
    moe_all_to_all_dispatcher: bool = True
    moe_aux_loss_coeff: float = 0.001
    moe_z_loss_coeff: float = 0.001
    use_cpu_initialization: bool = False
