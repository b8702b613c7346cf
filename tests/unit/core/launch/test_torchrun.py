"""torchrun's argv, word for word, and its variables."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.launch.inputs import STANDINS, STARTUP
from musterpoint.core.launch.launch_plan import BOOT, LaunchPlan
from musterpoint.core.launch.launchers.torchrun import HONOURED, OVERRIDDEN, PREFIX, VIRTUAL

from .conftest import WORKSPACE, Planner, Values

START = ["/usr/bin/python3", "-m", "torch.distributed.run"]
END = [
    "--rdzv-id=digits", "--max-restarts=0", "--no-python",
    "/usr/bin/python3", "-I", "-S", "-c", BOOT, "--", "/usr/bin/python3", "train.py", "--lr", "0.1",
]  # fmt: skip


C10D = {"rendezvous": "c10d"}
GOLDEN: dict[str, tuple[dict[str, int], str, str, dict[str, str], str]] = {
    "one host": ({"laptop": 2}, "laptop", "10.0.0.", {}, "--nnodes=1 --nproc-per-node=2 --rdzv-backend=static "
     "--node-rank=0 --master-addr=127.0.0.1 --master-port=7777 --local-addr=127.0.0.1"),
    "second of two": ({"algo-1": 8, "algo-2": 8}, "algo-2", "10.0.0.", {}, "--nnodes=2 --nproc-per-node=8 "
     "--rdzv-backend=static --node-rank=1 --master-addr=10.0.0.1 --master-port=7777 --local-addr=10.0.0.2"),
    "IPv6, uneven": ({"algo-1": 1, "algo-2": 4}, "algo-1", "fd00::", {}, "--nnodes=2 --nproc-per-node=1 "
     "--rdzv-backend=static --node-rank=0 --master-addr=[fd00::1] --master-port=7777 --local-addr=fd00::1"),
    "c10d leader": ({"algo-1": 2, "algo-2": 2}, "algo-1", "10.0.0.", C10D, "--nnodes=2 --nproc-per-node=2 "
     "--rdzv-backend=c10d --rdzv-endpoint=10.0.0.1:7777 --rdzv-conf=is_host=true --local-addr=10.0.0.1"),
    "c10d IPv6": ({"algo-1": 2, "algo-2": 2}, "algo-2", "fd00::", C10D, "--nnodes=2 --nproc-per-node=2 "
     "--rdzv-backend=c10d --rdzv-endpoint=[fd00::1]:7777 --rdzv-conf=is_host=false --local-addr=fd00::2"),
}  # fmt: skip


@pytest.mark.parametrize(("slots", "me", "addresses", "settings", "flags"), GOLDEN.values(), ids=GOLDEN)
def test_golden_argv(
    plan: Planner, slots: dict[str, int], me: str, addresses: str, settings: dict[str, str], flags: str
) -> None:
    made = plan("torchrun", slots, me, addresses=addresses, **settings)
    (agent,) = made.processes
    assert agent.words == [*START, *flags.split(), *END]
    assert (agent.role, agent.cwd, agent.rank) == ("launcher", "/", None)
    assert all(argument.reason for argument in agent.argv if argument.text.startswith("-") and argument.text != "--lr")


def test_the_agent_is_kept_from_the_users_modules(plan: Planner, values: Values) -> None:
    made = plan("torchrun", {"a": 1, "b": 2}, "b", environ={"PYTHONPATH": "/mine", "PET_STANDALONE": "1"})
    got = values(made)
    assert "PYTHONPATH" not in got
    assert got["NODE_RANK"] == "1"
    assert made.unset == ("PYTHONPATH", "PET_STANDALONE")
    assert (made.user_cwd, made.user_pythonpath) == ("/opt/ml/code", f"{STARTUP}:/opt/ml/code:/mine:{STANDINS}")
    assert (made.local_ranks, made.first_rank, made.world_size) == (2, 1, 3)


def test_threads_are_shared_by_this_hosts_ranks(plan: Planner, values: Values) -> None:
    assert values(plan("torchrun", {"a": 1, "b": 3}, "b"))["OMP_NUM_THREADS"] == "2"
    assert values(plan("torchrun", {"a": 16}))["OMP_NUM_THREADS"] == "1"
    assert values(plan("torchrun", {"a": 2}, devices=Devices(cpus=8, cores=4)))["OMP_NUM_THREADS"] == "2"


def test_c10d_on_several_hosts_says_that_order_is_not_kept(plan: Planner) -> None:
    (note,) = plan("torchrun", {"a": 1, "b": 1}, "a", rendezvous="c10d").notes
    assert "order" in note
    assert not plan("torchrun", {"a": 1, "b": 1}, "a").notes


def test_ranks_are_started_again_without_an_agent(plan: Planner, values: Values) -> None:
    """It would import torch for a second; a rank's variables are compared with the agent's in tests/contract."""
    made = plan("torchrun", {"a": 1, "b": 2}, "b", attempt=1, environ={"PYTHONPATH": "/mine", "PET_STANDALONE": "1"})
    assert [(process.role, process.rank, process.local_rank) for process in made.processes] == [
        ("rank", 1, 0), ("rank", 2, 1),
    ]  # fmt: skip
    assert [process.words for process in made.processes] == [["/usr/bin/python3", "train.py", "--lr", "0.1"]] * 2
    got = values(made, 1)
    assert got["PYTHONPATH"] == f"{STARTUP}:/opt/ml/code:/mine:{STANDINS}"
    assert (got["RANK"], got["LOCAL_RANK"], got["WORLD_SIZE"], got["ROLE_RANK"]) == ("2", "1", "3", "2")
    assert (got["MASTER_ADDR"], got["MASTER_PORT"]) == ("10.0.0.1", "7778")
    assert got["TORCHELASTIC_RESTART_COUNT"] == "1"
    assert (made.local_ranks, made.first_rank, made.world_size, made.launcher) == (2, 1, 3, "torchrun")
    assert not made.foreign
    meeting = plan("torchrun", {"a": 1, "b": 2}, "a", attempt=1).meeting
    assert meeting is not None and (meeting.port, meeting.hosts) == (7778, ("10.0.0.2",))


@pytest.mark.parametrize(
    ("words", "environ", "settings"),
    [(("--file", "log-${local_rank}"), {}, {}), ((), {VIRTUAL: "1"}, {}), ((), {}, {"numa_binding": "node"})],
    ids=["replaced words", "virtual local ranks", "binding"],
)
def test_an_agent_that_does_more_is_started_again(
    plan: Planner, words: tuple[str, ...], environ: dict[str, str], settings: dict[str, str]
) -> None:
    workspace = WORKSPACE._replace(argv=(*WORKSPACE.argv, *words))
    made = plan("torchrun", {"a": 2}, attempt=1, environ=environ, workspace=workspace, **settings)
    assert made.foreign and made.processes[0].name == "torchrun"


PARSE = """
import json, os, sys
from torch.distributed.argparse_util import check_env, env
from torch.distributed.run import get_args_parser

