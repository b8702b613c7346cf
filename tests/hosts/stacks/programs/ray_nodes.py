"""Runs a Ray task on each node that would take minutes; then ends as the word says.

``kill``: kills the other node's raylet, in the first attempt; the second ends when a task has run on each node.
``wait``: waits to be stopped, and saves a checkpoint then.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On


@ray.remote(num_cpus=1, max_retries=0)
def raylet() -> int:
    return os.getppid()


@ray.remote(num_cpus=1, max_retries=0)
def attempt() -> str:
    return os.environ["MUSTER_ATTEMPT"]


@ray.remote(num_cpus=1, max_retries=0)
def wait() -> None:
    time.sleep(600)


def save(signo: int, frame: object) -> None:
    alive = sum(node["Alive"] for node in ray.nodes())
    (Path(os.environ["SM_MODEL_DIR"]) / "checkpoint").write_text(str(alive))
    sys.exit(0)


def main(then: str) -> None:
    ray.init(logging_level="warning")
    signal.signal(signal.SIGTERM, save)
    here = ray.get_runtime_context().get_node_id()
    nodes = sorted((node["NodeID"] for node in ray.nodes()), key=lambda node: node == here)
    if int(os.environ["MUSTER_ATTEMPT"]):
        seen = ray.get([attempt.options(scheduling_strategy=On(node, soft=False)).remote() for node in nodes])
        print(f"{len(ray.nodes())} nodes, their attempts: {seen}", flush=True)
        return
    waiting = [wait.options(scheduling_strategy=On(node, soft=False)).remote() for node in nodes]
    if then == "kill":
        os.kill(ray.get(raylet.options(scheduling_strategy=On(nodes[0], soft=False)).remote()), signal.SIGKILL)
    print("waiting", flush=True)
    ray.get(waiting)


if __name__ == "__main__":
    main(sys.argv[1])
