"""An inner launcher: it plans with the hosts of the musterpoint above it, and starts nothing itself."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.settings import Settings
from musterpoint.core.code.interpreter import user_environment
from musterpoint.core.job.read import read_job
from musterpoint.core.nested import launch_nested, plan_nested
from musterpoint.core.rollcall.roster import Roster, Seat
from musterpoint.core.runtime import Request

SEATS = (
    Seat("algo-1", "10.0.0.1", 1, True, "", 4),
    Seat("algo-2", "10.0.0.2", 1, True, "", 2),
    Seat("algo-3", "10.0.0.3", 0, False, "", 8),
)


@pytest.mark.parametrize(
    ("options", "slots", "ranks", "first"),
    [
        ({"launcher": "ranks"}, (4, 2, 0), 2, 4),
        ({"launcher": "ranks", "slots": 3}, (3, 3, 0), 3, 3),
        ({"launcher": "script"}, (1, 1, 0), 1, 1),
        ({"launcher": "parameter-server"}, (1, 1, 0), 1, 1),
        ({"launcher": "parameter-server", "tf_roles": "worker=2,ps=1"}, (1, 0, 0), 0, 1),
    ],
)
def test_an_inner_launcher_plans_with_the_outer_ones_hosts(
    options: dict[str, Any], slots: tuple[int, ...], ranks: int, first: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    settings = Settings(**options)
    read = read_job({}, settings, str(tmp_path / "none"), "train.py")
    offered = Roster("digits", "s", SEATS, "10.0.0.1", 7777, "algo-2")
    plan = plan_nested(read, settings, offered, user_environment({}))
    assert (plan.host, plan.local_ranks, plan.first_rank, plan.world_size) == ("algo-2", ranks, first, sum(slots))
    variables = {setting.name: setting.value for setting in (*plan.environment, *plan.processes[0].environment)}
    assert variables.get("MASTER_ADDR", "10.0.0.1") == "10.0.0.1"
    assert json.loads(variables["SM_HOSTS"]) == ["algo-1", "algo-2", "algo-3"]


@pytest.mark.parametrize("variable", [{}, {"MUSTER_OUTER": ""}, {"MUSTER_OUTER": "@nobody-listens-here"}])
def test_nobody_above(variable: dict[str, str], tmp_path: Path) -> None:
    environ = {"SAGEMAKER_BASE_DIR": str(tmp_path), **variable}
    assert launch_nested(Request(environ, {}, "train.py")) is None


@pytest.mark.skipif("linux" not in sys.platform, reason="abstract sockets are Linux's")
def test_a_job_above_that_takes_no_plan_any_more(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as control_socket:
        control_socket.bind(f"\0musterpoint-test-{os.getpid()}")
        control_socket.listen()
        closes = threading.Thread(target=lambda: control_socket.accept()[0].close())
        closes.start()
        environ = {"SAGEMAKER_BASE_DIR": str(tmp_path), "MUSTER_OUTER": f"@musterpoint-test-{os.getpid()}"}
        assert launch_nested(Request(environ, {}, "train.py")) == 143
        closes.join()
    assert "takes no plan" in capfd.readouterr().err
