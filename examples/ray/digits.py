"""PyTorch with Ray Train on scikit-learn's handwritten digits, one worker on each node of Ray's cluster.

The program runs once, on the leader; RAY_ADDRESS says where the cluster is. Run it on two hosts of this machine:

    muster local --hosts 2 --launcher ray examples/ray/digits.py --epochs 5
"""

from __future__ import annotations

import argparse
import os
import socket
from typing import Any

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On


@ray.remote(num_cpus=1)
def look() -> str:
    """What a task sees on the node where it runs."""
    told = [name for name in ("RANK", "MASTER_ADDR") if name in os.environ]
    return (
        f"{socket.gethostname()} in {os.path.basename(os.getcwd())} with {told or 'no variables of another launcher'}"
    )


def train_worker(options: dict[str, Any]) -> None:
    """What every worker of Ray Train runs: plain PyTorch, whose process group is ready."""
    import torch
    import torch.distributed as dist
    from sklearn.datasets import load_digits
    from torch.nn.parallel import DistributedDataParallel

    rank, size = dist.get_rank(), dist.get_world_size()
    if rank >= options["shards"]:
        raise LookupError(f"there are {options['shards']} shards, and none for worker {rank} of {size}")
    images, labels = load_digits(return_X_y=True)
    rows = slice(rank, None, options["shards"])
    inputs = torch.tensor(images[rows] / 16, dtype=torch.float32)
    targets = torch.tensor(labels[rows])
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.Adam(model.parameters(), options["lr"])
    for epoch in range(options["epochs"]):
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"worker {rank} of {size} epoch {epoch}: loss {loss.item():.4f}", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(options["storage"], "model.pt"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--shards", type=int, default=None, help="parts of the data (default: one for each node)")
    parser.add_argument("--storage", default=os.path.abspath("."), help="a directory that all nodes share")
    options = parser.parse_args()

    ray.init(logging_level="warning")
    nodes = [node for node in ray.nodes() if node["Alive"]]
    looks = [look.options(scheduling_strategy=On(node["NodeID"], soft=False)).remote() for node in nodes]
    for seen in ray.get(looks):
        print(f"a task on {seen}", flush=True)
    print(f"{len(nodes)} nodes with {int(ray.cluster_resources()['CPU'])} CPUs", flush=True)

    loop = {"epochs": options.epochs, "lr": options.lr, "storage": options.storage}
    TorchTrainer(
        train_worker,
        train_loop_config={**loop, "shards": len(nodes) if options.shards is None else options.shards},
        torch_config=TorchConfig(backend="gloo"),  # NCCL where the workers use GPUs
        scaling_config=ScalingConfig(num_workers=len(nodes), placement_strategy="STRICT_SPREAD"),
        run_config=RunConfig(storage_path=options.storage, name="digits", failure_config=FailureConfig(max_failures=0)),
    ).fit()


if __name__ == "__main__":
    main()
