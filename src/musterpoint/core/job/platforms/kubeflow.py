"""Reads the job from the variables that Kubeflow gives its pods: a TrainJob's (torch, JAX, XGBoost), a PyTorchJob's.

None of them lists the hosts, but all names follow from the first host's. Sources: kubeflow/trainer,
``pkg/runtime/framework/plugins``; kubeflow/training-operator, ``pkg/controller.v1/pytorch``; kubeflow/mpi-operator.
"""

from __future__ import annotations

import re
from typing import Iterable, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import MASTER_PORT, Settings
from musterpoint.core.job.fields import count, first_set, shown, wrong
from musterpoint.core.job.model import Job, Note
from musterpoint.core.job.opt_ml import BASE
from musterpoint.core.job.other_platforms import refuse_started_ranks, shown_variables
from musterpoint.core.job.platform import DocsRow, Numbers, Platform, RankPlace, StartedBy
from musterpoint.core.job.pods import INDEX, pod_job, pod_name

NAME = "kubeflow"
HOSTFILES = ("OMPI_MCA_orte_default_hostfile", "I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE")
"""Of Open MPI, Intel MPI and MPICH; an MPIJob's file is below /etc/mpi."""
ROLE = "K_MPI_JOB_ROLE"
_FIRST_NODE = re.compile(r"(?P<job>.+)-node-0-0\.(?P=job)(?:\..*)?")
"""A TrainJob's first pod, by the name that the trainer gives to all of them."""
_OWN_NODE = re.compile(r"(?P<job>.+)-node-0-(?P<place>[0-9]+)")
"""A TrainJob's pod, as it calls itself."""
_FIRST_REPLICA = re.compile(r"(?P<job>.+)-(?P<role>master|worker)-0(?P<domain>(?:\..*)?)")
"""A PyTorchJob's first pod: its master, or the first worker of one that has none."""

_LAST_PORT = 65535
_PORT = "23456"
"""MASTER_PORT of a PyTorchJob that names no other."""


class Variables(NamedTuple):
    """The names of the variables of one kind of TrainJob.

    leader: the first pod's name, with a port or without.
    total: how many processes there are, each on a pod of its own unless ``several``.
    place: this pod's number.
    slots: how many ranks a pod has, where that is said.
    several: whether ``total`` counts the GPUs of all pods.
    """

    leader: str
    total: str
    place: str
    slots: str = ""
    several: bool = False


