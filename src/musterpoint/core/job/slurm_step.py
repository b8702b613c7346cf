"""Which hosts a step of Slurm has, and which of its tasks this process is.

A step's own variables (``SLURM_STEP_*``) go before the allocation's, which may have more nodes. ``sbatch`` and
``salloc`` pass on the variables of a step in which they are called, so a step's variables count only where they agree
with the others.

Lists of nodes and of counts are spelled out here: containers have no ``scontrol show hostnames``. Every list was
compared with what ``scontrol`` of Slurm 22.05 makes of it; what that refuses is refused.
"""

from __future__ import annotations

import re
from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.core.job.fields import count, first_set, host, shown, wrong
from musterpoint.core.job.model import Note, StartedRank

_NOT_OF_SRUN = ("4294967290", "4294967291", "interactive", "batch")
"""Steps that run once, on one node: the shell of ``salloc`` and of a batch script."""
NODES_OF_STEP = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
NODES_OF_JOB = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
_NODES_OF_COMPONENT = ("SLURM_JOB_NODELIST_HET_GROUP_", "SLURM_JOB_NODELIST_PACK_GROUP_")
"""With a component's number, in a heterogeneous job; the second name is that of Slurm before 20.02."""
_MOST_RANKS = 1 << 24
"""More than any step has."""
_HET_SIZES = ("SLURM_HET_SIZE", "SLURM_PACK_SIZE")
_MOST = 65536
"""Nodes, and tasks of a list: more than any Slurm has."""
_LONGEST_NAME, _DIGITS = 512, 9
"""Characters of a node's name, with its brackets' numbers, before it is spelled out."""
_PARTS = re.compile(r"[^,\[\]]*(?:\[[^\[\]]*\][^,\[\]]*)*")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_TASKS = re.compile(r"([0-9]{1,5})(?:\(x([0-9]{1,5})\))?")


class Step(NamedTuple):
    """The hosts on which this process was started, once or several times on each.

    ``nodes``: their names, in the order of their tasks' numbers.
    ``current``: this host's.
    ``here``: how many tasks were started on this host.
    ``started``: which of them this one is, where srun started several on a host.
    """

    nodes: tuple[str, ...]
    current: str
    here: int = 1
    started: StartedRank | None = None


