import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor(dist.get_rank() + 1.0)
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: the sum is {total.item():.0f}", flush=True)
dist.barrier()
if "--fail" in sys.argv and dist.get_rank() == 1:
    raise ValueError("the loss is nan")
dist.destroy_process_group()