KINDS = (
    Variables("PET_MASTER_ADDR", "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE"),
    Variables("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
    Variables("DMLC_TRACKER_URI", "DMLC_NUM_WORKER", "DMLC_TASK_ID", several=True),
)


def found(environ: Mapping[str, str], _base: str = "") -> bool:
    """Whether this process runs in a pod of Kubeflow's."""
    if _of_mpijob(environ) or _trainjob_of(environ):
        return True
    first = _FIRST_REPLICA.fullmatch(_replica(environ)[1])
    if first is None:
        return False
    # a machine of one's own could be called so, too
    own = re.fullmatch(re.escape(first["job"]) + "-(?:master|worker)-[0-9]+", pod_name(environ))
    return bool(environ.get("KUBERNETES_SERVICE_HOST") or environ.get("MASTER_PORT") == _PORT or own)


def _of_mpijob(environ: Mapping[str, str]) -> str:
    """The variable that only an MPIJob's pods have; empty where it isn't set."""
    if environ.get(ROLE):
        return ROLE
    return next((name for name in HOSTFILES if environ.get(name, "").startswith("/etc/mpi/")), "")


def _trainjob_of(environ: Mapping[str, str]) -> tuple[Variables, str] | None:
    """The variables of this pod's TrainJob, and the job's name; None where it is no TrainJob's."""
    for kind in KINDS:
        first = _FIRST_NODE.fullmatch(environ.get(kind.leader, "").partition(":")[0])
        if first:
            return kind, first["job"]
    # for torchtune the trainer puts the first pod into the command line of `tune run`, in place of the variable
    own = _OWN_NODE.fullmatch(pod_name(environ))
    told = environ.get("PET_NNODES") and environ.get("PET_NODE_RANK") and not environ.get("PET_MASTER_ADDR")
    if told and own and own["place"] == environ.get(INDEX):
        return KINDS[0], own["job"]
    return None


def _replica(environ: Mapping[str, str]) -> tuple[str, str]:
    """The variable that names a PyTorchJob's first pod, and the name in it."""
    variable = "MASTER_ADDR" if environ.get("MASTER_ADDR") else "PET_RDZV_ENDPOINT"
    return variable, environ.get(variable, "").partition(":")[0]


def read_job(environ: Mapping[str, str], settings: Settings, _base: str = "") -> Job:
    """The job of this pod's TrainJob or PyTorchJob.

    Raises:
        UsageError: a variable is malformed or missing, the number of pods isn't fixed, or it is an MPIJob's.
    """
    refuse_started_ranks(environ)
    _refuse_mpi(environ)
    trainjob = _trainjob_of(environ)
    if trainjob:
        return _trainjob(environ, settings, *trainjob)
    leader, address = _replica(environ)
    replica = _FIRST_REPLICA.fullmatch(address)
    if not address:
        raise UsageError(
            "none of PET_MASTER_ADDR, JAX_COORDINATOR_ADDRESS, DMLC_TRACKER_URI, MASTER_ADDR and PET_RDZV_ENDPOINT is "
            "set, expected the first pod's name in one of them: this is no pod of a TrainJob or PyTorchJob"
        )
    if replica is None:
        raise UsageError(
            f"{leader} is {shown(environ.get(leader, ''))}, expected the first pod's name in a TrainJob "
            "(JOB-node-0-0.JOB) or a PyTorchJob (JOB-master-0): name the pods in SM_HOSTS (a JSON list), and this one "
            "in SM_CURRENT_HOST"
        )
    return _pytorchjob(environ, replica["job"], replica["role"], replica["domain"])


def _trainjob(environ: Mapping[str, str], settings: Settings, kind: Variables, name: str) -> Job:
    number = count(_fixed(environ, kind.total), kind.total)
    if kind.several:
        number = _pods(number, kind, settings)
    variable = kind.place if environ.get(kind.place) else INDEX
    place = _place(environ, variable, number)
    pods = tuple(f"{name}-node-0-{pod}.{name}" for pod in range(number))
    job = pod_job(NAME, environ, pods, place, _slots(environ, kind.slots) if kind.slots else None)
    used = (kind.leader, kind.total, variable, kind.slots)
    note = _read_from("a TrainJob's", environ, used)
    return job._replace(name=name, notes=(note,), master_port=_master_port(environ, "PET_MASTER_PORT"))


def _pods(processes: int, kind: Variables, settings: Settings) -> int:
    """How many pods there are where ``processes`` counts their GPUs."""
    if settings.nnodes is not None:
        return settings.nnodes
    slots = settings.slots or 1
    if processes % slots:
        raise UsageError(
            f"{kind.total}={processes} counts the GPUs of all pods, and --slots is {slots}: expected as many on each, "
            "or MUSTER_NNODES, the number of pods"
        )
    return processes // slots


def _pytorchjob(environ: Mapping[str, str], name: str, role: str, domain: str) -> Job:
    """Of a PyTorchJob RANK is the pod's number, whereas WORLD_SIZE counts all pods' processes."""
    slots = _slots(environ, "PET_NPROC_PER_NODE")
    variable = "PET_NNODES" if environ.get("PET_NNODES") else "WORLD_SIZE"
    number = count(_fixed(environ, variable), variable)
    if variable == "WORLD_SIZE" and slots:
        number = max(1, number // slots)
    workers = [f"{name}-worker-{worker}{domain}" for worker in range(number)]
    pods = (f"{name}-master-0{domain}", *workers[:-1]) if role == "master" else tuple(workers)
    own = [at for at, pod in enumerate(pods) if pod.partition(".")[0] == pod_name(environ)]
    rank = first_set(environ, ("PET_NODE_RANK", "RANK"))
    if not rank and not own:
        raise UsageError(f"this pod is {pod_name(environ)}, expected one of the PyTorchJob's: {', '.join(pods)}")
    place = _place(environ, rank, number) if rank else own[0]
    used = (_replica(environ)[0], variable, rank or "HOSTNAME", "PET_NPROC_PER_NODE")
    note = _read_from("a PyTorchJob's", environ, used)
    port = _master_port(environ, "MASTER_PORT")
    return pod_job(NAME, environ, pods, place, slots)._replace(name=name, notes=(note,), master_port=port)


def _master_port(environ: Mapping[str, str], variable: str) -> int:
    """The port of torch's rendezvous, which the pods' ports and policies are made for."""
    port = count(environ.get(variable) or MASTER_PORT, variable)
    if port > _LAST_PORT:
        raise wrong(variable, port, f"a port, at most {_LAST_PORT}")
    return port


def _read_from(whose: str, environ: Mapping[str, str], names: Iterable[str]) -> Note:
    """Which variables the job was read from."""
    return Note("plan", f"{whose}: {', '.join(f'{name}={environ[name]}' for name in names if environ.get(name))}")


def _fixed(environ: Mapping[str, str], variable: str) -> str:
    """The number in ``variable``; a range is refused."""
    text = _needed(environ, variable)
    least, colon, most = text.partition(":")
    if colon and least != most:
        raise UsageError(
            f"{variable}={text}: the job may grow and shrink (elasticPolicy), expected a fixed number of pods: set "
            "minReplicas and maxReplicas to the same number, or leave elasticPolicy out"
        )
    return least


def _place(environ: Mapping[str, str], variable: str, number: int) -> int:
    place = count(_needed(environ, variable), variable, 0)
    if place >= number:
        raise wrong(variable, place, f"this pod's number among {number}, counted from 0")
    return place


def _slots(environ: Mapping[str, str], variable: str) -> int | None:
    """Ranks per pod; None for ``auto``, ``gpu`` or ``cpu``, which leave it to the devices."""
    text = environ.get(variable, "")
    return count(text, variable) if text and text not in ("auto", "gpu", "cpu") else None


def _needed(environ: Mapping[str, str], name: str) -> str:
    if not environ.get(name):
        raise UsageError(f"{name} isn't set, expected Kubeflow's value beside its other variables")
    return environ[name]


def _refuse_mpi(environ: Mapping[str, str]) -> None:
    """Of an MPIJob the launcher alone runs a command of the user's; its workers run sshd for mpirun."""
    name = _of_mpijob(environ)
    if name:
        raise UsageError(
            f"{shown_variables([(name, environ[name])])}: in an MPIJob mpirun starts ranks over ssh from its launcher, "
            "and no musterpoint runs on the other pods. Use a TrainJob with a torch runtime or an Indexed Job, whose "
            "pods all run `muster launch --launcher mpi PROGRAM`: musterpoint starts MPI's daemons without ssh; or "
            "leave musterpoint out of this job: `mpirun PROGRAM`"
        )


NUMBERED = (("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"), ("DMLC_TASK_ID", "DMLC_NUM_WORKER"))
"""A TrainJob's process and how many there are, by runtime: scripts for the JAX and XGBoost runtimes read them."""


def _stale(environ: Mapping[str, str], started_by: StartedBy) -> tuple[str, ...]:
    if started_by != "launcher":
        return ()
    return tuple(name for pair in NUMBERED for name in pair if name in environ)


def _of_rank(environ: Mapping[str, str], place: RankPlace) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        variable
        for process, number in NUMBERED
        if number in environ
        for variable in (
            (process, str(place.rank), "the rank, as of a pod with one process"),
            (number, str(sum(place.slots)), "the world size, as of pods with one process each"),
        )
    )


PLATFORM = Platform(
    name=NAME,
    title="Kubeflow",
    read=read_job,
    variables=("PET_", "JAX_", "DMLC_", "KUBEFLOW_", "K_MPI_", "OMPI_MCA_", INDEX, "KUBERNETES_SERVICE", "HOSTNAME"),
    found=found,
    folder=BASE,
    numbers=Numbers(_stale, _of_rank),
    row=DocsRow(
        "kubernetes.md#kubeflow",
        "`PET_*`, `JAX_*` or `DMLC_*` of a TrainJob; `MASTER_ADDR`, `WORLD_SIZE`, `RANK` of a PyTorchJob",
        "`muster launch …` as the trainer's command",
        "",
        "`/opt/ml` too, where it can be made, else as on machines of your own",
        "as on Kubernetes",
    ),
)
