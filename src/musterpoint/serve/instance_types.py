"""What instances have, by their type: moto's list of EC2's instances has them."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any, Mapping, NamedTuple


class Instance(NamedTuple):
    """``gpus``: of any maker. ``memory``: in MiB. ``cpus``: as the system counts them."""

    gpus: int
    memory: int
    cpus: int


@lru_cache(maxsize=1)
def _types() -> Mapping[str, Any]:
    found: Mapping[str, Any] = import_module("moto.ec2.models.instance_types").INSTANCE_TYPES
    return found


def instance_of(instance_type: str) -> Instance | None:
    """None: EC2 has no such type."""
    found = _types().get(instance_type.removeprefix("ml."))
    if found is None:
        return None
    gpus = sum(each["Count"] for each in found.get("GpuInfo", {}).get("Gpus", ()))
    return Instance(gpus, found["MemoryInfo"]["SizeInMiB"], found["VCpuInfo"]["DefaultVCpus"])
