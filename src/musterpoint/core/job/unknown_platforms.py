"""Variables by which this process could be one of several, by the shape of their names and values.

A job of one host is told of them on every host, also the first, whose log people read. They are only warned of, since
the names are guesses, and most jobs of one host have some variable of other programs.
"""

from __future__ import annotations

import os
import re
from typing import Iterator, Mapping

from musterpoint.base.records import NamedTuple
from musterpoint.core.job.fields import is_loopback, node_name
from musterpoint.core.job.model import Note
from musterpoint.core.job.other_platforms import shown_variables, uncounted

_MACHINES = frozenset({"NODE", "HOST", "MACHINE"})
_PEERS = _MACHINES | {
    *("WORKER", "REPLICA", "TASK", "PEER", "INSTANCE", "POD", "ALLOC", "MEMBER", "CONTAINER", "TRAINER", "PARTICIPANT")
}
"""Words for what a platform counts or numbers."""
_OF_COUNT = frozenset({"NUM", "COUNT", "SIZE", "TOTAL", "N", "NUMBER"})
_OF_PLACE = frozenset({"RANK", "INDEX", "IDX", "ORDINAL"})
_GROUPS = frozenset({"WORLD", "GROUP", "CROSS", "CLUSTER", "GANG"})
"""Words for all of them, before ``SIZE``."""
_LEADERS = frozenset({"MASTER", "LEADER", "HEAD", "CHIEF", "COORDINATOR", "PRIMARY", "RDZV", "TRACKER", "RANK0"})
_ADDRESSES = frozenset({"ADDR", "ADDRESS", "IP", "HOST", "HOSTNAME", "URI", "ENDPOINT"})
_OF_TRAINING = frozenset({"PET", "DMLC", "JAX", "TORCHX", "METIS", "AZ", "HEAD", "CHIEF", "LEADER"})
"""How the variables of training begin; other programs have masters and leaders, too: databases, for one."""
_LISTS = re.compile(".*(?:NODE_?LIST|HOST_LIST|NODES?_IPS|WORKER_HOSTS|WORKER_HOSTNAMES)")
_PERHAPS_LISTS = re.compile(".*(?:HOSTS|HOSTNAMES|NODES|PEERS|MEMBERS|WORKERS|IPS)")
"""Of hosts that are called alike, or of which this is one: other programs list their servers so."""
_FILES = re.compile(".*(?:NODE|HOST|MACHINE)FILE")
"""With the names of hosts; where the file can't be read, as in a container without it, nobody knows how many."""
_OF_RANKS = {"WORLD_SIZE": 2, "RANK": 1, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}
"""Of torch.distributed, where no other variable says more; from which number on there are several."""
_OURS = ("MUSTER_", "SM_", "KUBERNETES_")
_RAY = ("RAY_ADDRESS", "FQ_RAY_IP", "RAY_CLUSTER_NAME", "RAY_JOB_ID")
"""Variables of a node of KubeRay's, of a submitted job, or of a process that Ray has started."""
_REPLICA = re.compile(r"(.+)-([0-9]{1,4})")
_FEW = 4
"""Variables named in the warning."""


class _Number(NamedTuple):
    """A variable that counts or numbers peers: the first word of its name (its family; empty: it has no more words
    than the shape), what it counts, and its number.
    """

    name: str
    family: str
    counts: bool
    machines: bool
    number: int


def suspected(
    environ: Mapping[str, str], own: frozenset[str] = frozenset(), begins: tuple[str, ...] = (), known: bool = False
) -> tuple[Note, ...]:
    """A warning with the variables by which there may be other hosts; empty where there are none.

    ``own`` and ``begins``: the variables of the platform whose job this is, and how their names begin. ``known``: it
    says that there is one host, so only what says that there are more counts.
    """
    read = {
        name: environ[name].strip()
        for name in sorted(environ)
        if environ[name].strip() and name not in own and not name.startswith((*_OURS, *begins))
    }
    named = sorted({*_numbers(read, known), *_lists(read), *(() if known else _meeting_points(read))})
    variables = [(name, read[name]) for name in named]
    replica = _REPLICA.fullmatch((environ.get("HOSTNAME") or node_name()).partition(".")[0])
    if environ.get("KUBERNETES_SERVICE_HOST") and replica and not known:
        variables.append(("HOSTNAME", replica[0]))  # as pods of a StatefulSet are called
    notes = []
    if variables:
        more = f" and {len(variables) - _FEW} more" if len(variables) > _FEW else ""
        notes.append(
            f"{shown_variables(variables[:_FEW])}{more}: there may be other hosts, and musterpoint knows no platform "
            "that says so in these variables: this is a job of one host. If there are more, pass --nnodes N "
            "--node-rank I --rollcall-leader HOST on each; --platform plain takes this warning away"
        )
    of_ray = next((name for name in _RAY if environ.get(name)), "")
    if of_ray and not known:
        ray = shown_variables([(of_ray, environ[of_ray])])
        notes.append(
            f"{ray}: a Ray cluster runs already, and this is a job of this host alone: start the program itself in "
            "that cluster (`ray job submit`), or, without a cluster, `muster launch --launcher ray` on every host; "
            "--platform plain takes this warning away"
        )
    return tuple(Note("warning", text) for text in notes)


