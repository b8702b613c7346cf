"""Every launcher that can be chosen can be planned."""

from __future__ import annotations

from typing import Callable

import pytest

from musterpoint.fabric.setting import EnvSetting
from musterpoint.launch.build import LAUNCHERS
from musterpoint.launch.choose import BUILT
from musterpoint.launch.plan import LaunchPlan

Planner = Callable[..., LaunchPlan]


def test_the_tables_agree() -> None:
    assert tuple(LAUNCHERS) == BUILT


@pytest.mark.parametrize("launcher", BUILT)
def test_every_plan_is_complete(plan: Planner, launcher: str) -> None:
    network = (EnvSetting("GLOO_SOCKET_IFNAME", "eth0", "a reason"),)
    made = plan(launcher, {"a": 1, "b": 2}, "b", network=network, exports=(("SM_HOSTS", "[]"),))
    assert (made.launcher, made.host) == (launcher, "b")
    assert made.user_cwd == "/opt/ml/code"
    assert {"GLOO_SOCKET_IFNAME", "SM_HOSTS"} <= {setting.name for setting in made.environment}
    assert all(setting.reason for setting in made.environment)
    assert {process.role for process in made.processes} == {"launcher" if launcher == "torchrun" else "rank"}
