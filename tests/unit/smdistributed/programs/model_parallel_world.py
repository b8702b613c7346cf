"""Groups, objects and barriers of a world of four: two partitions, two replicas."""

import os

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from ending import error_of, leave

smp.init({"partitions": 2, "ddp": True, "microbatches": 4, "placement_strategy": "spread"})
smp.init()
rank = smp.rank()
KINDS = ("mp", "dp", "pp", "tp", "rdp")

found = {kind: getattr(smp, f"get_{kind}_group")() for kind in KINDS}
for kind in KINDS:
    group = getattr(smp, f"get_{kind}_process_group")()
    assert found[kind].index(rank) == getattr(smp, f"{kind}_rank")() == dist.get_rank(group)
    assert len(found[kind]) == getattr(smp, f"{kind}_size")() == dist.get_world_size(group)
    total = torch.tensor([float(rank)])
    dist.all_reduce(total, group=group)
    assert total.item() == sum(found[kind])
    getattr(smp, f"{kind}_barrier")()
assert dist.get_world_size(smp.get_world_process_group()) == smp.size() == smp.local_size() == 4
assert smp.local_rank() == rank

# objects: from one to the world, within groups, and tensors in them
if rank == 1:
    smp.broadcast({"from": 1, "tensor": torch.arange(3)}, smp.WORLD)
else:
    said = smp.recv_from(1, smp.RankType.WORLD_RANK)
    assert said["from"] == 1 and said["tensor"].tolist() == [0, 1, 2]
if smp.dp_rank() == 0:
    smp.broadcast("x" * 100_000, smp.CommGroup.DP_GROUP)
    assert smp.recv_from(1, smp.RankType.DP_RANK) == ("back", found["dp"][1])
else:
    assert len(smp.recv_from(0, smp.RankType.DP_RANK)) == 100_000
    smp.send(("back", rank), 0, smp.RankType.DP_RANK)
assert smp.allgather("r" * rank, smp.PP_GROUP) == ["r" * each for each in found["pp"]]
assert smp.allgather(rank, smp.WORLD) == [0, 1, 2, 3]
for wrong in (lambda: smp.send(0, 4), lambda: smp.recv_from(rank), lambda: smp.send(0, 2, smp.RankType.PP_RANK)):
    said = error_of(wrong)
    assert said.startswith("ValueError: ") and "rank" in said, said
smp.barrier()
leave(groups=found, debug=os.environ.get("TORCH_DISTRIBUTED_DEBUG", ""), backend=dist.get_backend())