def _number(name: str, text: str) -> _Number | None:
    if not (text.isascii() and text.isdecimal() and len(text) < 6):
        return None
    words = name.split("_")
    pair = [word if word in _GROUPS else word.removesuffix("S") for word in words[-2:]]
    family = words[0] if len(words) > 2 else ""
    if words[-1] in ("NNODES", "NHOSTS"):
        return _Number(name, words[0] if len(words) > 1 else "", True, True, int(text))
    if words[-3:-1] == ["NUMBER", "OF"]:
        pair, family = ["NUMBER", pair[-1]], words[0] if len(words) > 3 else ""
    if len(pair) < 2:
        return None
    first, last = pair
    if (last in _PEERS and first in _OF_COUNT) or (first in _PEERS and last in _OF_COUNT):
        return _Number(name, family, True, bool({first, last} & _MACHINES), int(text))
    if first in _GROUPS and last == "SIZE":
        return _Number(name, words[0], True, False, int(text))
    if first in _PEERS and last in _OF_PLACE:
        return _Number(name, family, False, first in _MACHINES, int(text))
    return None


def _numbers(read: Mapping[str, str], known: bool) -> Iterator[str]:
    """The variables that count peers above one, or give this process a place among them."""
    found = [number for name, text in read.items() if (number := _number(name, text))]
    places = {name: int(text) for name, text in read.items() if _is_place(name, text)}
    for one in found:
        family = f"{one.family}_" if one.family else ""
        if one.name in _OF_RANKS:
            continue
        if one.counts:
            beside = [place for name, place in places.items() if family and name.startswith(family)]
            beside += [each.number for each in found if not each.counts and each.family == one.family]
            if one.number > 1 and (one.machines or any(place < one.number for place in beside)):
                yield one.name
            continue
        counts = [each.number for each in found if each.counts and each.family == one.family]
        if one.number or (not known and (not counts or max(counts) > 1)):
            yield one.name
    for name, least in _OF_RANKS.items():
        text = read.get(name, "")
        if text.isdecimal() and len(text) < 6 and int(text) >= least:
            yield name


def _is_place(name: str, text: str) -> bool:
    return name.endswith(("RANK", "INDEX", "ID")) and text.isascii() and text.isdecimal() and len(text) < 6


def _lists(read: Mapping[str, str]) -> Iterator[str]:
    for name, text in read.items():
        listed = _LISTS.fullmatch(name) and len(re.split(r"[\s,;]+", text)) > 1
        unreadable = _FILES.fullmatch(name) and not os.path.isfile(text)
        if listed or unreadable or (_PERHAPS_LISTS.fullmatch(name) and _is_roster(text)):
            yield name


def _is_roster(text: str) -> bool:
    """Whether these are several hosts that are called alike but for their numbers, or of which this is one."""
    names = set(re.split(r"[\s,;]+", text.strip())) - {""}
    if len(names) < 2 or any(set(name) & set("/:=*") for name in names):
        return False
    stems = {re.sub(r"[0-9]+", "0", name) for name in names}
    return (len(stems) == 1 and "0" in next(iter(stems))) or node_name() in names


def _meeting_points(read: Mapping[str, str]) -> Iterator[str]:
    """The addresses of a leader elsewhere, and what shows a platform that doesn't say how many hosts there are."""
    numbered = {number.family for name, text in read.items() if (number := _number(name, text))}
    for name, text in read.items():
        words = name.split("_")
        leads = bool(_LEADERS & {*words}) or words[-3:-1] == ["WORKER", "0"]
        if words[-1] in _ADDRESSES and leads:
            bare = len(words) == 2 or words[0] in _OF_TRAINING
            host = text.rpartition(":")[0] or text
            if (bare or words[0] in numbered) and not is_loopback(host) and host != node_name():
                yield name
    yield from uncounted(read)
