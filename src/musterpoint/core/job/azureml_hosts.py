"""The hosts of an AzureML job: how many, which one this is, which one leads. Each variable has others in its place."""

from typing import Any, Literal, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.readers import MOST_HOSTS, split_endpoint
from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import printable
from musterpoint.core.job.fields import count as whole_number
from musterpoint.core.job.fields import (
    each_once,
    first_set,
    host,
    is_loopback,
    mapping,
    parse,
    shown,
    small_text,
    wrong,
)
from musterpoint.core.job.model import Note, StartedRank, UnnamedHosts
from musterpoint.core.job.other_platforms import refuse_several

Form = Literal["mpi", "processes", "node", "tensorflow", "ray", "none"]
"""By AzureML's mpirun; a process per rank, or per node, of a PyTorch job; per task; beside a Ray cluster; per node."""

NODE_COUNT = "AZUREML_NODE_COUNT"
CONFIG = "AZUREML_CR_DISTRIBUTED_CONFIG"
RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
LOCAL_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
LOCAL_SIZE = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
"""Open MPI's variables, then Intel MPI's."""
_LISTS = (("AZ_BATCH_HOST_LIST", ","), ("AZ_BATCH_NODE_LIST", ";"))
_NODE_RANKS = ("NODE_RANK", "AZUREML_CR_NODE_RANK", "AZ_BATCHAI_TASK_INDEX")
_MASTERS = ("AZ_BATCH_MASTER_NODE", "AZ_BATCHAI_MPI_MASTER_NODE", "AZ_BATCHAI_JOB_MASTER_NODE_IP", "MASTER_IP")
START_RAY = "_AZUREML_CR_START_RAY"
RAY_FILE = "/tmp/ray/ray_current_cluster"
"""Where ``ray start`` leaves its cluster's address for ``ray.init()``."""
_ROLES = ("chief", "master", "worker", "ps", "evaluator")
"""Of TensorFlow, in the order of ranks."""
_LOCALHOST = ("localhost", "127.0.0.1", "::1")


class Count(NamedTuple):
    """How many hosts there are, and the variables that say so (empty: none does)."""

    number: int
    variable: str = ""


class Cluster(NamedTuple):
    """The hosts of the job.

    ``hosts``: their names in the order of ranks. ``current``: this one's. ``rank``: its place; None: unknown.
    ``leader``: the first one's name or address. ``rank_from`` and ``leader_from``: where both are from.
    ``unnamed``: set where the names of the others are unknown.
    """

    hosts: tuple[str, ...]
    current: str
    rank: int | None
    leader: str
    rank_from: str = ""
    leader_from: str = ""
    unnamed: UnnamedHosts | None = None
    notes: tuple[Note, ...] = ()


_MOST_RANKS = 1 << 24
"""More than any job has; its hosts are counted further on."""


def whole(environ: Mapping[str, str], variable: str, least: int) -> int:
    """A variable's whole number. A UsageError names the variable."""
    return whole_number(environ[variable].strip(), f"the variable {variable}", least, _MOST_RANKS)


def ray_cluster(environ: Mapping[str, str]) -> str:
    """What says that AzureML has started a Ray cluster around this process; empty where nothing does.

    The variable that makes it do so is recorded in FLAML's example of an AzureML job; the file is ``ray start``'s own.
    """
    if environ.get("RAY_ADDRESS"):
        return f"RAY_ADDRESS={environ['RAY_ADDRESS']}"
    if environ.get(START_RAY, "").lower() in ("true", "1"):
        return f"{START_RAY}={environ[START_RAY]}"
    address = small_text(RAY_FILE).strip()
    return f"{RAY_FILE}: {printable(address, 60)}" if address else ""


