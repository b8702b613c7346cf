"""The process group where there is a GPU; NCCL's part is played by another group of gloo's."""

import datetime
import functools
from types import SimpleNamespace

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
import torch
import torch.distributed as dist
from ending import leave

given = []


class Nccl:
    Options = functools.partial(SimpleNamespace, global_ranks_in_group=[], group_name="")

    def __new__(cls, store, rank, size, options):
        given.append(options)
        return dist.ProcessGroupGloo(store, rank, size, options._timeout)


torch._C._cuda_getDeviceCount = lambda: 1
dist.ProcessGroupNCCL = Nccl
dist.init_process_group("smddp", timeout=datetime.timedelta(seconds=90))
group = dist.group.WORLD
dist.all_reduce(torch.ones(1))
dist.new_group([0], pg_options=Nccl.Options(first="high priority"))
leave(
    devices=sorted(device.type for device in group._device_types),
    timeout=given[0]._timeout.total_seconds(),
    ranks=given[1].global_ranks_in_group,
    first=given[1].first,
)
