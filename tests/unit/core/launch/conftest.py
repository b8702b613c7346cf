"""Jobs and rosters to plan for."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import pytest

from musterpoint.base.settings import Settings
from musterpoint.core.code.workspace import Workspace
from musterpoint.core.fabric.accelerate_config import Accelerate
from musterpoint.core.fabric.devices import Devices, Memory
from musterpoint.core.fabric.mpirun import OPEN_MPI, Mpi
from musterpoint.core.fabric.ssh import Ssh
from musterpoint.core.job.model import Distribution, EntryPoint, Job, StartedRank
from musterpoint.core.launch.host_plan import build_plan
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.launch.launchers import find_launcher
from musterpoint.core.rollcall.roster import Roster, Seat

Planner = Callable[..., LaunchPlan]
Values = Callable[..., dict[str, str]]

PYTHON = "/usr/bin/python3"
WORKSPACE = Workspace(
    "python", "train.py", (PYTHON, "train.py", "--lr", "0.1"), "/opt/ml/code", PYTHON, ("/opt/ml/code",)
)

EIGHT_PROCESSORS = Devices(cpus=8)
NO_DISTRIBUTION = Distribution()
NO_GPUS = Accelerate(
    "1.15.0", on_cpus=True, backend="gloo",
    variables={"ACCELERATE_USE_CPU": "true", "ACCELERATE_MIXED_PRECISION": "no", "ACCELERATE_DYNAMO_BACKEND": "NO"},
)  # fmt: skip
UNKNOWN = Memory()
OPENSSH = Ssh(
    "/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen", ("/usr/bin/scp",), "/usr/lib/openssh/sftp-server", "ml",
    "/tmp/muster-ssh-1",
)  # fmt: skip
OPEN_MPI_4 = Mpi("/usr/bin/mpirun", OPEN_MPI, (4, 1, 4), "mpirun (Open MPI) 4.1.4")


INPUTS = ("workspace", "devices", "environ", "exports", "network", "modules", "cpu_sets")


def seats(
    slots: Mapping[str, int], outside: tuple[str, ...] = (), network: str = "10.0.0.", ports: tuple[int, ...] = ()
) -> tuple[Seat, ...]:  # fmt: skip
    """``slots`` by host name, in order; addresses count up from 1."""
    return tuple(
        Seat(
            name,
            f"{network}{number}",
            0 if name in outside else count,
            name not in outside,
            capacity=count,
            ports=ports or (7700 + number, 7800 + number),
        )
        for number, (name, count) in enumerate(slots.items(), 1)
    )


@pytest.fixture
def plan() -> Planner:
    """Plans one host of a job whose hosts have these slots."""

    def make(
        launcher: str,
        slots: Mapping[str, int],
        me: str = "",
        *,
        outside: tuple[str, ...] = (),
        addresses: str = "10.0.0.",
        distribution: Distribution = NO_DISTRIBUTION,
        mpi: Mpi | None = OPEN_MPI_4,
        platform: str = "sagemaker",
        accelerate: Accelerate = NO_GPUS,
        memory: Memory = UNKNOWN,
        ports: tuple[int, ...] = (),
        slots_option: int | None = None,
        started: StartedRank | None = None,
        openssh: Ssh | None = OPENSSH,
        keys: str = "",
        attempt: int = 0,
        **more: Any,
    ) -> LaunchPlan:
        """``more``: other inputs of a launch by their names, and settings."""
        hosts = tuple(slots)
        me = me or hosts[0]
        group = tuple(name for name in hosts if name not in outside)
        table = tuple(
            seat._replace(ssh_key=keys + seat.name[-1] if keys else "")
            for seat in seats(slots, outside, addresses, ports)
        )
        leader = next(seat for seat in table if seat.grouped)
        known = {"mpi": mpi, "accelerate": accelerate, "ray": memory}.get(launcher)
        job = Job(platform, "digits", hosts, me, group, EntryPoint("train.py"), distribution)._replace(started=started)
        roster = Roster("digits", "s1", table, leader.address, 7777 + attempt, me)
        roster = roster._replace(attempt=attempt, max_restarts=attempt)
        given = {name: more.pop(name) for name in INPUTS if name in more}
        inputs = {"workspace": WORKSPACE, "devices": EIGHT_PROCESSORS, "environ": {}, **given}
        options = Settings(slots=slots_option, **more)
        return build_plan(
            LaunchInputs(
                find_launcher(launcher), job, roster=roster, settings=options, known=known, ssh=openssh, **inputs
            )
        )

    return make


@pytest.fixture
def values() -> Values:
    """The variables one process gets from a plan, by name."""

    def of(plan: LaunchPlan, process: int = 0) -> dict[str, str]:
        settings = (*plan.environment, *plan.processes[process].environment)
        names = [setting.name for setting in settings]
        assert len(names) == len(set(names)), "a variable is set twice"
        assert all(setting.reason for setting in settings)
        return {setting.name: setting.value for setting in settings}

    return of
