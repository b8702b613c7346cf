"""Where ranks meet, which the leader watches: N ranks that don't are N worlds of one."""

from __future__ import annotations

from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import Meeting

LIBRARY = "libtorch"
"""In the name of a file that a process has in memory when it has imported torch."""
MODULES = ("torch", "accelerate", "transformers", "lightning", "pytorch_lightning", "trl", "peft")
"""Modules that a program imports which trains with torch."""
ADVICE = (
    "torch.distributed's init_process_group() makes them one; Lightning calls it where devices and num_nodes are the "
    "job's, accelerate and Hugging Face's Trainer call it on CPUs only with ACCELERATE_USE_CPU=true or use_cpu=True"
)

SPANNING = (
    "--launcher torchrun, or the distribution torch_distributed, starts one world on all hosts; a torchrun in the "
    "program needs --nnodes=$NNODES --node-rank=$NODE_RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT"
)


def rendezvous(inputs: LaunchInputs, required: bool = False) -> Meeting | None:
    """Where the ranks of torch.distributed meet: None but on the leader of several ranks."""
    roster = inputs.roster
    if roster.node_rank or roster.world_size == 1:
        return None
    # where the platform has started the ranks, it has told them a port, too
    told = inputs.environ.get("MASTER_PORT", "") if inputs.started is not None else ""
    port = int(told) if told.isdecimal() else roster.master_port
    others = tuple(seat.address for seat in roster.group if seat.name != roster.me)
    own = "; ranks that are to run on their own are --launcher ranks" if required else ""
    return Meeting(port, others, required, LIBRARY, MODULES, ADVICE + own, _program(inputs))


def of_independent(inputs: LaunchInputs) -> Meeting | None:
    """The meeting of programs of several hosts that may be one world after all, at a port of their own."""
    made = rendezvous(inputs) if inputs.hosts > 1 else None
    return made and made._replace(port=0, modules=(), advice=SPANNING, apart=True)


def of_tensorflow(inputs: LaunchInputs, port: int) -> Meeting | None:
    """Where TensorFlow's workers meet, at the ``port`` of the first one's server: None but on that one's host."""
    roster = inputs.roster
    if roster.node_rank or roster.world_size == 1:
        return None
    others = tuple(seat.address for seat in roster.group if seat.name != roster.me)
    advice = (
        "tf.distribute.MultiWorkerMirroredStrategy() makes them one, where the program leaves TF_CONFIG as it is and "
        "makes the strategy with it"
    )
    return Meeting(port, others, False, "tensorflow", ("tensorflow", "keras"), advice, _program(inputs))


def _program(inputs: LaunchInputs) -> str:
    """The program's file, or its module with slashes; empty where it isn't one of Python's."""
    name, kind = inputs.workspace.program, inputs.workspace.kind
    return name.replace(".", "/") if kind == "module" else name if kind == "python" else ""
