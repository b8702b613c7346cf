"""The functions of the library's older versions, against those of torch.distributed."""

import time
import warnings

import smdistributed.dataparallel.torch as sdp
import smdistributed.dataparallel.torch.distributed as dist
import torch
import torch.distributed
from ending import error_of, leave
from smdistributed.dataparallel.torch.parallel import DistributedDataParallel as FromPackage
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel
from torch import nn

assert FromPackage is DistributedDataParallel and issubclass(FromPackage, nn.parallel.DistributedDataParallel)
assert dist.is_available() and not dist.is_initialized()
torch.manual_seed(0)
network = nn.Linear(3, 2).double()
data = torch.randn(8, 3).double()
with warnings.catch_warnings():
    warnings.simplefilter("error")
    model = DistributedDataParallel(network, device_ids=[0], output_device=0, bucket_cap_mb=1)  # joins by itself
assert not DistributedDataParallel(network, broadcast_buffers=False).broadcast_buffers
assert dist.is_initialized() and torch.distributed.get_backend() == "smddp"
dist.init_process_group("nccl", init_method="ignored", nothing=True)
rank, size = dist.get_rank(), dist.get_world_size()
assert (sdp.get_rank(), sdp.get_world_size()) == (rank, size)
assert (torch.distributed.get_rank(), torch.distributed.get_world_size()) == (rank, size)
assert dist.get_rank(dist.group.WORLD) == rank
assert dist.get_local_rank() == sdp.get_local_rank() == rank

part = data.chunk(size)[rank]
with model.no_sync():
    model(part).pow(2).mean().backward()
model.zero_grad()
model(part).pow(2).mean().backward()
ours = network.weight.grad.clone()
network.zero_grad()
network(data).pow(2).mean().backward()
error = (ours - network.weight.grad).abs().max().item()

own = torch.tensor([rank + 1.0, 2.0])
results = {}
for name in ("SUM", "MIN", "MAX", "AVERAGE"):
    operation = getattr(dist.ReduceOp, name)
    tensor, waited, plain = own.clone(), own.clone(), own.clone()
    assert dist.all_reduce(tensor, operation) is None
    work = dist.all_reduce(waited, op=operation, group=dist.group.WORLD, async_op=True)
    while not work.is_completed():  # or work.wait()
        time.sleep(0.001)
    work.wait()
    torch.distributed.all_reduce(plain, getattr(torch.distributed.ReduceOp, name.replace("AVERAGE", "SUM")))
    plain = plain / size if name == "AVERAGE" else plain
    assert torch.equal(tensor, plain) and torch.equal(waited, plain), (name, tensor, waited, plain)
    results[name] = tensor.tolist()
tensor = own.clone()
dist.all_reduce(tensor, torch.distributed.ReduceOp.SUM)
assert tensor.tolist() == results["SUM"]

tensor = own.clone()
assert dist.broadcast(tensor, src=1) is None
assert tensor.tolist() == [2.0, 2.0]
dist.broadcast(tensor, 0, async_op=True).wait()
gathered = [torch.empty(2) for _ in range(size)]
dist.all_gather(gathered, own)
assert [each[0].item() for each in gathered] == [each + 1.0 for each in range(size)]
dist.all_gather(gathered, own, group=dist.group.WORLD, async_op=True).wait()
got = torch.empty(size)
dist.all_to_all_single(got, torch.arange(size, dtype=torch.float32))
assert got.tolist() == [float(rank)] * size
splits = [1] * size
dist.all_to_all_single(got, torch.arange(size, dtype=torch.float32), splits, splits, async_op=True).wait()
dist.barrier()
dist.barrier(async_op=True).wait()
refused = error_of(DistributedDataParallel, network, gradient_accumulation_steps=2)
leave(error=error, results=results, refused=refused)