print(json.dumps({action.dest.upper(): isinstance(action, check_env)
                  for action in get_args_parser()._actions if isinstance(action, (check_env, env))}))
for line in sys.stdin:
    environ, words = json.loads(line)
    os.environ.update(environ)
    try:
        print(json.dumps(vars(get_args_parser().parse_args(words))))
    except (SystemExit, ValueError) as error:
        print(json.dumps(str(error)))
    for name in environ:
        del os.environ[name]
"""
HOSTILE = ("3", "1", "elsewhere", "", "2:4", "c10d")
PLANS: list[tuple[dict[str, int], str, str]] = [
    ({"laptop": 2}, "laptop", "static"), ({"algo-1": 2, "algo-2": 1}, "algo-2", "static"),
    ({"algo-1": 2, "algo-2": 1}, "algo-1", "c10d"),
]  # fmt: skip


def seen(made: LaunchPlan, environ: dict[str, str]) -> list[Any]:
    """What torchrun reads: its variables, as the supervisor leaves them, and its command line."""
    return [{name: text for name, text in environ.items() if name not in made.unset}, made.processes[0].words[3:]]


@pytest.mark.torch
def test_no_variable_of_the_installed_torch_changes_what_is_planned(plan: Planner) -> None:
    asked: list[list[Any]] = []
    names = [*OVERRIDDEN, *HONOURED]
    for slots, me, rendezvous in PLANS:
        asked.append(seen(plan("torchrun", slots, me, rendezvous=rendezvous), {}))
        for name in names:
            for text in HOSTILE:
                environ = {PREFIX + name: text}
                if name != "VIRTUAL_LOCAL_RANK" or text in ("", "1", "3"):
                    asked.append(seen(plan("torchrun", slots, me, rendezvous=rendezvous, environ=environ), environ))
    done = subprocess.run(
        [sys.executable, "-c", PARSE], input="".join(json.dumps(one) + "\n" for one in asked), capture_output=True,
        text=True, timeout=500, check=True,
    )  # fmt: skip
    read, *answers = map(json.loads, done.stdout.splitlines())
    assert set(read) == set(names), "each variable has its place in the table"
    assert {name for name, switch in read.items() if switch} == {
        "STANDALONE", "MODULE", "NO_PYTHON", "RUN_PATH", "VIRTUAL_LOCAL_RANK",
    }  # fmt: skip
    planned: dict[str, Any] = {}
    for (environ, words), answer in zip(asked, answers, strict=True):
        (name,) = [name.removeprefix(PREFIX).lower() for name in environ] or [""]
        if name in ("monitor_interval", "shutdown_timeout") and isinstance(answer, str):
            continue  # torchrun's to refuse
        assert isinstance(answer, dict), (environ, words, answer)
        program = answer.pop("training_script_args")
        assert program[-4:] == ["/usr/bin/python3", "train.py", "--lr", "0.1"]
        if not environ:
            planned = answer
        if name.upper() in HONOURED:
            answer[name] = planned[name]
        assert answer == planned, environ


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_what_is_not_followed_is_said(name: str, plan: Planner) -> None:
    variable = PREFIX + name
    made = plan("torchrun", {"a": 1, "b": 2}, "b", environ={variable: "7"})
    assert made.notes == (f"{variable}=7 isn't followed: {OVERRIDDEN[name]}",)
    assert plan("torchrun", {"a": 1, "b": 2}, "b", environ={variable: ""}).notes == ()
    assert plan("ranks", {"a": 1, "b": 2}, "b", environ={variable: "7"}).notes == ()


def test_what_says_the_same_as_the_plan_is_not_worth_a_word(plan: Planner) -> None:
    same = {
        "PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "7777", "PET_STANDALONE": "0", "PET_RDZV_BACKEND": "static", "PET_MAX_RESTARTS": "0",
        "PET_ROLE": "trainer", "PET_MONITOR_INTERVAL": "5",
    }  # fmt: skip
    made = plan("torchrun", {"a": 1, "b": 2}, "b", environ=same)
    assert (made.notes, made.unset) == ((), ("PET_STANDALONE",))


@pytest.mark.parametrize(("text", "virtual"), [("1", True), ("7", True), ("0", False), ("", False)])
def test_where_every_local_rank_is_0_the_stub_gets_its_slot(text: str, virtual: bool, plan: Planner) -> None:
    words = plan("torchrun", {"a": 2}, environ={VIRTUAL: text}).processes[0].words
    assert words[words.index("--") - 1 :][:1] == (["${local_rank}"] if virtual else [words[words.index("--") - 1]])
    assert ("${local_rank}" in words) == virtual


def test_a_switch_that_is_no_number_is_refused_by_name(plan: Planner) -> None:
    with pytest.raises(UsageError, match="PET_VIRTUAL_LOCAL_RANK='true': expected 1 or 0"):
        plan("torchrun", {"a": 2}, environ={VIRTUAL: "true"})
    assert plan("ranks", {"a": 2}, environ={VIRTUAL: "true"}).world_size == 2


TWO = {"algo-1": 2, "algo-2": 2}


def test_every_rank_has_its_place(plan: Planner, values: Values) -> None:
    made = plan("jax", TWO, "algo-2")
    second = values(made, 1)
    expected = {
        "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "7777", "JAX_COORDINATOR_ADDRESS": "10.0.0.1:7701", "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": "3", "JAX_ENABLE_PREEMPTION_SERVICE": "false",
    }  # fmt: skip
    assert {name: second[name] for name in expected} == expected
    assert "JAX_LOCAL_DEVICE_IDS" not in second
    assert second["PYTHONPATH"].split(":")[:2] == [STARTUP, "/opt/ml/code"]
    assert [process.role for process in made.processes] == ["rank", "rank"], "nothing serves beside rank 0"
    assert made.processes[0].words == ["/usr/bin/python3", "train.py", "--lr", "0.1"]


def test_addresses(plan: Planner, values: Values) -> None:
    assert values(plan("jax", {"a": 2}))["JAX_COORDINATOR_ADDRESS"] == "127.0.0.1:7701"
    assert values(plan("jax", TWO, addresses="fd00::"))["JAX_COORDINATOR_ADDRESS"] == "[fd00::1]:7701"


@pytest.mark.parametrize(
    ("gpus", "slots", "environ", "ids"),
    [
        (8, 8, {}, ["0", "1", "2", "3", "4", "5", "6", "7"]),
        (8, 2, {}, ["0,1,2,3", "4,5,6,7"]),
        (8, 1, {}, ["0,1,2,3,4,5,6,7"]),
        (8, 3, {}, ["", "", ""]),
        (1, 2, {}, ["", ""]),
        (2, 2, {"JAX_LOCAL_DEVICE_IDS": "1"}, ["", ""]),
    ],
)
def test_slots_share_the_gpus(
    plan: Planner, values: Values, gpus: int, slots: int, environ: dict[str, str], ids: list[str]
) -> None:
    made = plan("jax", {"a": slots, "b": slots}, "b", devices=Devices(gpus=gpus), environ=environ)
    assert [values(made, slot).get("JAX_LOCAL_DEVICE_IDS", "") for slot in range(slots)] == ids


def test_no_rank_takes_itself_for_a_task_of_another_launcher(plan: Planner, values: Values) -> None:
    stale: dict[str, Any] = {
        "SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2",
        "SLURM_STEP_NODELIST": "n[1-2]",
        "OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.0.0.9:1", "OMPI_COMM_WORLD_RANK": "1", "JAX_COORDINATOR_PORT": "99",
        "JAX_COORDINATOR_ADDRESS": "10.9.9.9:1", "JAX_PROCESS_ID": "9", "RANK": "9",
    }  # fmt: skip
    made = plan("jax", TWO, "algo-1", environ={**stale, "JAX_ENABLE_PREEMPTION_SERVICE": "true"})
    assert set(made.unset) == set(stale) - {"SLURM_JOB_ID", "JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID", "RANK"}
    rank = values(made)
    assert (rank["JAX_COORDINATOR_ADDRESS"], rank["JAX_PROCESS_ID"], rank["RANK"]) == ("10.0.0.1:7701", "0", "0")
    assert "JAX_ENABLE_PREEMPTION_SERVICE" not in rank, "the user's own stays"
