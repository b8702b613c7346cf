"""``torchrun``: one agent per host, told everything it would otherwise infer from host names.

The agent starts the rank stub once per slot. It runs in ``/`` and without the user's PYTHONPATH (a ``queue.py`` beside
the script would be imported by torch); the stub gives both back to the program. Flags are torch.distributed.run's, from
torch 2.2 on; each also reads a ``PET_*`` variable (:mod:`musterpoint.launch.torchrun_variables`).
"""

from __future__ import annotations

from musterpoint.fabric.setting import EnvSetting
from musterpoint.launch.environment import unless_set
from musterpoint.launch.plan import Argument, LaunchPlan, ProcessPlan
from musterpoint.launch.site import Site
from musterpoint.launch.stub_command import stub_arguments
from musterpoint.launch.torchrun_variables import VIRTUAL, read_variables

SLOT = (Argument("${local_rank}", f"torchrun puts the slot's number here: by {VIRTUAL} it calls all of them 0"),)
"""Before the program's words, for the stub alone."""

C10D_NOTE = "--rendezvous c10d: torchrun numbers the hosts in the order they meet, which need not be the host order"


def plan_torchrun(site: Site) -> LaunchPlan:
    """This host's agent.

    Raises:
        UsageError: a variable of torchrun's is malformed.
    """
    roster, workspace = site.roster, site.workspace
    flags = (
        *_world(site),
        *(_c10d(site) if site.settings.rendezvous == "c10d" else _static(site)),
        Argument(f"--local-addr={site.own_address}", "this host's address, so that no name is looked up"),
        Argument(f"--rdzv-id={site.job.name or 'muster'}", "the job's name: agents of another job can't join"),
        Argument("--max-restarts=0", "the first failure ends the job"),
        Argument("--no-python", "what follows is a whole command"),
    )
    own = read_variables(
        site.environ, {name[2:]: value for name, _, value in (flag.text.partition("=") for flag in flags)}
    )
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
    order = (C10D_NOTE,) if site.settings.rendezvous == "c10d" and site.hosts > 1 else ()
    return LaunchPlan(
        launcher="torchrun",
        host=roster.me,
        processes=(agent,),
        environment=unless_set((node_rank, *site.environment), site.environ),
        local_ranks=roster.seat.slots,
        world_size=roster.world_size,
        first_rank=roster.first_rank,
        user_cwd=workspace.cwd,
        user_pythonpath=site.pythonpath,
        unset=(*(name for name in ("PYTHONPATH",) if name in site.environ), *own.unset),
        notes=(*order, *own.notes),
    )


def _world(site: Site) -> tuple[Argument, ...]:
    slots = {seat.slots for seat in site.roster.group}
    uneven = "" if len(slots) == 1 else "; other hosts have another number, and torchrun allows for it"
    return (
        Argument(f"--nnodes={site.hosts}", "hosts in the group, all of them here"),
        Argument(f"--nproc-per-node={site.roster.seat.slots}", f"slots of this host{uneven}"),
    )


def _static(site: Site) -> tuple[Argument, ...]:
    return (
        Argument("--rdzv-backend=static", "rank order is host order"),
        Argument(f"--node-rank={site.roster.node_rank}", "this host's place in the group"),
        Argument(f"--master-addr={_bracketed(site.master_address)}", "the leader, whose agent listens"),
        Argument(f"--master-port={site.roster.master_port}", "free on the leader"),
    )


def _c10d(site: Site) -> tuple[Argument, ...]:
    leads = site.roster.node_rank == 0
    endpoint = f"{_bracketed(site.master_address)}:{site.roster.master_port}"
    return (
        Argument("--rdzv-backend=c10d", "--rendezvous c10d was given"),
        Argument(f"--rdzv-endpoint={endpoint}", "the leader, whose agent listens"),
        Argument(f"--rdzv-conf=is_host={str(leads).lower()}", "who listens, so that torchrun needn't guess by name"),
    )


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
