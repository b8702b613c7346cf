"""Which rank this process is: the variables that torchrun sets, made of those of any other launcher."""

from __future__ import annotations

import json
import re
from typing import Mapping, MutableMapping, NamedTuple


class Launcher(NamedTuple):
    """The variables by which one kind of launcher tells a process its place; the local ones may be missing."""

    rank: str
    world_size: str
    local_rank: str
    local_world_size: str


class Place(NamedTuple):
    """Where this process stands among the job's ranks."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


LAUNCHERS = (
    Launcher("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),  # torchrun, and musterpoint under any launcher
    Launcher(
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"
    ),
    Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # MPICH and Intel MPI
    Launcher("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
)
"""Asked in this order; the first that tells both rank and world size counts, and nothing is mixed from two of them."""

NOT_OF_SRUN = ("", "4294967290", "4294967291", "interactive", "batch")
"""SLURM_STEP_ID of a process that runs once: in the shell of ``salloc`` or of a batch script."""
SERVER_ADDRESS = "SMDATAPARALLEL_SERVER_ADDR"
"""Where AWS's toolkit says that the first host is."""
LOCAL_RANK_OF_AWS = "SMDATAPARALLEL_LOCAL_RANK"
"""What AWS's library sets; transformers up to 4.2x reads it."""
PORT = "7777"


def export(environ: MutableMapping[str, str]) -> None:
    """Adds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT to ``environ``.

    A variable that is there keeps its value. A process that no launcher started gets none.
    """
    launcher = next((each for each in LAUNCHERS if _started(each, environ)), None)
    if launcher is None:
        return
    for ours, theirs in zip(LAUNCHERS[0], launcher):
        if environ.get(theirs):
            _default(environ, ours, environ[theirs])
    if launcher.rank == "SLURM_PROCID":
        _default(environ, "LOCAL_WORLD_SIZE", _slurm_tasks_here(environ))
    _default(environ, LOCAL_RANK_OF_AWS, environ.get("LOCAL_RANK", ""))
    _default(environ, "MASTER_ADDR", _first_host(environ))
    _default(environ, "MASTER_PORT", PORT)


def place(environ: MutableMapping[str, str]) -> Place:
    """This process's place, after :func:`export`; the only rank where no launcher started it."""
    export(environ)
    found = {field: _number(environ, name) for field, name in zip(Place._fields, LAUNCHERS[0])}
    return Place(**{field: number for field, number in found.items() if number is not None})


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    if text and not text.isdecimal():
        raise ValueError(f"{name}={text!r}: expected a whole number, which the launcher of this process sets")
    return int(text) if text else None


def _started(launcher: Launcher, environ: Mapping[str, str]) -> bool:
    """Whether ``launcher`` started this process.

    In Slurm the shell of a batch script, or of ``salloc``, has the numbers of tasks that ``srun`` could start, and
    may have inherited those of a step in which it was called.
    """
    if not (environ.get(launcher.rank) and environ.get(launcher.world_size)):
        return False
    if launcher.rank != "SLURM_PROCID":
        return True
    step, tasks = environ.get("SLURM_STEP_ID", ""), environ.get("SLURM_STEP_NUM_TASKS", "")
    return step not in NOT_OF_SRUN and tasks in ("", environ[launcher.world_size])


def _default(environ: MutableMapping[str, str], name: str, value: str) -> None:
    if value and not environ.get(name):
        environ[name] = value


def _first_host(environ: Mapping[str, str]) -> str:
    """The host of rank 0; empty where there are several hosts and nothing says which they are."""
    if environ.get(SERVER_ADDRESS):
        return environ[SERVER_ADDRESS]
    hosts = _hosts(environ) or [_first_of(environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_NODELIST", ""))]
    one_host = environ.get("LOCAL_WORLD_SIZE", environ["WORLD_SIZE"]) == environ["WORLD_SIZE"]
    return hosts[0] or ("127.0.0.1" if one_host else "")


def _hosts(environ: Mapping[str, str]) -> list[str]:
    text = environ.get("SM_HOSTS") or "[]"
    try:
        hosts = json.loads(text)
    except ValueError:
        hosts = None
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise ValueError(f'SM_HOSTS={text!r}: expected a JSON list of host names such as ["algo-1", "algo-2"]')
    return hosts


def _first_of(nodes: str) -> str:
    """``node03`` of Slurm's ``node[03-05,9],other``."""
    found = re.match(r"([^,\[]*)(?:\[(\w+))?", nodes)
    return found[1] + (found[2] or "") if found else ""


def _slurm_tasks_here(environ: Mapping[str, str]) -> str:
    """This node's tasks, of ``2(x3),1`` for all nodes; empty where Slurm doesn't say."""
    counts: list[str] = []
    for tasks, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", environ.get("SLURM_STEP_TASKS_PER_NODE", "")):
        counts += [tasks] * int(times or 1)
    node = environ.get("SLURM_NODEID", "")
    return counts[int(node)] if node.isdecimal() and int(node) < len(counts) else ""