def in_step(environ: Mapping[str, str]) -> bool:
    """Whether ``srun`` started this process, and not a batch script, or a shell, that a step has passed its variables
    to.
    """
    step = environ.get("SLURM_STEP_ID", "")
    if not step or step in _NOT_OF_SRUN:
        return False
    agree = (("SLURM_STEP_NUM_NODES", "SLURM_NNODES"), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"))
    if any(environ.get(own) and environ.get(other, environ[own]) != environ[own] for own, other in agree):
        return False
    allocated, nodes = environ.get("SLURM_JOB_NODELIST"), environ.get("SLURM_STEP_NODELIST")
    if not allocated or not nodes:
        return True
    whole = nodes_of(allocated, "SLURM_JOB_NODELIST")
    return set(whole).issuperset(nodes_of(nodes, "SLURM_STEP_NODELIST"))


def job_id(environ: Mapping[str, str]) -> str:
    return environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID", "")


def step_of(environ: Mapping[str, str]) -> Step:
    variable = first_set(environ, NODES_OF_STEP) or NODES_OF_STEP[-1]
    nodes = nodes_of(_needed(environ, variable), variable)
    number = count(environ.get("SLURM_STEP_NUM_NODES") or len(nodes), "SLURM_STEP_NUM_NODES")
    if number != len(nodes):
        raise UsageError(
            f"{variable}={environ[variable]} has {len(nodes)} nodes, and SLURM_STEP_NUM_NODES is {number}: expected "
            "the step's nodes; name them in SM_HOSTS (a JSON list), and this one in SM_CURRENT_HOST"
        )
    tasks = tasks_of(environ.get("SLURM_STEP_TASKS_PER_NODE") or "1", "SLURM_STEP_TASKS_PER_NODE")
    if len(tasks) not in (1, number):
        raise wrong(
            "SLURM_STEP_TASKS_PER_NODE", environ["SLURM_STEP_TASKS_PER_NODE"], f"the tasks of each of {number} nodes"
        )
    tasks = tasks * number if len(tasks) == 1 else tasks
    if _het_size(environ) > 1:
        nodes, tasks = _by_component(environ, nodes, tasks)
    current = environ.get("SLURMD_NODENAME", "")
    at = nodes.index(current) if current in nodes else _node_id(environ, nodes)
    if max(tasks) == 1:
        return Step(nodes, nodes[at])
    return Step(nodes, nodes[at], tasks[at], _task(environ, tasks, at))


def _het_size(environ: Mapping[str, str]) -> int:
    """How many components the job has; 1 where it isn't heterogeneous."""
    return max((count(environ[name], name) for name in _HET_SIZES if environ.get(name)), default=1)


def _components(environ: Mapping[str, str]) -> list[tuple[str, ...]]:
    """The nodes of each component of a heterogeneous job."""
    names = (
        first_set(environ, [f"{form}{number}" for form in _NODES_OF_COMPONENT]) for number in range(_het_size(environ))
    )
    return [nodes_of(environ[name], name) for name in names if name]


def _by_component(
    environ: Mapping[str, str], nodes: tuple[str, ...], tasks: tuple[int, ...]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The nodes of a heterogeneous step in the order of their tasks, with the tasks of each.

    srun numbers tasks component by component, whereas its list of nodes is sorted, as are the tasks per node.

    Raises:
        UsageError: the components aren't all there, or this node has another number than by that order.
    """
    each = dict(zip(nodes, tasks))
    ordered = tuple(node for component in _components(environ) for node in component if node in each)
    current, place = environ.get("SLURMD_NODENAME", ""), environ.get("SLURM_NODEID", "")
    numbered = place.isdecimal() and int(place[:9]) < len(nodes) and current in each
    if sorted(ordered) != sorted(nodes) or (numbered and ordered[int(place)] != current):
        raise UsageError(
            f"SLURM_HET_SIZE={_het_size(environ)}, SLURM_NODEID={place}, SLURMD_NODENAME={current}: the nodes of the "
            f"components ({_NODES_OF_COMPONENT[0]}0, ...) aren't the step's in the order of its tasks: name the hosts "
            "in SM_HOSTS (a JSON list), and this one in SM_CURRENT_HOST"
        )
    return ordered, tuple(each[node] for node in ordered)


def left_out(environ: Mapping[str, str], step: Step) -> tuple[Note, ...]:
    """That the step covers fewer nodes than were allocated, which are perhaps meant to train with it."""
    size = _het_size(environ)
    variable = first_set(environ, NODES_OF_JOB)
    components = _components(environ) or ([nodes_of(environ[variable], variable)] if variable else [])
    others = [node for component in components for node in component if node not in step.nodes]
    if not others:
        return ()
    names = f"{', '.join(others[:4])}{', ...' if len(others) > 4 else ''}"
    all_nodes = len(step.nodes) + len(others)
    words = f"this step runs on {len(step.nodes)} of the job's {all_nodes} nodes, without {names}"
    if size > 1:
        words = (
            f"SLURM_HET_SIZE={size}: {words}: srun starts a step on the first component alone unless it is told "
            f"others; for one job of all nodes: {_srun_of_all(size)}"
        )
    else:
        words = (
            f"{words}, and trains without them; for one job of all nodes: {srun_line(all_nodes)}, or say NNODES, "
            "NODE_RANK and MASTER_ADDR to each node's step"
        )
    return (Note("warning", words),)


def _srun_of_all(size: int) -> str:
    return f"srun --het-group=0-{size - 1} --ntasks-per-node=1 muster launch ..."


def _task(environ: Mapping[str, str], tasks: tuple[int, ...], at: int) -> StartedRank:
    """This task, of ``tasks`` on each node, of which this is the one at ``at``.

    Raises:
        UsageError: tasks aren't numbered node by node, as ranks are.
    """
    order = environ.get("SLURM_DISTRIBUTION", "")
    if len(tasks) > 1 and order.startswith(("cyclic", "plane", "arbitrary")):
        raise UsageError(
            f"SLURM_DISTRIBUTION={order}: srun numbered its tasks in turn over the nodes, and ranks are numbered node "
            f"by node: {_BY_NODE}{srun_line(len(tasks))}"
        )
    rank, local = (count(_needed(environ, name), name, 0, _MOST_RANKS) for name in ("SLURM_PROCID", "SLURM_LOCALID"))
    expected = sum(tasks[:at]) + local
    if rank != expected or local >= tasks[at]:
        raise UsageError(
            f"SLURM_PROCID={rank}, SLURM_LOCALID={local}: with the tasks of {environ['SLURM_STEP_TASKS_PER_NODE']} "
            f"expected task {expected}, since ranks are numbered node by node: {_BY_NODE}{srun_line(len(tasks))}"
        )
    mpi = any(environ.get(name) for name in ("PMIX_RANK", "PMI_RANK", "PMI_FD"))
    return StartedRank(rank, local, sum(tasks), tasks[at], mpi, tasks if len(set(tasks)) > 1 else ())


_BY_NODE = "pass --distribution=block to srun, or start one task on each node, which starts the node's ranks itself: "


def _node_id(environ: Mapping[str, str], nodes: tuple[str, ...]) -> int:
    at = count(_needed(environ, "SLURM_NODEID"), "SLURM_NODEID", 0)
    if at >= len(nodes):
        raise wrong("SLURM_NODEID", at, f"this node's place among the {len(nodes)} nodes of the step, counted from 0")
    return at


def without_srun(environ: Mapping[str, str]) -> Step:
    """The one node of a batch script; several nodes, or none of them, are refused."""
    variable = first_set(environ, NODES_OF_JOB) or NODES_OF_JOB[0]
    nodes = nodes_of(_needed(environ, variable), variable)
    several = [
        name
        for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", *_HET_SIZES)
        if environ.get(name) and count(environ[name], name, most=_MOST_RANKS) > 1
    ]
    number = max([len(nodes), *(int(environ[name]) for name in several)])
    if number > 1:
        line = _srun_of_all(_het_size(environ)) if _het_size(environ) > 1 else srun_line(number)
        named = f"{several[0]}={environ[several[0]]}" if several else f"{variable}={environ[variable]}"
        raise UsageError(
            f"{named}: the job has several nodes, and this process runs on one of them alone, because srun didn't "
            f"start it: put srun in front, {line}; or pass --platform plain where one node is meant"
        )
    if not environ.get("SLURMD_NODENAME"):
        raise UsageError(
            f"{variable}={environ[variable]}: the node was allocated, and this process doesn't run on it but in the "
            f"shell of salloc: put srun in front, {srun_line(1)}; or pass --platform plain to train on this machine"
        )
    return Step(nodes, nodes[0])


def srun_line(nodes: int) -> str:
    """The command that starts ``muster launch`` once on each of ``nodes``."""
    return f"srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 muster launch ..."


def _needed(environ: Mapping[str, str], name: str) -> str:
    if not environ.get(name):
        job = f"in job {shown(job_id(environ))}" if job_id(environ) else "beside its other variables"
        raise UsageError(
            f"{name} isn't set, expected Slurm's value {job}: pass the SLURM_* variables on to "
            "this process, or name the hosts in SM_HOSTS (a JSON list) and this one in SM_CURRENT_HOST"
        )
    return environ[name]


def nodes_of(text: str, where: str) -> tuple[str, ...]:
    """``node[08-10],login`` as ``node08 node09 node10 login``, in the list's order, each name once.

    Raises:
        UsageError: it is no such list; the message has ``where`` and the text.
    """
    names: dict[str, None] = {}
    for part in _split(text, where):
        names.update(dict.fromkeys(_names(part, text, where)))
        if len(names) > _MOST:
            raise _wrong(where, text)
    return tuple(host(name, f"{where}={shown(text)}: a node") for name in names)


def tasks_of(text: str, where: str) -> tuple[int, ...]:
    """``2(x3),1`` as ``2 2 2 1``: the tasks of each node.

    Raises:
        UsageError: it is no such list; the message has ``where`` and the text.
    """
    counts: list[int] = []
    for part in text.split(","):
        found = _TASKS.fullmatch(part)
        if not found or len(counts) + int(found[2] or 1) > _MOST:
            raise wrong(where, text, "the tasks of each node, such as 1(x2) or 2,1")
        counts += [int(found[1])] * int(found[2] or 1)
    return tuple(counts)


def _split(text: str, where: str) -> list[str]:
    """The parts between commas outside of brackets."""
    parts, at = [], 0
    while at <= len(text):
        found = _PARTS.match(text, at)
        assert found is not None  # it matches the empty text, too
        at = found.end() + 1
        if not found[0] or (at <= len(text) and text[at - 1] != ","):
            raise _wrong(where, text)
        parts.append(found[0])
    return parts


def _names(part: str, text: str, where: str) -> list[str]:
    """The names of one part: every combination of its brackets, the last one counting fastest."""
    *pairs, last = part.split("]")
    if pairs and last:
        raise _wrong(where, text)  # as Slurm: nothing may follow the last bracket
    names, longest = [""] if pairs else [last], 0
    for pair in pairs:
        before, _, ranges = pair.partition("[")
        longest += len(before) + _DIGITS
        if longest > _LONGEST_NAME:
            raise _wrong(where, text)
        numbers = _numbers(ranges, text, where)
        if len(names) * len(numbers) > _MOST:
            raise _wrong(where, text)
        names = [f"{name}{before}{number}" for name in names for number in numbers]
    return names


def _numbers(ranges: str, text: str, where: str) -> list[str]:
    """``098-101,7`` as its numbers, each as wide as the first of its range."""
    numbers: list[str] = []
    for each in ranges.split(","):
        found = _RANGE.fullmatch(each)
        if not found:
            raise _wrong(where, text)
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < first + _MOST:
            raise _wrong(where, text)
        numbers += [str(number).zfill(len(found[1])) for number in range(first, last + 1)]
        if len(numbers) > _MOST:
            raise _wrong(where, text)
    return numbers


def _wrong(where: str, text: str) -> Exception:
    return wrong(where, text, "a list of nodes as Slurm writes it, such as node[01-04],login1")
