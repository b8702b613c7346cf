"""What a rank's environment is right after the import."""

import os

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
import torch
import torch.distributed as dist
from ending import leave

names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SMDATAPARALLEL_LOCAL_RANK", "MASTER_ADDR")
exported = {name: os.environ.get(name) for name in names}
dist.init_process_group(backend="smddp")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
leave(**exported, sum=total.item(), backend=dist.get_backend())
