"""Whether two environments of one program differ only where :data:`musterpoint.job.differences.DIFFERENCES` says so.

Each row of that list that names variables has a check here, of the two values that it allows.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any, Callable, Mapping, NamedTuple

from musterpoint.job.cluster import natural
from musterpoint.job.differences import DIFFERENCES


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
        allowed = in_order(ours[key], value) or (key in PROPERTIES and PROPERTIES[key](ours, theirs))
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
        and pair.ours.split(":")[0] == pair.theirs.split(":")[0] and pair.ours.endswith("/musterpoint/standins"),
    "PYTHONUNBUFFERED, PYTHONFAULTHANDLER": lambda pair: added(pair) and pair.ours == "1",
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": lambda pair: added(pair) and (pair.ours or "").isdigit(),
    "MASTER_ADDR, MASTER_PORT, NODE_RANK, NNODES, NPROC_PER_NODE": added,
    "NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME": added,
    "MUSTER_*": lambda pair: pair.ours is None or (pair.theirs is None and pair.name not in OPTIONS),
}  # fmt: skip
OPTIONS = ("MUSTER_SLOTS", "MUSTER_ROLLCALL")

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
