"""The trainer of a heterogeneous job: learns from batches that the hosts of the role ``data`` make.

The job's file gives each instance group a role. On SageMaker this file is the entry point, with MUSTER_JOB_FILE in the
estimator's environment; on this machine:

    muster local --groups train:1,data:1 -f examples/roles/groups.toml
"""

from __future__ import annotations

import argparse
import os
import signal

import torch
import torch.distributed as dist
from asking import ask, hosts_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

stop_asked = False


def ask_to_stop(*_: object) -> None:
    global stop_asked
    stop_asked = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64, help="of each rank")
    parser.add_argument("--data-port", type=int, default=8000)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, ask_to_stop)

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    servers = hosts_of("data")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    for step in range(1, args.steps + 1):
        batch = ask(servers[(rank + step) % len(servers)], args.data_port, "/batch", size=args.batch_size)
        images, labels = torch.tensor(batch["images"]), torch.tensor(batch["labels"])
        output = model(images)
        loss = nn.functional.cross_entropy(output, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right = (output.argmax(dim=1) == labels).float().mean()
        told = torch.tensor([float(stop_asked), right])
        dist.all_reduce(told)
        if rank == 0 and (step == 1 or step % 50 == 0):
            print(f"step={step}; train:accuracy={told[1] / world_size:.3f};", flush=True)
        if told[0]:
            break

    if rank == 0:
        path = os.path.join(os.environ.get("SM_MODEL_DIR", "."), "model.pt")
        torch.save({"step": step, "model": model.module.state_dict()}, path)
        print(f"saved {path} after step {step}", flush=True)
    dist.barrier()  # rank 0 saves alone; nobody leaves before it has
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
