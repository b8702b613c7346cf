"""``torchrun``: one agent per host. Its flags say everything that it would otherwise infer from host names.

The agent starts the rank stub once per slot. It runs in ``/`` and without the user's PYTHONPATH (torch would import a
``queue.py`` beside the script); the stub restores both for the program. Flags are torch.distributed.run's, from
torch 2.2 on; each also reads a ``PET_*`` variable (:func:`read_variables`). When ranks are started again, no agent is
(:mod:`musterpoint.core.launch.identity`), unless it does more than to start them.
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.readers import bracketed
from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.identity import plan_restarted
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import Argument, LaunchPlan, ProcessPlan, stub_arguments
from musterpoint.core.launch.launcher import PYTHONPATH, Asked, Launcher
from musterpoint.core.launch.launchers import LAUNCHERS
from musterpoint.core.launch.rendezvous import rendezvous

PREFIX = "PET_"
VIRTUAL = "PET_VIRTUAL_LOCAL_RANK"
NCCL = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
HONOURED = (
    "EVENT_LOG_HANDLER",
    "MONITOR_INTERVAL",
    "ROLE",
    "SHUTDOWN_TIMEOUT",
    "SIGNALS_TO_HANDLE",
    "START_METHOD",
    "VIRTUAL_LOCAL_RANK",
)
"""Left to torchrun: they don't affect the plan, except for the local rank, which the stub is then told."""
OVERRIDDEN: dict[str, str] = {
    "NNODES": "the hosts are those of the roll call",
    "NPROC_PER_NODE": "ranks per host are --slots",
    "NODE_RANK": "the roll call gives every host its place",
    "MASTER_ADDR": "the roll call gives the leader's address",
    "MASTER_PORT": "the rendezvous port is --master-port",
    "LOCAL_ADDR": "the roll call gives every host's address",
    "RDZV_BACKEND": "how agents meet is --rendezvous",
    "RDZV_ENDPOINT": "agents meet where the roll call says, at --master-port",
    "RDZV_ID": "the job's name is the rendezvous id",
    "RDZV_CONF": "agents meet as the roll call says",
    "STANDALONE": "agents meet as the roll call says",
    "MAX_RESTARTS": "restarts, on all hosts, are --max-restarts of musterpoint's",
    "MODULE": "a module is started by -m",
    "NO_PYTHON": "the stub starts whatever the program is",
    "RUN_PATH": "the stub starts the program",
    "LOG_DIR": "a file per rank is --log-dir",
    "REDIRECTS": "a file per rank is --log-dir",
    "TEE": "a file per rank is --log-dir",
    "LOCAL_RANKS_FILTER": "ranks whose output is forwarded are --log-ranks",
    "DUPLICATE_STDOUT_FILTERS": "the ranks' output doesn't go through torchrun",
    "DUPLICATE_STDERR_FILTERS": "the ranks' output doesn't go through torchrun",
}
"""Variables that aren't followed (names without prefix), and what counts instead."""
SWITCHES = ("STANDALONE", "MODULE", "NO_PYTHON", "RUN_PATH", "VIRTUAL_LOCAL_RANK")
"""torchrun reads these as numbers even where the flag is given, and fails with a traceback on any other text."""
SLOT = (Argument("${local_rank}", f"torchrun puts the slot's number here: by {VIRTUAL} it calls all of them 0"),)
"""The word before the program's argv that only the stub reads."""
C10D_NOTE = "--rendezvous c10d: torchrun numbers the hosts in the order they meet, which need not be the host order"


def plan_torchrun(inputs: LaunchInputs) -> LaunchPlan:
    """This host's plan: torchrun's agent; in later attempts its ranks, where it does no more than to start them.

    Raises:
        UsageError: a variable of torchrun's is malformed.
    """
    roster, workspace = inputs.roster, inputs.workspace
    flags = (
        *_world(inputs),
        *(_c10d(inputs) if inputs.settings.rendezvous == "c10d" else _static(inputs)),
        Argument(f"--local-addr={inputs.own_address}", "this host's address, so that no name is looked up"),
        Argument(f"--rdzv-id={inputs.job.name or 'muster'}", "the job's name: agents of another job can't join"),
        Argument("--max-restarts=0", "musterpoint starts all ranks again, where that was asked for"),
        *_binding(inputs),
        Argument("--no-python", "what follows is a whole command"),
    )
    own = read_variables(
        inputs.environ, {name[2:]: value for name, _, value in (flag.text.partition("=") for flag in flags)}
    )
    if inputs.roster.attempt and _only_starts_ranks(inputs, own):
        plan = plan_restarted(inputs, lambda rank: _of_agent(inputs, rank), own.unset)
        return plan._replace(notes=own.notes, meeting=rendezvous(inputs))
    agent = ProcessPlan(
        "launcher",
        "torchrun",
        (
            Argument(workspace.interpreter, "the program's Python"),
            Argument("-m", "torchrun, of the torch that this Python has"),
            Argument("torch.distributed.run"),
            *flags,
            *stub_arguments(workspace.interpreter, workspace.argv, SLOT if own.virtual else ()),
        ),
    )
    node_rank = EnvSetting("NODE_RANK", str(roster.node_rank), "this host's place in the group; torchrun sets no such")
    order = (C10D_NOTE,) if inputs.settings.rendezvous == "c10d" and inputs.hosts > 1 else ()
    plan = inputs.plan((agent,), inputs.environment(node_rank), own.unset, (*order, *own.notes))
    # with c10d torchrun itself chooses where ranks meet
    return plan if inputs.settings.rendezvous == "c10d" else plan._replace(meeting=rendezvous(inputs))


