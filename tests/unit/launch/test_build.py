"""Every launcher that can be chosen can be planned."""

from __future__ import annotations

from typing import Callable

import pytest

from musterpoint.fabric.setting import EnvSetting
from musterpoint.launch.build import LAUNCHERS
from musterpoint.launch.choose import ONE_PER_HOST
from musterpoint.launch.inputs import STANDINS
from musterpoint.launch.plan import LaunchPlan

Planner = Callable[..., LaunchPlan]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_plan_is_complete(plan: Planner, launcher: str) -> None:
    network = (EnvSetting("GLOO_SOCKET_IFNAME", "eth0", "a reason"),)
    slots = {"a": 1, "b": 1 if launcher in ONE_PER_HOST else 2}
    made = plan(launcher, slots, "b", network=network, exports=(("SM_HOSTS", "[]"),))
    assert made.host == "b"
    assert made.launcher == launcher
    assert made.user_cwd == "/opt/ml/code"
    assert {"GLOO_SOCKET_IFNAME", "SM_HOSTS"} <= {setting.name for setting in made.environment}
    assert all(setting.reason for setting in made.environment)
    assert made.processes or made.daemons
    own = {setting.value for setting in made.environment if setting.name == "PYTHONPATH"}
    assert made.user_pythonpath == f"/opt/ml/code:{STANDINS}"
    assert own == (set() if made.foreign else {made.user_pythonpath})
    assert made.foreign == (launcher in ("torchrun", "mpi", "deepspeed"))
