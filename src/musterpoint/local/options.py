"""The options of ``muster local`` alone, each once; the job's own are in :mod:`musterpoint.base.settings`.

:class:`Options` has their types, as arguments of :func:`musterpoint.local.run`, and :data:`LOCAL` all else. The command
line, its help and completion, and a job's file are made from both.
"""

import os
from typing import Any, Callable, Literal, Mapping, NamedTuple, Sequence, TypedDict, Union, get_args, get_origin

from musterpoint.base.errors import UsageError
from musterpoint.base.readers import read_count
from musterpoint.base.settings import BY_FIELD
from musterpoint.local import platforms

Path = Union[str, "os.PathLike[str]"]


class Options(TypedDict, total=False):
    """Every option by its name, with ``_`` for ``-``; their meanings are in ``muster local --help all``."""

    groups: str
    role: str | Sequence[str]
    ready_timeout: float
    platform: str
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


class LocalOption(NamedTuple):
    """One option of ``muster local``."""

    name: str  # in Options, which has its type; a bool takes no value, and a Literal is all that it can be
    help: str
    metavar: str = ""
    parse: Callable[[str], Any] = str  # raises a ValueError or a UsageError that says what was expected
    default: Any = None
    dest: str = ""  # where the command line has the value, if the name is a job's option, too
    repeats: bool = False
    holds: Literal["text", "file", "object", "pairs"] = "text"
    """``file``: a path. ``object``: JSON, or a file with it. ``pairs``: ``NAME=VALUE``; in a job's file a table."""
    in_containers: bool = False  # it is about hosts that are containers
    names: Callable[[], tuple[str, ...]] | None = None  # all that it can be, where the type doesn't say so

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def choices(self) -> tuple[str, ...]:
        """All that it can be; empty where ``parse`` decides."""
        kind = Options.__annotations__.get(self.name)
        return self.names() if self.names else get_args(kind) if get_origin(kind) is Literal else ()

    @property
    def is_switch(self) -> bool:
        return Options.__annotations__.get(self.name) is bool


def _hosts(text: str) -> int:
    try:
        return read_count(text)
    except ValueError as error:
        raise UsageError(f"--hosts={text!r}: {error}") from None


def _groups(text: str) -> tuple[tuple[str, int], ...]:
    found = [(name, count) for name, _, count in (part.partition(":") for part in text.split(","))]
    right = all(name and count.isdecimal() and 0 < int(count) < 10000 for name, count in found)
    if not right or len({name for name, _ in found}) != len(found):
        raise UsageError(f"--groups={text!r}: expected NAME:HOSTS, with commas between several, such as train:2,data:1")
    return tuple((name, int(count)) for name, count in found)


def _rank(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"--debug={text!r}: expected the number of a rank, 0 or more")
    return int(text)


def _seconds(text: str) -> float:
    seconds: float = BY_FIELD["stop_grace"].read(text, "--stop-after")
    return seconds


LOCAL = (
    LocalOption("hosts", "how many hosts, algo-1 to algo-N [those of the job's roles or groups, else 1]", "N", _hosts),
    LocalOption("groups", "instance groups, as a heterogeneous cluster of SageMaker has them, such as train:2,data:1",
                "NAME:HOSTS,...", _groups, ()),
    LocalOption("platform", f"whose control plane is played [{platforms.DEFAULT}]", parse=platforms.read_platform,
                default=platforms.DEFAULT, names=platforms.playable),
    LocalOption("host_names", "algo-1 as the platform names them, or algo-1-x7k2p as the SDK's local mode does [algo]",
                default="algo"),
    LocalOption("backend", "how hosts are made [docker if there is an --image, netns for several hosts where a "
                "namespace can really be made, else process]"),
    LocalOption("image", "run `train` of this image, which is on this machine", "IMAGE", default="",
                in_containers=True),
    LocalOption("shm_size", "/dev/shm of each host, such as 512m [2g]", "SIZE", in_containers=True),
    LocalOption("memory", "memory each host may use [no limit]", "SIZE", in_containers=True),
    LocalOption("cpus", "processors each host may use, such as 1.5 [all]", "N", in_containers=True),
    LocalOption("gpus", "all for each host, or N for each; auto: shared out where Docker has GPUs to give [auto]",
                "auto|all|none|N", in_containers=True),
    LocalOption("network_isolation", "no network but that of the job's own hosts", in_containers=True),
    LocalOption("one_address", "process backend: every host on 127.0.0.1, as on macOS"),
    LocalOption("internet", "netns backend: a way out of this machine for TCP and name lookups, such as for downloads "
                "[off]", default="off"),
    LocalOption("source_dir", "the program's code [the directory of PROGRAM]", "DIR", default="", holds="file"),
    LocalOption("hyperparameters", "the SDK's hyperparameters: a JSON object, or a file holding one [none]",
                "JSON|FILE", default="{}", holds="object"),
    LocalOption("distribution", "the SDK's distribution, such as '{\"torch_distributed\": {\"enabled\": true}}' [none]",
                "JSON|FILE", default="{}", holds="object"),
    LocalOption("channel", "an input channel; a URI, or words such as ;sharded, is brought as muster launch does; may "
                "be repeated", "NAME=PATH", default=[], dest="inputs", repeats=True, holds="pairs"),
    LocalOption("sharded", "a channel whose files are shared out among the hosts (ShardedByS3Key); may be repeated",
                "NAME", default=[], repeats=True),
    LocalOption("metric", "a number to find in the output, as a metric definition of SageMaker does; may be repeated",
                "NAME=REGEX", default=[], repeats=True, holds="pairs"),
    LocalOption("requirements", "packages to install first: into this Python, or with --image as requirements.txt "
                "beside the code [none]", "FILE", holds="file"),
    LocalOption("env", "a variable of the job, or one to take over from here; may be repeated", "K=V|K", default=[],
                repeats=True, holds="pairs"),
    LocalOption("host_slots", "slots per host where hosts are uneven, such as 2,4", "N,N", default=""),
    LocalOption("cpu_fallback", "run a CUDA-only script on this machine's CPU"),
    LocalOption("debug", "gives this rank your terminal, for breakpoint() and pdb; the other ranks wait", "RANK",
                _rank),
    LocalOption("stop_after", "stop the job after S seconds, as StopTrainingJob does", "S", _seconds),
    LocalOption("job_name", "the job's name [the program's name and the time]", "NAME", default="",
                dest="name_of_job"),
    LocalOption("output", "where to put what the job leaves [./muster-jobs/<job>]", "DIR", default="", holds="file"),
    LocalOption("live", "a line of each host below the log, on a terminal [auto]", default="auto"),
)  # fmt: skip
BY_FLAG = {option.flag: option for option in LOCAL}
