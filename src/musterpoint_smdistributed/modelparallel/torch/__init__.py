"""Model parallelism with PyTorch: a model in parts, one per rank of a pipeline, and replicas of the whole.

``smp.step`` is the decorator and ``smp.state`` the state, while the modules of those names can be imported as well.
"""

from . import amp, exceptions, nn, optimizers, patches
from .accelerate_world import init
from .checkpoint import load, resume_from_checkpoint, save, save_checkpoint
from .communication import (
    DP_GROUP,
    DP_RANK,
    MP_GROUP,
    MP_RANK,
    PP_GROUP,
    RDP_GROUP,
    TP_GROUP,
    WORLD,
    WORLD_RANK,
    CommGroup,
    RankType,
    allgather,
    barrier,
    broadcast,
    dp_barrier,
    mp_barrier,
    pp_barrier,
    rdp_barrier,
    recv_from,
    send,
    tp_barrier,
)
from .delayed import delay_param_initialization, delayed_parameter_initialization
from .log import get_logger, logger
from .model import DistributedModel
from .optimizer import DistributedOptimizer
from .partition import partition, set_partition
from .patches.checkpoint import set_activation_checkpointing
from .state import (
    dp_rank,
    dp_size,
    get_dp_group,
    get_dp_process_group,
    get_mp_group,
    get_mp_process_group,
    get_pp_group,
    get_pp_process_group,
    get_rdp_group,
    get_rdp_process_group,
    get_tp_group,
    get_tp_process_group,
    get_world_process_group,
    is_initialized,
    is_tracing,
    local_rank,
    local_size,
    mp_rank,
    mp_size,
    pp_rank,
    pp_size,
    rank,
    rdp_rank,
    rdp_size,
    size,
    state,
    tp_rank,
    tp_size,
)
from .step import StepOutput, step
from .tensor_parallel import (
    model_creation,
    set_tensor_parallelism,
    tensor_parallelism,
    tp_register,
    tp_register_with_module,
)

__all__ = [
    "DP_GROUP", "DP_RANK", "MP_GROUP", "MP_RANK", "PP_GROUP", "RDP_GROUP", "TP_GROUP", "WORLD", "WORLD_RANK",
    "CommGroup", "DistributedModel", "DistributedOptimizer", "RankType", "StepOutput", "allgather", "amp",
    "barrier", "broadcast", "delay_param_initialization", "delayed_parameter_initialization", "dp_barrier",
    "dp_rank", "dp_size", "exceptions", "get_dp_group", "get_dp_process_group", "get_logger", "get_mp_group",
    "get_mp_process_group", "get_pp_group", "get_pp_process_group", "get_rdp_group", "get_rdp_process_group",
    "get_tp_group", "get_tp_process_group", "get_world_process_group", "init", "is_initialized", "is_tracing",
    "load", "local_rank", "local_size", "logger", "model_creation", "mp_barrier", "mp_rank", "mp_size", "nn",
    "optimizers", "partition", "patches", "pp_barrier", "pp_rank", "pp_size", "rank", "rdp_barrier", "rdp_rank",
    "rdp_size", "recv_from", "resume_from_checkpoint", "save", "save_checkpoint", "send",
    "set_activation_checkpointing", "set_partition", "set_tensor_parallelism", "size", "state", "step",
    "tensor_parallelism", "tp_barrier", "tp_rank", "tp_register", "tp_register_with_module", "tp_size",
]  # fmt: skip
