"""TF_CONFIG, from which every TensorFlow strategy learns its cluster and its own task. It does no I/O.

Source: TensorFlow, "Distributed training with TensorFlow" (``TF_CONFIG``) and ``TFConfigClusterResolver``. Since 2.13 a
role with an empty list is refused, so none is ever written.
"""

from __future__ import annotations

import json
from typing import Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.base.readers import bracketed
from musterpoint.base.records import NamedTuple
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.inputs import LOOPBACK, LaunchInputs
from musterpoint.core.launch.launch_plan import LaunchPlan, ProcessPlan, rank_process, service_process
from musterpoint.core.launch.tensorflow.tasks import default_port

NAME = "TF_CONFIG"
SERVERS = ("ps", "evaluator")
"""Task types that run for as long as the others need them."""


class ExistingTask(NamedTuple):
    """This host's task in a TF_CONFIG that was already set.

    role: the type of this host's task; empty: it has none.
    number: its index.
    cluster: the roles of all tasks.
    """

    role: str = ""
    number: int = 0
    cluster: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        return f"{self.role} {self.number}" if self.role else "no task"

    @property
    def serves(self) -> bool:
        """Whether the program here runs until it is stopped.

        In TensorFlow 2 the workers of a chief with parameter servers do. In TensorFlow 1 the job ends with the chief.
        """
        return self.role in SERVERS or (self.role == "worker" and {"chief", "ps"} <= {*self.cluster})


def existing_task(environ: Mapping[str, str]) -> ExistingTask | None:
    """The task that the platform or the user set in TF_CONFIG; None where it isn't set.

    Raises:
        UsageError: it is no JSON object, or its task isn't a type and an index.
    """
    text = environ.get(NAME, "")
    if not text:
        return None
    form = f'{NAME}={text!r}: expected {{"cluster": {{"worker": ["host:port"]}}, "task": {{"type": …, "index": …}}}}'
    try:
        value = json.loads(text)
        task, cluster = value.get("task") or {}, value.get("cluster") or {}
        role, index = task.get("type", ""), task.get("index", 0)
        return ExistingTask(str(role), int(index), tuple(cluster))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise UsageError(form) from None


def repaired(environ: Mapping[str, str]) -> str:
    """TF_CONFIG without its empty roles, which AzureML writes and TensorFlow 2.13 refuses; empty where it has none.

    Call it where :func:`existing_task` has found a task.
    """
    value = json.loads(environ[NAME])
    cluster = value.get("cluster") or {}
    kept = {role: addresses for role, addresses in cluster.items() if addresses}
    return json.dumps({**value, "cluster": kept}) if len(kept) < len(cluster) else ""


def encode(cluster: Mapping[str, Sequence[str]], role: str, index: int, more: Mapping[str, str]) -> str:
    """The variable's text. ``cluster`` has each role's addresses (``host:port``) in the order of their indices.

    ``more``: what the platform's own toolkit writes beside them.
    """
    config: dict[str, object] = {
        "cluster": {name: list(addresses) for name, addresses in cluster.items() if addresses},
        "task": {"type": role, "index": index},
    }
    return json.dumps({**config, **more})


def address(inputs: LaunchInputs, host: str, place: int) -> str:
    """``host:port`` of server number ``place`` on ``host``, for the other hosts."""
    seat = next(seat for seat in inputs.roster.seats if seat.name == host)
    found = LOOPBACK if inputs.hosts == 1 else seat.name if inputs.settings.tf_hosts == "names" else seat.address
    return f"{bracketed(found)}:{port(inputs, host, place)}"


def port(inputs: LaunchInputs, host: str, place: int) -> int:
    """The port that ``host`` offered for its server number ``place``; the preferred port where it offered none."""
    offered = next(seat.ports for seat in inputs.roster.seats if seat.name == host)
    return offered[place] if place < len(offered) else preferred(inputs, place)


def preferred(inputs: LaunchInputs, place: int) -> int:
    """The preferred port of a host's server number ``place``."""
    return (inputs.settings.tf_port or default_port(inputs.launcher, inputs.job)) + place


def port_notes(inputs: LaunchInputs, servers: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """A sentence for every server (host and place) that doesn't get its preferred port."""
    if inputs.settings.tf_port is not None:
        return ()
    moved = [(host, preferred(inputs, place), port(inputs, host, place)) for host, place in servers]
    return tuple(
        f"port {wanted} is taken on {host}: its TensorFlow server listens on {got}"
        for host, wanted, got in moved
        if wanted != got
    )


def plan_existing(inputs: LaunchInputs, task: ExistingTask) -> LaunchPlan:
    """A plan that keeps the TF_CONFIG that was already set; the program is a service where its task is a server."""
    roster = inputs.roster
    note = f"TF_CONFIG was set already and is kept: {roster.me} is {task.task}"
    text = repaired(inputs.environ)
    own = (EnvSetting(NAME, text, "as it was set, without its empty roles, which TensorFlow refuses"),)
    settings = own if text else ()
    if not task.serves:
        return plan_once(inputs, rank_process(inputs.workspace, roster.first_rank, settings), (note,))
    return plan_once(inputs, service_process(inputs.workspace, task.task, settings), (note,))._replace(local_ranks=0)


def plan_once(inputs: LaunchInputs, process: ProcessPlan, notes: tuple[str, ...]) -> LaunchPlan:
    """A plan with ``process`` as this host's one rank."""
    return inputs.plan((process,), inputs.program_environment(), notes=notes)._replace(local_ranks=1)