def _only_starts_ranks(inputs: LaunchInputs, own: Variables) -> bool:
    """Whether the agent neither binds ranks, nor numbers devices for them, nor replaces ``${local_rank}`` in words."""
    return not (own.virtual or inputs.settings.numa_binding or any("$" in word for word in inputs.workspace.argv))


def _of_agent(inputs: LaunchInputs, rank: int) -> tuple[EnvSetting, ...]:
    """What the agent gives a rank beside its identity, in _start_workers of torch 2.13's local_elastic_agent.py."""
    role, alone = inputs.environ.get("PET_ROLE") or "default", "all ranks have one role"
    return (
        EnvSetting("ROLE_NAME", role, "torchrun's name for these ranks"),
        EnvSetting("ROLE_RANK", str(rank), alone),
        EnvSetting("ROLE_WORLD_SIZE", str(inputs.roster.world_size), alone),
        EnvSetting("GROUP_WORLD_SIZE", str(inputs.hosts), "hosts in the group, by torchrun's name"),
        EnvSetting("TORCHELASTIC_MAX_RESTARTS", "0", "musterpoint starts all ranks again"),
        EnvSetting("TORCHELASTIC_RUN_ID", inputs.job.name or "muster", "the job's name, as the agent gave it"),
        EnvSetting("TORCHELASTIC_USE_AGENT_STORE", "False", "rank 0 keeps the store, as there is no agent"),
        EnvSetting(NCCL, inputs.environ.get(NCCL, "1"), "as the agent sets it"),
    )


def _world(inputs: LaunchInputs) -> tuple[Argument, ...]:
    slots = {seat.slots for seat in inputs.roster.group}
    uneven = "" if len(slots) == 1 else "; other hosts have another number, and torchrun allows for it"
    return (
        Argument(f"--nnodes={inputs.hosts}", "hosts in the group, all of them here"),
        Argument(f"--nproc-per-node={inputs.roster.seat.slots}", f"slots of this host{uneven}"),
    )


def _binding(inputs: LaunchInputs) -> tuple[Argument, ...]:
    how = inputs.settings.numa_binding
    return (Argument(f"--numa-binding={how}", "--numa-binding was given"),) if how else ()


def _static(inputs: LaunchInputs) -> tuple[Argument, ...]:
    return (
        Argument("--rdzv-backend=static", "rank order is host order"),
        Argument(f"--node-rank={inputs.roster.node_rank}", "this host's place in the group"),
        Argument(f"--master-addr={bracketed(inputs.master_address)}", "the leader, whose agent listens"),
        Argument(f"--master-port={inputs.roster.master_port}", "free on the leader"),
    )


def _c10d(inputs: LaunchInputs) -> tuple[Argument, ...]:
    leads = inputs.roster.node_rank == 0
    endpoint = f"{bracketed(inputs.master_address)}:{inputs.roster.master_port}"
    return (
        Argument("--rdzv-backend=c10d", "--rendezvous c10d was given"),
        Argument(f"--rdzv-endpoint={endpoint}", "the leader, whose agent listens"),
        Argument(f"--rdzv-conf=is_host={str(leads).lower()}", "who listens, so that torchrun needn't guess by name"),
    )


class Variables(NamedTuple):
    """How torchrun's variables are treated.

    unset: variables that torchrun must not get.
    notes: sentences about variables that aren't followed.
    virtual: whether torchrun gives every rank the local rank 0.
    """

    unset: tuple[str, ...]
    notes: tuple[str, ...]
    virtual: bool


def read_variables(environ: Mapping[str, str], flags: Mapping[str, str]) -> Variables:
    """How torchrun's variables in ``environ`` are treated; ``flags`` are those of the plan (``nnodes``: ``2``).

    Raises:
        UsageError: a switch that counts is no number.
    """
    unset, notes = [], []
    for name, why in OVERRIDDEN.items():
        text = environ.get(PREFIX + name)
        if text is None:
            continue
        planned = flags.get(name.lower().replace("_", "-"))
        if planned is None or name in SWITCHES:
            unset.append(PREFIX + name)
        if text not in ("", planned) and not (name in SWITCHES and text == "0"):
            notes.append(f"{PREFIX}{name}={text} isn't followed: {why}")
    # torchrun fails on an empty text, which is no number
    unset += [PREFIX + name for name in HONOURED if environ.get(PREFIX + name) == ""]
    return Variables(tuple(unset), tuple(notes), _virtual(environ))


def _virtual(environ: Mapping[str, str]) -> bool:
    text = environ.get(VIRTUAL) or "0"
    try:
        return bool(int(text))
    except ValueError:
        raise UsageError(f"{VIRTUAL}={text!r}: expected 1 or 0, which is all that torchrun reads") from None


_NO_MPIRUN = Asked(
    "the job asks for smdistributed {} parallelism; there is no mpirun on PATH, and torchrun starts ranks of PyTorch "
    "as well",
    needs="torch",
    instead=True,
)

LAUNCHER = Launcher(
    name="torchrun",
    summary="torchrun's agent on every host, which starts a rank per slot",
    starts="foreign",
    plan=plan_torchrun,
    instead_of=dict.fromkeys(LAUNCHERS["torchrun"].commands, "--launcher torchrun SCRIPT"),
    asked_by={
        "torch_distributed": Asked("the job asks for torch_distributed"),
        "pytorch_ddp": Asked("the job asks for pytorchddp, which is torchrun by another name"),
        "smdistributed_modelparallel": _NO_MPIRUN._replace(reason=_NO_MPIRUN.reason.format("model")),
        "smdistributed_dataparallel": _NO_MPIRUN._replace(reason=_NO_MPIRUN.reason.format("data")),
    },
    needs="torch",
    reads=("slots", "rendezvous", "numa_binding", "cpu_binding"),
    hides=(PYTHONPATH,),
)
