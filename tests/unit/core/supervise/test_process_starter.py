"""What processes of a plan get beside their words: their variables, and launchers a temporary directory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.launch_plan import Argument, LaunchPlan, ProcessPlan, program_of_ours
from musterpoint.core.supervise.process_starter import TemporaryDirectory, add_for_launcher, planned_environment


def test_the_temporary_directory_lies_below_the_users_and_goes_with_everything_in_it(tmp_path: Path) -> None:
    temporary = TemporaryDirectory()
    path = Path(temporary.path({"TMPDIR": str(tmp_path)}))
    assert temporary.path({}) == str(path), "made once"
    assert path.parent == tmp_path
    assert path.stat().st_mode & 0o777 == 0o700
    (path / "ompi.algo-1.0" / "pid.7").mkdir(parents=True)
    (path / "ompi.algo-1.0" / "pid.7" / "contact.txt").touch()
    temporary.close()
    temporary.close()
    assert list(tmp_path.iterdir()) == []


def test_no_directory_is_made_unless_somebody_asks(tmp_path: Path) -> None:
    TemporaryDirectory().close()
    assert list(tmp_path.iterdir()) == []


def test_where_none_can_be_made_launchers_use_what_they_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"TMPDIR": str(tmp_path / "missing")}
    monkeypatch.setattr("musterpoint.base.temporary.PLACES", (str(tmp_path), "/none"))
    temporary = TemporaryDirectory()
    assert Path(temporary.path(missing)).parent == tmp_path
    temporary.close()
    monkeypatch.setattr("musterpoint.base.temporary.PLACES", ("/none",))
    assert temporary.path(missing) == ""
    temporary.close()


PROCESS = ProcessPlan("launcher", "mpirun", (Argument("mpirun"),), (
    EnvSetting("AGENT", *program_of_ours("launch_agent", "ours")),
    EnvSetting("MINE", "{muster:launch_agent}", "the user's"),
))  # fmt: skip
PLAN = LaunchPlan(
    "mpi", "algo-1", (PROCESS,), (
        EnvSetting("WORLD_SIZE", "4", ""), EnvSetting("PYTHONPATH", "/code", ""),
        EnvSetting("LD_LIBRARY_PATH", "/compat:/lib", ""),
    ), 2, 4, 0, "/code", "/code:/lib", ("RANK", "GONE"),
)  # fmt: skip
ENVIRON = {"PATH": "/bin", "RANK": "7", "WORLD_SIZE": "1", "TMPDIR": "/scratch"}


SOCKET: Any = SimpleNamespace(address="@control_socket", token="t0ken")


def path(name: str) -> str:
    return {"launch_agent": "/proc/1/fd/5"}[name]


def test_the_plan_comes_on_top_and_the_process_on_top_of_that() -> None:
    assert planned_environment(PLAN, PROCESS, ENVIRON, SOCKET, path) == {
        "PATH": "/bin", "WORLD_SIZE": "4", "TMPDIR": "/scratch", "PYTHONPATH": "/code", "AGENT": "/proc/1/fd/5",
        "MINE": "{muster:launch_agent}",
        "LD_LIBRARY_PATH": "/compat:/lib",
        "MUSTER_OUTER": "@control_socket", "MUSTER_SOCKET_TOKEN": "t0ken", "MUSTER_PLANNED": "WORLD_SIZE",
    }  # fmt: skip


def test_what_a_launcher_carries() -> None:
    environment = {"PATH": "/bin", "PYTHONPATH": "/code", "TMPDIR": "/scratch", "MUSTER_OUTER": "@control_socket"}
    add_for_launcher(environment, PLAN._replace(local_rank_at=2), "/proc/1/fd/6", "/scratch/muster-1")
    assert environment == {
        "PATH": "/bin", "TMPDIR": "/scratch/muster-1", "MUSTER_USER_TMPDIR": "/scratch", "MUSTER_STUB": "/proc/1/fd/6",
        "MUSTER_OUTER": "@control_socket",
        "MUSTER_SOCKET": "@control_socket", "MUSTER_USER_CWD": "/code",
        "MUSTER_USER_PYTHONPATH": "/code:/lib", "MUSTER_LOCAL_RANK_AT": "2--local_rank",
    }  # fmt: skip


def test_what_is_not_taken_is_not_given_back() -> None:
    environment = {"MUSTER_OUTER": "@control_socket"}
    add_for_launcher(environment, PLAN, "/proc/1/fd/6", "")
    assert {"TMPDIR", "MUSTER_USER_TMPDIR", "MUSTER_LOCAL_RANK_AT"} & set(environment) == set()
