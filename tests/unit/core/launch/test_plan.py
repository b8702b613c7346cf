"""Launch plans on their way from an inner launcher to the supervisor above it; the words that start the stub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.kinds import LAUNCHERS
from musterpoint.core.fabric.setting import CpuSet, EnvSetting
from musterpoint.core.launch.plan import (
    PLANNED,
    Argument,
    LaunchPlan,
    Meeting,
    ProcessPlan,
    Role,
    stub_arguments,
    through_stub,
)

TEXT = st.text(st.characters(exclude_characters="\0=", exclude_categories=["Cs"]), max_size=8)
COUNT = st.integers(0, 70000)
RANKS = st.integers(0, 1 << 16)
OURS = st.sampled_from(["", *PLANNED])
SETTINGS = st.lists(st.builds(EnvSetting, TEXT, TEXT, TEXT, OURS), max_size=3).map(tuple)
PROCESSES = st.builds(
    ProcessPlan, st.sampled_from(get_args(Role)), TEXT,
    st.lists(st.builds(Argument, TEXT, TEXT, OURS), min_size=1, max_size=3).map(tuple), SETTINGS, TEXT,
    st.none() | COUNT, st.none() | COUNT, st.booleans(), st.booleans(), st.integers(0, 60),
)  # fmt: skip
WORDS = st.lists(TEXT, max_size=2).map(tuple)
MEETINGS = st.none() | st.builds(Meeting, COUNT, WORDS, st.booleans(), TEXT, WORDS, TEXT)
PLANS = st.builds(
    LaunchPlan, st.sampled_from(list(LAUNCHERS)), TEXT,
    st.lists(PROCESSES, max_size=3).map(tuple), SETTINGS, RANKS, COUNT, COUNT, TEXT, TEXT,
    WORDS, st.booleans(), WORDS, WORDS, st.integers(-1, 9), of_others=st.lists(PROCESSES, max_size=1).map(tuple),
    under_mpi=st.booleans(), hydra=st.booleans(), expands=st.booleans(),
    temporary=st.sampled_from(["", "/tmp/muster-ray-7-x"]),
    cpu_sets=st.lists(st.builds(CpuSet, st.sampled_from(["0", "0-3,8"]), TEXT), max_size=2).map(tuple),
    meeting=MEETINGS, ssh=st.none(),
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PLAN = LaunchPlan(
    "ranks", "algo-1",
    (ProcessPlan("rank", "rank 0", (Argument("python", "why"),), (EnvSetting("RANK", "0", "why"),), "/", 0, 0),),
    (EnvSetting("A", "1", "why"),), 1, 2, 0, "/code",
)  # fmt: skip


def sent(plan: LaunchPlan) -> Any:
    return json.loads(json.dumps(plan.to_wire()))


@given(PLANS)
def test_a_plan_survives_the_wire(plan: LaunchPlan) -> None:
    assert LaunchPlan.from_wire(sent(plan)) == plan


PROCESS = sent(PLAN)["processes"][0]
WRONG: list[dict[str, Any]] = [
    {"launcher": 1}, {"launcher": "other"}, {"local_ranks": 10**12},
    {"host": None}, {"processes": None}, {"processes": [[]]}, {"processes": ["rank"]},
    {"processes": [[*PROCESS[:2], [], *PROCESS[3:]]]}, {"processes": [[*PROCESS[:2], [[1, ""]], *PROCESS[3:]]]},
    {"processes": [["other", *PROCESS[1:]]]}, {"processes": [[*PROCESS[:5], "0", 0]]},
    {"processes": [[*PROCESS[:4], None, 0, 0]]}, {"environment": [["A"]]}, {"environment": [["A", 1, ""]]},
    {"environment": [["A", "", "", "nothing"]]}, {"environment": [["A", "", "", ["launch_agent"]]]},
    {"processes": [[*PROCESS[:2], [["x", "", "os"]], *PROCESS[3:]]]},
    {"environment": [["A=B", "1", ""]]}, {"environment": [["A", "nul\0", ""]]}, {"local_ranks": "2"},
    {"local_ranks": -1}, {"local_ranks": True}, {"world_size": None}, {"first_rank": 0.5}, {"user_cwd": None},
    {"user_pythonpath": 1}, {"unset": None}, {"unset": [1]}, {"notes": 5}, {"colour": "red"},
    {"independent": "yes"}, {"daemons": [1]}, {"daemons": 1}, {"local_rank_at": "2"},
    {"processes": [[*PROCESS[:7], "yes"]]}, {"processes": [[*PROCESS[:7], False, 1]]}, {"temporary": "/home"},
    {"processes": [[*PROCESS[:7], False, False, 61]]}, {"processes": [[*PROCESS[:7], False, False, "4"]]},
    {"temporary": 1}, {"temporary": "muster-ray-1/.."},
]  # fmt: skip


@pytest.mark.parametrize("change", WRONG, ids=repr)
def test_what_a_supervisor_could_not_start_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a launch plan: "):
        LaunchPlan.from_wire({**sent(PLAN), **change})


@given(JSON | st.dictionaries(st.sampled_from(LaunchPlan._fields), JSON).map(lambda change: {**sent(PLAN), **change}))
def test_garbage_is_a_value_error_and_nothing_else(garbage: Any) -> None:
    try:
        plan = LaunchPlan.from_wire(garbage)
    except ValueError:
        return
    assert sent(plan) == sent(LaunchPlan.from_wire(sent(plan)))
    assert all(isinstance(word, str) for process in plan.processes for word in process.words)
    assert plan.local_ranks >= 0


@pytest.mark.parametrize(
    ("role", "daemons", "foreign"), [("rank", (), False), ("launcher", (), True), ("rank", ("orted",), True)]
)
def test_ranks_are_foreign_where_a_launcher_or_a_daemon_brings_them_up(
    role: str, daemons: tuple[str, ...], foreign: bool
) -> None:
    process = PLAN.processes[0]._replace(role=role)
    assert PLAN._replace(processes=(process,), daemons=daemons).foreign == foreign


def test_the_stub_is_read_from_where_the_variable_says(tmp_path: Path) -> None:
    stub = tmp_path / "stub"
    stub.write_text("import sys\nprint(sys.argv, sys.flags.isolated, sys.flags.no_site)\n")
    argv = through_stub(sys.executable, ["train.py", "--lr", "a b"])
    done = subprocess.run(
        argv, env={**os.environ, "MUSTER_STUB": str(stub)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['-c', '--', 'train.py', '--lr', 'a b'] 1 1\n"


def test_words_and_arguments_are_the_same() -> None:
    words = tuple(argument.text for argument in stub_arguments("python3", ["a", "b"]))
    assert words == through_stub("python3", ["a", "b"])
