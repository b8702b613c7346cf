"""A script that joined the ranks itself, with a backend for GPUs alone; and decisions that all ranks share."""

import logging
import os

import torch
import torch.distributed as dist
from ending import error_of, leave
from torch import nn


def gpus_only(group, options):
    return dist.ProcessGroupGloo(group.store, group.group_rank, group.group_size, group.timeout)


dist.Backend.register_backend("gpus", gpus_only, extended_api=True, devices=["cuda"])
dist.init_process_group("gpus")

import smdistributed.modelparallel.torch as smp  # noqa: E402
from smdistributed.modelparallel.torch.partition import agree  # noqa: E402

rank = int(os.environ["RANK"])
errors = [error_of(smp.rank)]
assert not smp.is_initialized()
smp.init({"partitions": 3})  # what the job says counts more
smp.init({"microbatches": 7})  # too late, and said
assert smp.is_initialized() and smp.state.cfg.microbatches == 4 and smp.state.is_open_shim
assert smp.get_world_process_group() is dist.group.WORLD and dist.get_backend() == "gpus"
assert smp.state.module_manager.translate_functions == []

# objects, although the world's own group has no place for tensors on CPUs
if rank == 0:
    smp.send({"tensor": torch.ones(3)}, 1)
else:
    assert smp.recv_from(0)["tensor"].sum() == 3
assert smp.allgather(("rank", rank)) == [("rank", 0), ("rank", 1)]
smp.barrier()

# a rank that waits says so: the other one comes only then
hinted = dist.distributed_c10d._get_default_store()
handler = logging.Handler()
handler.emit = lambda record: hinted.set("hint", record.getMessage())
smp.logger.addHandler(handler)
os.environ["SMP_HINT_SECONDS"] = "0.05"
if rank == 1:
    hinted.wait(["hint"])
smp.barrier()
del os.environ["SMP_HINT_SECONDS"]
hint = hinted.get("hint").decode()

model = nn.ModuleDict({name: nn.Linear(8, 8) for name in ("a", "b", "c", "d")})
smp.state.cfg.auto_partition = False
if rank == 0:  # its marks count
    smp.set_partition(model["a"], 1)
    smp.set_partition(model["b"], 1)
owner = agree(model).owner
smp.state.cfg.partition_file, smp.state.cfg.load_partition = "missing.json", True
errors.append(error_of(agree, model))
leave(owner=owner, errors=errors, hint=hint)
