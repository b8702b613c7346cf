"""The parts in the order of worth: what a short time on a GPU is spent on first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gpus import devices, failures, training
from gpus.machine import Machine


class Part(NamedTuple):
    """A part: its name, what it tries, the seconds that it may take, and the function that returns what it found."""

    name: str
    what: str
    seconds: float
    try_it: Callable[[Machine], dict[str, Any]]


PARTS = (
    Part("seen", "check, plan and env agree with torch about GPUs and slots", 40, devices.seen),
    Part("train", "`train` with one rank", 60, training.as_platform),
    Part("one-rank", "`muster local` with one rank and NCCL", 40, training.one_rank),
    Part("partitions", "version 1 with 2 and 4 partitions on one GPU, exact", 80, training.partitions),
    Part("shards", "torch.sagemaker in shards, exact, with offloaded activations", 60, training.shards),
    Part("smddp", "the composite backend: right, without a deadlock, as fast as NCCL", 60, training.smddp),
    Part("memory", "out of the GPU's memory: reason, class, code", 30, failures.memory),
    Part("assert", "a device-side assert, also with CUDA_LAUNCH_BLOCKING", 50, failures.asserts),
    Part("illegal", "an illegal memory access", 30, failures.illegal),
    Part("refusal", "NCCL refuses two ranks on one GPU", 40, failures.refusal),
    Part("sharing", "two and four ranks on one GPU with Gloo", 60, training.sharing),
    Part("killed", "a killed rank of two", 30, failures.killed),
    Part("again", "the GPU's memory is free before a restart", 50, failures.again),
    Part("stopped", "SIGTERM while a kernel runs", 40, failures.stopped),
    Part("idle", "a stall with the GPU idle", 50, failures.idle),
    Part("busy", "silence with the GPU busy is no stall", 50, failures.busy),
    Part("too-late", "NCCL's time limit, with the flight recorder", 60, failures.too_late),
    Part("half", "fp16 and bf16 with partitions", 60, training.half),
    Part("checkpoints", "checkpoints of partitions on the GPU", 40, training.checkpoints),
    Part("offload", "offloaded activations: memory", 60, training.offload),
    Part("launchers", "samples per second under each launcher, of plain torchrun's", 90, training.launchers),
    Part("triton", "torch.compile in silence is no stall", 60, training.triton),
    Part("jax", "JAX on the GPU", 40, training.with_jax),
    Part("driver", "memory, use, ECC and throttling by the driver; processes on the GPU", 30, devices.of_driver),
)  # fmt: skip
