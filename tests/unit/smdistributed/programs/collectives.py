"""Everything that works with gloo works with smddp."""

import datetime
import importlib
import os
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from ending import leave
from torch.distributed.device_mesh import init_device_mesh

with warnings.catch_warnings():
    warnings.simplefilter("error")
    import smdistributed.dataparallel.torch.torch_smddp as torch_smddp

    dist.init_process_group("smddp", timeout=datetime.timedelta(days=365))
rank, size = dist.get_rank(), dist.get_world_size()
done = []


def check(name, found, expected):
    assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected)), (name, found, expected)
    done.append(name)


one = torch.full((2,), float(rank))
tensor = one.clone()
dist.all_reduce(tensor)
check("all_reduce", tensor, torch.full((2,), size * (size - 1) / 2))
tensor = one.clone()
work = dist.all_reduce(tensor, dist.ReduceOp.MAX, async_op=True)
work.wait()
check("all_reduce max", tensor, torch.full((2,), size - 1.0))
tensor = one.clone()
dist.broadcast(tensor, 1)
check("broadcast", tensor, torch.ones(2))
parts = [torch.empty(2) for _ in range(size)]
dist.all_gather(parts, one)
check("all_gather", torch.stack(parts)[:, 0], torch.arange(size, dtype=torch.float32))
whole = torch.empty(2 * size)
dist.all_gather_into_tensor(whole, one)
check("all_gather_into_tensor", whole[::2], torch.arange(size, dtype=torch.float32))
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": each} for each in range(size)]
said = [{"from": rank}]
dist.broadcast_object_list(said, 1)
assert said == [{"from": 1}]
done += ["all_gather_object", "broadcast_object_list"]
own = torch.empty(1)
dist.reduce_scatter_tensor(own, torch.arange(size, dtype=torch.float32))
check("reduce_scatter_tensor", own, [float(rank * size)])
got = torch.empty(size)
dist.all_to_all_single(got, torch.full((size,), float(rank)))
check("all_to_all_single", got, torch.arange(size, dtype=torch.float32))
neighbour, before = (rank + 1) % size, (rank - 1) % size
got = torch.empty(1)
for work in dist.batch_isend_irecv(
    [dist.P2POp(dist.isend, torch.tensor([float(rank)]), neighbour), dist.P2POp(dist.irecv, got, before)]
):
    work.wait()
check("isend and irecv", got, [float(before)])
tensor = one.clone()
dist.reduce(tensor, 0, dist.ReduceOp.SUM)
if rank == 0:
    check("reduce", tensor, torch.full((2,), size * (size - 1) / 2))
parts = [torch.empty(2) for _ in range(size)] if rank == 0 else None
dist.gather(one, parts, 0)
got = torch.empty(2)
dist.scatter(got, parts, 0)
check("gather and scatter", got, one)
dist.barrier()

low = dist.new_group([0, 1])
other = dist.new_group(backend="gloo")
assert (dist.get_backend(), dist.get_backend(other)) == ("smddp", "gloo")
if rank < 2:
    assert dist.get_backend(low) == "smddp"
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=low)
    check("new_group", tensor, [2.0])
tensor = torch.ones(1)
dist.all_reduce(tensor, group=other)
check("another backend beside it", tensor, [float(size)])
mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("outer", "inner"))
tensor = torch.ones(1)
dist.all_reduce(tensor, group=mesh["outer"].get_group())
check("device mesh", tensor, [2.0])
check("functional collectives", functional.all_reduce(torch.ones(1), "sum", dist.group.WORLD) + 0, [float(size)])

known = list(dist.Backend.backend_list)
importlib.reload(torch_smddp)
assert dist.Backend.backend_list == known
done.append("a second import")
assert "smddp" not in dist.Backend.default_device_backend_map.values()
done.append("no default of torch's replaced")
leave(done=done, debug=os.environ.get("TORCH_DISTRIBUTED_DEBUG", ""))
