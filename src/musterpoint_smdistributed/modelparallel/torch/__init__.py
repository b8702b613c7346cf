"""Model parallelism with PyTorch: a model in parts, one per rank of a pipeline, and replicas of the whole.

``smp.step`` is the decorator and ``smp.state`` the state, while the modules of those names can be imported as well.
"""

from . import amp, communication, exceptions, nn, optimizers, patches
from .accelerate_world import init
from .checkpoint import load, resume_from_checkpoint, save, save_checkpoint
from .communication import *  # noqa: F403
from .delayed import delay_param_initialization, delayed_parameter_initialization
from .log import get_logger, logger
from .model import DistributedModel
from .optimizer import DistributedOptimizer
from .partition import partition, set_partition
from .patches.checkpoint import set_activation_checkpointing
from .state import *  # noqa: F403
from .state import __all__ as _of_state
from .step import StepOutput, step
from .tensor_parallel import (
    model_creation,
    set_tensor_parallelism,
    tensor_parallelism,
    tp_register,
    tp_register_with_module,
)

__all__ = [
    "DistributedModel", "DistributedOptimizer", "StepOutput", "amp", "delay_param_initialization",
    "delayed_parameter_initialization", "exceptions", "get_logger", "init", "load", "logger", "model_creation", "nn",
    "optimizers", "partition", "patches", "resume_from_checkpoint", "save", "save_checkpoint",
    "set_activation_checkpointing", "set_partition", "set_tensor_parallelism", "step", "tensor_parallelism",
    "tp_register", "tp_register_with_module", *communication.__all__, *_of_state,
]  # fmt: skip
