"""The options of ``muster local`` as arguments of :func:`musterpoint.local.run`, with their types."""

from __future__ import annotations

import os
from typing import Any, Literal, Mapping, Sequence, TypedDict, Union

Path = Union[str, "os.PathLike[str]"]


class Options(TypedDict, total=False):
    """Every option by its name, with ``_`` for ``-``; their meanings are in ``muster local --help all``."""

    platform: Literal[
        "sagemaker",
        "azureml",
        "slurm",
        "lws",
        "hyperpod",
        "kubeflow",
        "awsbatch",
        "azurebatch",
        "skypilot",
        "dstack",
        "tfconfig",
        "volcano",
        "flux",
        "lsf",
        "pbs",
        "nomad",
        "kubernetes",
    ]
    host_names: Literal["algo", "sdk"]
    backend: Literal["process", "netns", "docker"]
    image: str
    shm_size: str | int
    memory: str | int
    cpus: float | str
    gpus: str | int
    network_isolation: bool
    one_address: bool
    internet: Literal["on", "off"]
    source_dir: Path
    hyperparameters: Mapping[str, Any] | Path
    distribution: Mapping[str, Any] | Path
    channel: Mapping[str, Path] | Path | Sequence[str]
    sharded: str
    metric: Mapping[str, str] | str | Sequence[str]
    requirements: Path
    env: Mapping[str, str | int | float] | str | Sequence[str]
    host_slots: str | Sequence[int]
    cpu_fallback: bool
    debug: int
    stop_after: float
    job_name: str
    output: Path
    live: Literal["auto", "off"]
    nproc_per_node: int
    log_prefix: Literal["none", "rank", "host", "mpi"]
    stall_timeout: float
    max_restarts: int
    stop_grace: float
    rollcall_timeout: float
    rollcall_check: Literal["warn", "strict", "off"]
    silence_timeout: float
    rollcall_port: int
    master_port: int
    check: Literal["off", "warn", "fail"]
    host_order: Literal["listed", "topology"]
    topology: Path
    ssh: Literal["off", "on"]
    group: str
    hosts_file: Path
    secret: str
    on_stall: Literal["end", "dump"]
    stop_signal: str
    stop_exit_code: int
    pid1_watch: Literal["auto", "off"]
    on_failure: Literal["end", "finish"]
    restart_on: Literal["infra", "user"]
    rejoin_timeout: float
    outside: Literal["wait", "stop"]
    python: Path
    local_rank: Literal["argument", "dashed", "variable"]
    deepspeed_local_rank: Literal["argument", "dashed", "variable"]
    cuda_compat: Literal["auto", "off"]
    installer: Literal["auto", "pip", "uv", "none"]
    args: Literal["sagemaker", "json"]
    log_ranks: str | int | Sequence[int]
    log_dir: Path
    rendezvous: Literal["static", "c10d"]
    mpi_options: str
    ray_options: str
    ray_head_options: str
    tf_port: int
    tf_hosts: Literal["addresses", "names"]
    tf_roles: str
    accelerate_config: Path
    numa_binding: Literal["node", "socket", "exclusive", "core-complex"]
    cpu_binding: Literal["auto", "slots", "off"]
    checkpoints: Path
    checkpoint_restore: Literal["own", "all", "leader"]
    checkpoint_keep: int
    checkpoint_complete: str
    upload: Path
