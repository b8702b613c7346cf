"""Variables of platforms that nobody here knows, by whose names this process could be one of several.

They are only warned of: their names are guesses, and most jobs of one host have some variable of other programs.
"""

import os
import re
from typing import Mapping

from musterpoint.core.job.fields import is_loopback, node_name
from musterpoint.core.job.model import Note
from musterpoint.core.job.other_platforms import shown_variables

_MACHINES = "(?:NODE|HOST|MACHINE)S?"
_ANY = "(?:NODE|HOST|MACHINE|WORKER|REPLICA|TASK|PEER|INSTANCE)S?"
_COUNT = "(?:{0}_?(?:NUM|COUNT|SIZE|TOTAL)|(?:NUM|N|TOTAL|NUMBER_OF)_?{0}|NNODES)"
_MACHINE_COUNT = re.compile(f"(?:.*_)?{_COUNT.format(_MACHINES)}")
_ANY_COUNT = re.compile(f"(?:.*_)?(?:{_COUNT.format(_ANY)}|WORLD_SIZE|GROUP_SIZE|CROSS_SIZE|CLUSTER_SIZE)")
_MACHINE_PLACE = re.compile(f"(?:.*_)?{_MACHINES}_(?:RANK|INDEX)")
_PLACES = ("NOMAD_ALLOC_INDEX",)
"""Places by other names, of hosts that are alike."""
_ANY_PLACE = re.compile("(?:.*_)?(?:RANK|INDEX|ID)")
_LISTS = re.compile(".*(?:NODE_?LIST|HOST_LIST|NODES?_IPS|WORKER_HOSTS|WORKER_HOSTNAMES)")
_FILES = re.compile(".*(?:NODE|HOST|MACHINE)FILE")
"""With the names of hosts; where the file can't be read, as in a container without it, nobody knows how many."""
_MEETING_POINTS = (
    "MASTER_ADDR",
    "MASTER_IP",
    "PET_MASTER_ADDR",
    "PET_RDZV_ENDPOINT",
    "AZ_BATCHAI_JOB_MASTER_NODE_IP",
    "JAX_COORDINATOR_ADDRESS",
    "DMLC_TRACKER_URI",
    "TORCHX_RANK0_HOST",
    "HEAD_NODE_IP",
    "HEAD_IP",
    "CHIEF_IP",
    "PRIMARY_ADDR",
    "LEADER_ADDR",
    "LEADER_ADDRESS",
    "MASTER_HOST",
    "COORDINATOR_ADDRESS",
    "METIS_WORKER_0_HOST",
)
_OF_RANKS = {"WORLD_SIZE": 2, "RANK": 1, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}
"""Of torch.distributed, where no other variable says more; from which number on there are several."""
_OURS = ("MUSTER_", "SM_", "KUBERNETES_")
_RAY = ("RAY_ADDRESS", "FQ_RAY_IP", "RAY_CLUSTER_NAME", "RAY_JOB_ID")
"""Variables of a node of KubeRay's, of a submitted job, or of a process that Ray has started."""
_REPLICA = re.compile(r"(.+)-([0-9]{1,4})")
_FEW = 4
"""Variables named in the warning."""


def suspected(environ: Mapping[str, str]) -> tuple[Note, ...]:
    """A warning with the variables by which there may be other hosts; empty where there are none."""
    variables = [(name, environ[name].strip()) for name in sorted(environ) if not name.startswith(_OURS)]
    numbers = {name: int(text) for name, text in variables if text.isdecimal() and len(text) < 6}
    named = [(name, text) for name, text in variables if _speaks_of_others(name, text, numbers)]
    own = _REPLICA.fullmatch((environ.get("HOSTNAME") or node_name()).partition(".")[0])
    if environ.get("KUBERNETES_SERVICE_HOST") and own:
        named.append(("HOSTNAME", own[0]))  # as pods of a StatefulSet are called
    notes = []
    if named:
        more = f" and {len(named) - _FEW} more" if len(named) > _FEW else ""
        notes.append(
            f"{shown_variables(named[:_FEW])}{more}: there may be other hosts, and musterpoint knows no platform "
            "that says so in these variables: this is a job of one host. If there are more, pass --nnodes N "
            "--node-rank I --rollcall-leader HOST on each; --platform plain takes this warning away"
        )
    of_ray = next((name for name in _RAY if environ.get(name)), "")
    if of_ray:
        ray = shown_variables([(of_ray, environ[of_ray])])
        notes.append(
            f"{ray}: a Ray cluster runs already, and this is a job of this host alone: start the program itself in "
            "that cluster (`ray job submit`), or, without a cluster, `muster launch --launcher ray` on every host; "
            "--platform plain takes this warning away"
        )
    return tuple(Note("warning", text) for text in notes)


def _speaks_of_others(name: str, text: str, numbers: Mapping[str, int]) -> bool:
    number = numbers.get(name, 0)
    if name in _OF_RANKS:
        return number >= _OF_RANKS[name]
    if number > 1 and _MACHINE_COUNT.fullmatch(name):
        return True
    if number > 1 and _ANY_COUNT.fullmatch(name):
        family = name.partition("_")[0] + "_"
        places = [numbers[each] for each in numbers if each.startswith(family) and _ANY_PLACE.fullmatch(each)]
        return any(place < number for place in places)
    if number and (name in _PLACES or _MACHINE_PLACE.fullmatch(name)):
        return True
    if name in _MEETING_POINTS:
        host = text.rpartition(":")[0] or text
        return bool(text) and not is_loopback(host) and host != node_name()
    if _FILES.fullmatch(name) and not os.path.isfile(text):
        return bool(text)
    return bool(_LISTS.fullmatch(name)) and len(re.split(r"[\s,;]+", text)) > 1
