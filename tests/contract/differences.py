"""What a program sees otherwise than under sagemaker-training 5.1.4, and whether nothing else differs.

docs/sagemaker.md has the list from here. Each row that names variables has a check, of the two values that it allows.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any, Callable, Mapping, NamedTuple

from musterpoint.core.job.host_order import natural


class Difference(NamedTuple):
    """``where`` names variables (``*``: any letters), or what else differs; ``theirs`` and ``ours`` say how."""

    where: str
    theirs: str
    ours: str


DIFFERENCES = tuple(Difference(*row) for row in (
    ("SM_HOSTS, every list of hosts", "as in the file (algo-10 before algo-2)", "natural order, which is rank order"),
    ("SM_USER_ARGS, the program's arguments", "sorted by name", "in the order of hyperparameters.json"),
    ("default_user_module_name", "hidden from the program", "an ordinary hyperparameter"),
    ("SM_HP_*, SM_CHANNEL_*", "names as they come, such as SM_HP_BATCH-SIZE",
     "the same, and SM_HP_BATCH_SIZE, which shells can read"),
    ("a name or value that can't be a variable, or is longer than 128 KiB", "the job fails", "left out"),
    ("SM_INSTANCE_GROUPS, SM_INSTANCE_GROUPS_DICT, SM_CURRENT_INSTANCE_GROUP_HOSTS",
     "one entry per entry of the file, the last one of a name wins", "entries of the same name are one group"),
    ("SM_CURRENT_INSTANCE_GROUP", "homogeneousCluster unless current_group_name is there",
     "also read from current_instance_group, else from the group that has the current host"),
    ("SM_CURRENT_INSTANCE_TYPE", "local unless current_instance_type is there", "the type of the host's group first"),
    ("SM_DISTRIBUTION_INSTANCE_GROUPS", "the current group where the job names none",
     "the chosen group, the same on all hosts"),
    ("SM_TRAINING_ENV", "one property for each of theirs", "the same, with the differences above, and what SDK v3 has"),
    ("SM_TRAINING_ENV: job_name", "TRAINING_JOB_NAME, else null", "the job's name, wherever it is said"),
    ("SM_TRAINING_ENV: master_hostname, is_master, distribution_hosts",
     "the first host in the file's order, of the groups above",
     "the leader: the first in natural order, of the groups above"),
    ("SM_CHECKPOINT_DIR, SM_CURRENT_HOST_RANK, SM_ENTRY_SCRIPT, SM_HOST_COUNT, SM_INPUT_DATA_DIR, SM_MASTER_ADDR, "
     "SM_MASTER_PORT, SM_OUTPUT_FAILURE, SM_SOURCE_DIR", "not set", "set, as SDK v3 has them (SM_CHECKPOINT_DIR: from "
     "checkpointconfig.json)"),
    ("SAGEMAKER_METRICS_DIRECTORY", "as the platform set it", "else that directory, if the platform made it"),
    ("SAGEMAKER_JOB_NAME", "empty unless sagemaker_job_name is sent", "else the job's name"),
    ("SAGEMAKER_REGION", "as boto3 finds it", "the hyperparameter, AWS_REGION, AWS_DEFAULT_REGION or the job's ARN"),
    ("SM_MODULE_DIR", "the code directory unless sagemaker_submit_directory is sent",
     "SAGEMAKER_SUBMIT_DIRECTORY is read, too"),
    ("variables that are set already", "overwritten", "kept"),
    ("PYTHONPATH", "the whole sys.path of the toolkit's own interpreter",
     "the code directory before the user's own, and behind it what stands in for sagemaker_training; before all the "
     "folder of ours that Python looks into at its start, and where the job asks for smdistributed that package's"),
    ("PYTHONUNBUFFERED, PYTHONFAULTHANDLER", "not set",
     "1: the last lines before a crash reach the log, and a program that a signal ends says where it was"),
    ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "not set",
     "the seconds that a stop leaves the ranks: a torchrun that the program starts gives its own as many"),
    ("TORCHELASTIC_RESTART_COUNT", "not set",
     "how many attempts were made before: 0, until --max-restarts starts the ranks again (MUSTER_ATTEMPT is the same)"),
    ("OMP_NUM_THREADS", "not set",
     "processors over slots, under launchers that start several ranks per host; else not set"),
    ("MASTER_ADDR, MASTER_PORT, NODE_RANK, NNODES, NPROC_PER_NODE", "not set",
     "on several hosts: where programs that start their own ranks can meet"),
    ("NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, TP_SOCKET_IFNAME",
     "not set, but under torch_distributed and MPI NCCL's, to SM_NETWORK_INTERFACE_NAME",
     "the interface towards the leader, if it is there; Gloo's is the loopback for ranks "
     "of a host that has no other"),
    ("LD_LIBRARY_PATH", "as it was", "in front of it CUDA's compatibility libraries, where the driver needs them"),
    ("SMDISTRIBUTED_TOKEN", "not set",
     "where the job asks for smdistributed: by it the ranks of one job know each other, where they meet without torch"),
    ("MUSTER_*", "kept",
     "our options are taken out; MUSTER_OUTER and others by which a launcher below finds us are added"),
))  # fmt: skip


OURS = ("/musterpoint_smdistributed/startup", "/musterpoint/embedded/startup/path")
"""Folders of ours that come before the code."""


class Pair(NamedTuple):
    """A variable's two values, None where it isn't set; ``given`` is the environment that both toolkits started in."""

    name: str
    ours: str | None
    theirs: str | None
    given: Mapping[str, str]


def pairs(words: list[str]) -> list[tuple[str, str]]:
    """Options and their values, sorted, since theirs come sorted by name and ours in file order."""
    return sorted(zip(words[::2], words[1::2], strict=True))


def in_order(ours: Any, theirs: Any) -> bool:
    """Whether every list of hosts of ``theirs`` is in natural order in ``ours``, and nothing else differs."""
    if isinstance(theirs, list) and all(isinstance(name, str) for name in theirs):
        return ours == theirs or tuple(ours) == natural(theirs)
    if isinstance(theirs, dict):
        return theirs.keys() == ours.keys() and all(in_order(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(in_order, ours, theirs))
    return repr(ours) == repr(theirs)  # NaN isn't equal to itself


def hosts_in_order(pair: Pair) -> bool:
    return None not in (pair.ours, pair.theirs) and in_order(json.loads(pair.ours or ""), json.loads(pair.theirs or ""))


def readable_name(pair: Pair) -> bool:
    return pair.theirs is None and pair.name.isidentifier()


def added(pair: Pair) -> bool:
    return pair.theirs == pair.given.get(pair.name) and pair.ours is not None


def training_env(pair: Pair) -> bool:
    """Property by property; :data:`PROPERTIES` are those with a row of their own."""
    ours, theirs = json.loads(pair.ours or "{}"), json.loads(pair.theirs or "{}")
    assert ours.keys() - theirs.keys() == {"input_data_dir", "master_addr", "master_port"}
    for key, value in theirs.items():
        kept = ours[key] == pair.given.get(f"SM_{key.upper()}")  # a directory's variable that is set already
        allowed = kept or in_order(ours[key], value) or (key in PROPERTIES and PROPERTIES[key](ours, theirs))
        assert allowed, (key, ours[key], value)
    return True


def leads(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    master = natural(theirs["distribution_hosts"] or theirs["hosts"])[0]
    return (ours["master_hostname"], ours["is_master"]) == (master, ours["current_host"] == master)


PROPERTIES: dict[str, Callable[[dict[str, Any], dict[str, Any]], bool]] = {
    "job_name": lambda ours, theirs: theirs["job_name"] is None and ours["job_name"],
    "master_hostname": leads,
    "is_master": leads,
}

OWN_OPTIONS = ("MUSTER_SLOTS", "MUSTER_HOSTS_FILE", "MUSTER_ROLLCALL_PORT")

CHECKS: dict[str, Callable[[Pair], bool]] = {
    "SM_HOSTS, every list of hosts": hosts_in_order,
    "SM_USER_ARGS, the program's arguments":
        lambda pair: pairs(json.loads(pair.ours or "")) == pairs(json.loads(pair.theirs or "")),
    "SM_HP_*, SM_CHANNEL_*": readable_name,
    "SM_INSTANCE_GROUPS, SM_INSTANCE_GROUPS_DICT, SM_CURRENT_INSTANCE_GROUP_HOSTS": hosts_in_order,
    "SM_TRAINING_ENV": training_env,
    "SM_CHECKPOINT_DIR, SM_CURRENT_HOST_RANK, SM_ENTRY_SCRIPT, SM_HOST_COUNT, SM_INPUT_DATA_DIR, SM_MASTER_ADDR, "
    "SM_MASTER_PORT, SM_OUTPUT_FAILURE, SM_SOURCE_DIR": added,
    "SAGEMAKER_METRICS_DIRECTORY": lambda pair: added(pair) and (pair.ours or "").endswith("/output/metrics/sagemaker"),
    "SAGEMAKER_JOB_NAME": lambda pair: pair.theirs == "" and bool(pair.ours),
    "variables that are set already": lambda pair: pair.ours is not None and pair.ours == pair.given.get(pair.name),
    "PYTHONPATH": lambda pair: pair.ours is not None and pair.theirs is not None
        and next(folder for folder in pair.ours.split(":") if not folder.endswith(OURS))
        == pair.theirs.split(":")[0] and pair.ours.endswith("/musterpoint/embedded/standins"),
    "PYTHONUNBUFFERED, PYTHONFAULTHANDLER": lambda pair: added(pair) and pair.ours == "1",
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": lambda pair: added(pair) and (pair.ours or "").isdigit(),
    "TORCHELASTIC_RESTART_COUNT": lambda pair: added(pair) and pair.ours == "0",
    "MASTER_ADDR, MASTER_PORT, NODE_RANK, NNODES, NPROC_PER_NODE": added,
    "NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, TP_SOCKET_IFNAME": added,
    "SMDISTRIBUTED_TOKEN": added,
    "MUSTER_*": lambda pair: pair.ours is None or (pair.theirs is None and pair.name not in OWN_OPTIONS),
}  # fmt: skip

ELSEWHERE = {
    "default_user_module_name", "a name or value that can't be a variable, or is longer than 128 KiB",
    "SM_CURRENT_INSTANCE_GROUP", "SM_CURRENT_INSTANCE_TYPE", "SM_DISTRIBUTION_INSTANCE_GROUPS", "SAGEMAKER_REGION",
    "SM_MODULE_DIR", "SM_TRAINING_ENV: job_name", "SM_TRAINING_ENV: master_hostname, is_master, distribution_hosts",
    "OMP_NUM_THREADS", "LD_LIBRARY_PATH",
}  # fmt: skip
"""Rows that allow nothing in a job of one program per host on this machine, or whose properties have their check
above: what they say is tested in tests/unit."""

EVERYWHERE = ("variables that are set already",)
SHELLS = ("PWD", "OLDPWD", "SHLVL", "_")


def compare(ours: Mapping[str, str], theirs: Mapping[str, str], given: Mapping[str, str]) -> set[str]:
    """Name by name and value by value, in whole environments; the rows of the list that were needed.

    Raises:
        AssertionError: something differs that no row allows.
    """
    needed = set()
    for name in sorted((ours.keys() | theirs.keys()).difference(SHELLS)):
        pair = Pair(name, ours.get(name), theirs.get(name), given)
        if pair.ours == pair.theirs:
            continue
        rows = [row.where for row in DIFFERENCES if row.where in CHECKS and names(row.where, name)]
        row = next((where for where in rows if CHECKS[where](pair)), "")
        assert row, f"{name} is {pair.ours!r}, theirs {pair.theirs!r}: no row of the differences allows that"
        needed.add(row)
    return needed


def names(where: str, name: str) -> bool:
    return where in EVERYWHERE or any(fnmatchcase(name, word) for word in where.split(", "))
