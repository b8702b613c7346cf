"""Torch's own wrappers of models over smddp: what they compute is what one process computes."""

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from ending import leave
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("smddp")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
data, labels = torch.randn(8 * size, 6), torch.randint(4, (8 * size,))
mine = slice(8 * rank, 8 * rank + 8)
done = {}


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def loss(model, part):
    return nn.functional.cross_entropy(model(data[part]), labels[part])


def distance(model, other):
    pairs = zip(model.parameters(), other.parameters())
    return max((one.grad - two.grad).abs().max().item() for one, two in pairs)


alone = network()
loss(alone, slice(None)).backward()

ddp = DistributedDataParallel(network(), gradient_as_bucket_view=True, find_unused_parameters=True)
loss(ddp, mine).backward()
done["DDP"] = distance(ddp, alone)

ddp = DistributedDataParallel(network())
with ddp.no_sync():
    loss(ddp, slice(8 * rank, 8 * rank + 4)).backward()
loss(ddp, slice(8 * rank + 4, 8 * rank + 8)).backward()
for parameter in ddp.parameters():
    parameter.grad /= 2
done["no_sync"] = distance(ddp, alone)

ddp = DistributedDataParallel(network())
ddp.register_comm_hook(None, default_hooks.allreduce_hook)
loss(ddp, mine).backward()
done["comm hook"] = distance(ddp, alone)

ddp = DistributedDataParallel(network())
with ddp.join():
    for _ in range(2 + rank):
        loss(ddp, mine).backward()

single = network()
loss(single, slice(None)).backward()
torch.optim.SGD(single.parameters(), 0.01, momentum=0.9).step()
ddp = DistributedDataParallel(network())
loss(ddp, mine).backward()
ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.01, momentum=0.9).step()
pairs = zip(ddp.parameters(), single.parameters())
done["ZeroRedundancyOptimizer"] = max((one - two).abs().max().item() for one, two in pairs)

fsdp = fully_shard(network())
loss(fsdp, mine).backward()
done["FSDP2"] = max(
    (one.grad.full_tensor() - two.grad).abs().max().item() for one, two in zip(fsdp.parameters(), alone.parameters())
)

checkpoint.save({"model": ddp.state_dict()}, checkpoint_id="saved")
again = DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)))
state = {"model": again.state_dict()}
checkpoint.load(state, checkpoint_id="saved")
done["checkpoint"] = max(
    (one - two).abs().max().item() for one, two in zip(state["model"].values(), ddp.state_dict().values())
)
leave(**done)