def node_count(environ: Mapping[str, str], form: Form, given: int | None = None) -> Count:
    """How many hosts the job has. ``given``: --nnodes, for where no variable says it."""
    if form == "ray":  # the program runs once, beside the head of a cluster that AzureML has started
        return Count(1, ray_cluster(environ))
    if form == "tensorflow" and (machines := _machines(environ)):
        return Count(len(machines), "TF_CONFIG")
    if environ.get(NODE_COUNT):
        return Count(whole(environ, NODE_COUNT, 1), NODE_COUNT)
    listed, variable = host_list(environ)
    if listed:
        return Count(len(listed), variable)
    if form == "mpi":
        size, local_size = first_set(environ, SIZE), first_set(environ, LOCAL_SIZE)
        each = whole(environ, local_size, 1) if local_size else 1
        return Count(max(1, whole(environ, size, 1) // each), f"{size} over {local_size or 'one process each'}")
    if given is not None:
        return Count(given, "--nnodes")
    if form in ("processes", "node") and environ.get("WORLD_SIZE"):
        return _count_of_processes(environ, form)
    index = first_set(environ, _NODE_RANKS)
    if not index or not whole(environ, index, 0):
        index = first_set(environ, ("AZ_BATCH_MASTER_NODE",))  # AzureML sets it where there are several nodes
    if index:
        raise UsageError(
            f"{index}={environ[index]}: this is one of several hosts, and neither {NODE_COUNT} nor "
            f"AZ_BATCH_HOST_LIST says how many: set {NODE_COUNT}, or pass --nnodes"
        )
    return Count(1)


def _count_of_processes(environ: Mapping[str, str], form: Form) -> Count:
    """The number of hosts of a PyTorch job, from the numbers of its processes."""
    world = whole(environ, "WORLD_SIZE", 1)
    if environ.get("LOCAL_WORLD_SIZE"):
        return Count(max(1, world // whole(environ, "LOCAL_WORLD_SIZE", 1)), "WORLD_SIZE over LOCAL_WORLD_SIZE")
    if form == "node":
        return Count(world, "WORLD_SIZE, taken as one process per host")
    rank, local = whole(environ, "RANK", 0), whole(environ, "LOCAL_RANK", 0)
    node = whole(environ, "NODE_RANK", 0) if environ.get("NODE_RANK") else 0
    if node and (rank - local) % node == 0 and rank > local:
        each = (rank - local) // node
        return Count(max(1, world // each), "WORLD_SIZE, RANK and NODE_RANK")
    if is_loopback(environ.get("MASTER_ADDR", "")):
        return Count(1, "MASTER_ADDR, which is this host itself")
    if world == 1 or (not node and rank == local == world - 1):
        return Count(1, "WORLD_SIZE, all of them on this host")
    raise UsageError(
        f"WORLD_SIZE={world}, RANK={rank}, LOCAL_RANK={local}: neither {NODE_COUNT} nor AZ_BATCH_HOST_LIST nor "
        f"LOCAL_WORLD_SIZE says how many hosts share these processes: set {NODE_COUNT}"
    )


def host_list(environ: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """The names of all hosts, and the variable they are from; empty where none has them."""
    for variable, separator in _LISTS:
        names = [name.strip() for name in environ.get(variable, "").split(separator) if name.strip()]
        if names:
            return _checked(names, variable), variable
    listed = _config(environ).get("host_list") or []
    if not isinstance(listed, list):
        raise wrong(f"the variable {CONFIG}: host_list", listed, "a list of host names")
    return _checked(listed, f"{CONFIG}: host_list"), CONFIG if listed else ""


def _checked(names: list[Any], variable: str) -> tuple[str, ...]:
    where = f"the variable {variable}"
    return each_once((host(name, where) for name in names), where)


def _config(environ: Mapping[str, str]) -> dict[str, Any]:
    text = environ.get(CONFIG, "")
    return mapping(parse(text, f"the variable {CONFIG}"), f"the variable {CONFIG}") if text else {}


def read_hosts(
    environ: Mapping[str, str], form: Form, count: Count, started: StartedRank | None, given: str = ""
) -> Cluster:
    """The hosts; ``count`` is how many there are, ``started`` the rank that this process was started as.

    ``given``: --rollcall-leader, for where no variable says which host is the first.

    Raises:
        UsageError: a variable is malformed or doesn't fit the others.
    """
    if count.number == 1:
        _refuse_others(environ, form, count, started)
        name = environ.get("HOSTNAME", "")
        listed, _variable = host_list(environ)
        current = listed[0] if len(listed) == 1 else name if _is_host(name) else "node-0"
        return Cluster((current,), current, 0, current)
    if form == "tensorflow" and (machines := _machines(environ)):
        return _of_tasks(environ, machines)
    rank, rank_from = _node_rank(environ, form, started)
    if rank is not None and rank >= count.number:
        raise UsageError(f"{rank_from} gives this host the number {rank}, from 0, of {count.number} ({count.variable})")
    leader, leader_from = _leader(environ, form)
    listed, variable = host_list(environ)
    notes: list[Note] = []
    if not leader and not listed and given:
        leader, leader_from = split_endpoint(given)[0], "--rollcall-leader"
    if not leader:
        if not listed:
            raise UsageError(
                f"{count.variable} says that there are {count.number} hosts, and no variable says which one is the "
                f"first: pass --rollcall-leader (MUSTER_ROLLCALL_LEADER), or set {_masters(form)[0]} or "
                "AZ_BATCH_HOST_LIST"
            )
        leader, leader_from = listed[0], f"the first in {variable}"
        notes.append(Note("warning", f"{_masters(form)[0]} isn't set: the first host is taken from {variable}"))
    why = _why_unnamed(listed, variable, count.number, rank, leader)
    if not why and rank is not None:
        return Cluster(listed, listed[rank], rank, leader, rank_from, leader_from, notes=tuple(notes))
    notes.append(Note("warning", f"{why}: the roll call learns the hosts' names from themselves"))
    if rank is None:
        notes.append(Note("warning", f"{', '.join(_NODE_RANKS)} aren't set: hosts are numbered as they come"))
    places = tuple(f"node-{place}" for place in range(count.number))
    return Cluster(
        places,
        places[rank or 0],
        rank,
        leader,
        rank_from,
        leader_from,
        UnnamedHosts(count.number, rank, leader),
        tuple(notes),
    )


def _refuse_others(environ: Mapping[str, str], form: Form, count: Count, started: StartedRank | None) -> None:
    """Refuses a job of one host where another variable says that there are more."""
    if form == "ray":
        index = first_set(environ, _NODE_RANKS)
        if index and whole(environ, index, 0):
            raise UsageError(
                f"{index}={environ[index]} and {count.variable}: AzureML runs a Ray job's program on the first host "
                "alone, expected 0: where this is no Ray job of AzureML's (type: ray), end that Ray and unset its "
                "variables"
            )
        return
    said = f"{count.variable} says that there is 1 host"
    listed, variable = host_list(environ)
    if len(listed) > 1:
        raise UsageError(f"{said}, and {variable} has {len(listed)}: correct one of them, or unset it")
    if form == "tensorflow":
        if environ.get(NODE_COUNT) and whole(environ, NODE_COUNT, 1) > 1:
            raise UsageError(f"{said}, and {NODE_COUNT} is {environ[NODE_COUNT]}: correct one of them, or unset it")
        return
    rank, rank_from = _node_rank(environ, form, started)
    if rank:
        raise UsageError(f"{said}, and {rank_from} gives this one the number {rank}, from 0: correct one of them")
    if not count.variable:
        refuse_several(environ)


def _why_unnamed(listed: tuple[str, ...], variable: str, number: int, rank: int | None, leader: str) -> str:
    """Why the list of hosts can't name each of them; empty if it can."""
    if not listed:
        return "AZ_BATCH_HOST_LIST isn't set"
    if len(listed) != number:
        return f"{variable} has {len(listed)} hosts, and the job {number}"
    if listed[0] != leader:
        return f"the first host in {variable} isn't {leader}"
    return "no variable says which of the hosts this one is" if rank is None else ""


def _is_host(name: str) -> bool:
    try:
        return bool(name and host(name, "HOSTNAME"))
    except UsageError:
        return False


def _masters(form: Form) -> tuple[str, ...]:
    return (*_MASTERS, "MASTER_ADDR") if form == "mpi" else ("MASTER_ADDR", *_MASTERS)


def _leader(environ: Mapping[str, str], form: Form) -> tuple[str, str]:
    """The first host, and the variable that names it; both empty where none does. Its port is left out."""
    for variable in _masters(form):
        text = environ.get(variable, "").strip()
        if not text:
            continue
        try:
            name, _port = split_endpoint(text)
        except ValueError:
            raise wrong(f"the variable {variable}", text, "an address, or address:port") from None
        name = host(name, f"the variable {variable}")
        if name not in _LOCALHOST:
            return name, variable
    return "", ""


def _node_rank(environ: Mapping[str, str], form: Form, started: StartedRank | None) -> tuple[int | None, str]:
    """This host's place, and what says so. OMPI_COMM_WORLD_NODE_RANK doesn't: it ranks the processes of a node."""
    by_rank = None
    if started is not None and (started.rank - started.local_rank) % started.local_size == 0:
        by_rank = (started.rank - started.local_rank) // started.local_size
    if by_rank is not None and form == "mpi":
        return by_rank, first_set(environ, RANK)
    variable = first_set(environ, _NODE_RANKS)
    if variable:
        return whole(environ, variable, 0), variable
    named = _config(environ).get("rank")
    if isinstance(named, str) and environ.get(named):
        return whole(environ, named, 0), f"{named}, which {CONFIG} names"
    if by_rank is not None:
        return by_rank, "RANK and LOCAL_RANK"
    return None, "no variable says so"


# -- TensorFlow --


def _task_config(environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The cluster and the task of TF_CONFIG."""
    where = "the variable TF_CONFIG"
    value = mapping(parse(environ["TF_CONFIG"], where), where)
    cluster = mapping(value.get("cluster") or {}, f"{where}: cluster")
    return cluster, mapping(value.get("task") or {}, f"{where}: task")


def tasks(environ: Mapping[str, str], role: str) -> tuple[str, ...]:
    """The addresses (``host:port``) of a role's tasks in TF_CONFIG."""
    found = _task_config(environ)[0].get(role) or []
    if not isinstance(found, list) or not all(isinstance(address, str) and address for address in found):
        raise wrong(f"the variable TF_CONFIG: cluster.{role}", found, 'a list of addresses such as ["host0:2222"]')
    return tuple(found)


def _machine(address: str) -> str:
    name = address.rpartition(":")[0] or address
    return host(name.strip("[]"), "the variable TF_CONFIG: an address")


def _machines(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts of TF_CONFIG's tasks, each once."""
    cluster = _task_config(environ)[0]
    roles = [role for role in _ROLES if role in cluster] + sorted(set(cluster) - set(_ROLES))
    addresses = [address for role in roles for address in tasks(environ, role)]
    machines = [_machine(address) for address in addresses]
    twice = next((each for each in machines if machines.count(each) > 1), "") if len(machines) < MOST_HOSTS else ""
    if twice:
        both = ", ".join(address for address, machine in zip(addresses, machines) if machine == twice)
        raise UsageError(
            f"the variable TF_CONFIG has several tasks on the host {twice}: {both}; musterpoint runs one on each: set "
            "the job's instance_count to its worker_count and parameter_server_count together"
        )
    return tuple(machines)


def _of_tasks(environ: Mapping[str, str], machines: tuple[str, ...]) -> Cluster:
    task = _task_config(environ)[1]
    role, index = task.get("type"), task.get("index", 0)
    addresses = tasks(environ, role) if isinstance(role, str) else ()
    number = whole_number(index, "the variable TF_CONFIG: task.index", 0)
    if number >= len(addresses):
        raise UsageError(
            f"the variable TF_CONFIG: its task is {shown(role)} {number}, and its cluster has {len(addresses)} of these"
        )
    current = _machine(addresses[number])
    place = machines.index(current)
    return Cluster(machines, current, place, machines[0], "TF_CONFIG's task", "TF_CONFIG's first task")
