"""Runs Ray tasks on all nodes, then ends as the words say.

``train``: PyTorch with Ray Train, then an error; ``exit``: code 7; ``kill``: kills the other node's raylet; ``wait``:
waits to be stopped, and saves a checkpoint then.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import beside
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as At

TOLD = ("RANK", "MASTER_ADDR", "OMP_NUM_THREADS")


@ray.remote(num_cpus=1, max_retries=0)
def look() -> tuple[str, int, list[str]]:
    return beside.WORD, os.getppid(), [name for name in TOLD if name in os.environ and name != "OMP_NUM_THREADS"]


@ray.remote(num_cpus=1, max_retries=0)
def wait(seconds: float) -> None:
    time.sleep(seconds)


def on(node: dict[str, str]) -> At:
    return At(node["NodeID"], soft=False)


def step() -> None:
    """One training step of one of Ray Train's workers."""
    import torch
    import torch.distributed as dist

    total = torch.ones(1) * (dist.get_rank() + 1)
    dist.all_reduce(total)
    if dist.get_rank() == 1:
        raise LookupError(f"no shard for a sum of {int(total.item())} in a world of {dist.get_world_size()}")


def train(storage: str) -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    TorchTrainer(
        step, torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
        run_config=RunConfig(storage_path=storage, name="digits", failure_config=FailureConfig(max_failures=0)),
    ).fit()  # fmt: skip


def save(signo: int, frame: object) -> None:
    (Path(os.environ["SM_MODEL_DIR"]) / "checkpoint").write_text(str(len(ray.nodes())))
    sys.exit(0)


def main(then: str, *rest: str) -> None:
    ray.init(logging_level="warning")
    signal.signal(signal.SIGTERM, save)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    seen = ray.get([look.options(scheduling_strategy=on(node)).remote() for node in nodes])
    cpus = int(ray.cluster_resources()["CPU"])
    mode = os.environ["RAY_AUTH_MODE"]
    print(f"{len(nodes)} nodes, {cpus} CPUs, {mode}: {[(word, told) for word, _, told in seen]}", flush=True)
    if then == "exit":
        sys.exit(7)
    if then == "train":
        train(*rest)
    waiting = [wait.options(scheduling_strategy=on(node)).remote(600) for node in nodes]
    if then == "kill":
        here = ray.get_runtime_context().get_node_id()
        other = next(raylet for node, (_, raylet, _) in zip(nodes, seen, strict=True) if node["NodeID"] != here)
        os.kill(other, signal.SIGKILL)
    print("waiting", flush=True)
    ray.get(waiting)


if __name__ == "__main__":
    main(*sys.argv[1:])
