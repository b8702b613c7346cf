"""Ray's cluster: what ``ray start`` is told on each host, who may use it, and where the program runs."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.masking import Masker
from musterpoint.core.fabric.devices import Devices, Memory
from musterpoint.core.launch.launch_plan import LaunchPlan, ProcessPlan
from musterpoint.core.launch.launchers.ray import OPEN_NOTE, OURS, RAY_PORTS, asked

from .conftest import Planner, Values

TWO = {"algo-1": 1, "algo-2": 0}
PORTS = tuple(range(20001, 20001 + len(RAY_PORTS)))
GIB = 1 << 30


@pytest.fixture
def ray(plan: Planner) -> Planner:
    def make(me: str = "algo-1", **changes: Any) -> LaunchPlan:
        return plan("ray", changes.pop("slots_of", TWO), me, ports=PORTS, **changes)

    return make


def node(plan: LaunchPlan) -> ProcessPlan:
    return plan.processes[0]


def flags(plan: LaunchPlan) -> dict[str, str]:
    """The options of ``ray start``; each has a reason."""
    words = node(plan).argv[node(plan).words.index("start") + 1 :]
    assert all(word.reason for word in words)
    return {name: value for name, _, value in (word.text.partition("=") for word in words)}


def test_the_leader_is_the_head_and_runs_the_program(ray: Planner, values: Values) -> None:
    made = ray(secret="a secret of this job", memory=Memory(100 * GIB, 64 * GIB))
    head, program = made.processes
    folder = made.temporary
    assert folder.startswith("/tmp/muster-ray-20001-")
    assert head.words == [
        "/usr/bin/python3", "{muster:ray_node}", folder, "900", "start", "--head", "--node-ip-address=10.0.0.1",
        "--port=20001", "--block", "--disable-usage-stats", f"--temp-dir={folder}", "--include-dashboard=false",
        "--num-cpus=8", "--num-gpus=0", f"--object-store-memory={30 * GIB}", "--node-manager-port=20002",
        "--object-manager-port=20003", "--dashboard-agent-listen-port=20004", "--dashboard-agent-grpc-port=20005",
        "--runtime-env-agent-port=20006", "--metrics-export-port=20007", "--dashboard-port=20008",
    ]  # fmt: skip
    assert (head.role, head.users, head.cwd, head.time_to_end > 0) == ("service", False, "/opt/ml/code", True)
    assert program.words == [
        "/usr/bin/python3", "{muster:ray_driver}", "10.0.0.1:20001", "algo-1=10.0.0.1,algo-2=10.0.0.2", "900",
        "/usr/bin/python3", "train.py", "--lr", "0.1",
    ]  # fmt: skip
    assert (program.role, program.rank, program.local_rank, program.cwd) == ("rank", 0, 0, "/opt/ml/code")
    assert (made.local_ranks, made.world_size, made.first_rank) == (1, 1, 0)
    assert values(made, 1)["RAY_ADDRESS"] == "10.0.0.1:20001"
    assert values(made, 1)["PYTHONPATH"].split(":")[1] == "/opt/ml/code"
    assert not {"RAY_ADDRESS", "PYTHONPATH"} & set(values(made, 0))
    assert made.notes == ()


def test_a_worker_joins_it(ray: Planner, values: Values) -> None:
    leader, made = ray(secret="s"), ray("algo-2", secret="s")
    assert (made.local_ranks, made.world_size, len(made.processes)) == (0, 1, 1)
    told = flags(made)
    assert told["--address"] == "10.0.0.1:20001"
    assert told["--node-ip-address"] == "10.0.0.2"
    assert not {"--head", "--port", "--temp-dir", "--include-dashboard", "--dashboard-port"} & set(told)
    assert made.temporary == leader.temporary, "workers take the head's directory over"
    assert values(made)["RAY_AUTH_TOKEN"] == values(leader)["RAY_AUTH_TOKEN"]


def test_ray_numbers_its_own_workers(ray: Planner, values: Values) -> None:
    stale = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "b", "RAY_ADDRESS": "10.9.9.9:6379"}
    made = ray(environ=stale)
    assert set(stale) == set(made.unset)
    for process in (0, 1):
        assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS"} & set(values(made, process))


@pytest.mark.parametrize(
    ("settings", "mode", "token", "note"),
    [
        ({"secret": "of this job"}, "token", True, False),
        ({}, "disabled", False, True),
        ({"environ": {"RAY_AUTH_TOKEN": "mine"}, "secret": "s"}, "token", False, False),
        ({"environ": {"RAY_AUTH_TOKEN_PATH": "/run/token"}}, "token", False, False),
        ({"environ": {"RAY_AUTH_MODE": "token"}, "secret": "s"}, None, False, False),
        ({"environ": {"RAY_AUTH_MODE": "disabled"}, "secret": "s"}, None, False, True),
    ],
)
def test_who_may_use_it(
    ray: Planner, values: Values, settings: dict[str, Any], mode: str | None, token: bool, note: bool
) -> None:
    made = ray(**settings)
    told = values(made)
    assert told.get("RAY_AUTH_MODE") == mode
    assert ("RAY_AUTH_TOKEN" in told) == token
    assert made.notes == ((OPEN_NOTE,) if note else ())
    assert not ray("algo-2", **settings).notes, "said once"
    assert Masker({}).mask(OPEN_NOTE) == OPEN_NOTE
    if token:
        assert len(told["RAY_AUTH_TOKEN"]) == 32 and settings["secret"] not in told["RAY_AUTH_TOKEN"]
        assert values(ray(secret="another one"))["RAY_AUTH_TOKEN"] != told["RAY_AUTH_TOKEN"]


@pytest.mark.parametrize(
    ("devices", "settings", "cpus", "gpus"),
    [
        (Devices(cpus=96), {}, "96", "0"),
        (Devices(cpus=96, gpus=8), {}, "96", "8"),
        (Devices(cpus=96, gpus=8), {"slots_option": 2}, "96", "2"),
        (Devices(cpus=96), {"slots_option": 4}, "4", "0"),
        (Devices(cpus=96), {"slots_option": 4, "ray_options": "--num-cpus 7 --num-gpus=1"}, "7", "1"),
    ],
)
def test_what_a_node_brings(ray: Planner, devices: Devices, settings: dict[str, Any], cpus: str, gpus: str) -> None:
    told = flags(ray("algo-2", devices=devices, **settings))
    assert (told["--num-cpus"], told["--num-gpus"]) == (cpus, gpus)


@pytest.mark.parametrize(
    ("memory", "store"),
    [
        (Memory(100 * GIB, 50 * GIB), 30 * GIB),
        (Memory(100 * GIB, 10 * GIB), 9 * GIB),
        (Memory(100 * GIB, 64 << 20), 10**10),  # Docker's default; more than this Ray refuses to keep on disk
        (Memory(10 * GIB, 64 << 20), 3 * GIB),
        (Memory(100 << 20, GIB), 75 << 20),
        (Memory(), None),
    ],
)
def test_object_store(ray: Planner, memory: Memory, store: int | None) -> None:
    assert flags(ray(memory=memory)).get("--object-store-memory") == (None if store is None else str(store))


def test_options_of_the_users(ray: Planner) -> None:
    """Only the head has a dashboard; Ray's client listens only where its library is, on a port of this job."""
    options = "--include-dashboard=true --dashboard-host 0.0.0.0 --labels zone=a --no-monitor"
    head, worker = flags(ray(ray_options=options)), flags(ray("algo-2", ray_options=options))
    assert (head["--include-dashboard"], head["--dashboard-host"]) == ("true", "0.0.0.0")
    assert not {"--include-dashboard", "--dashboard-host"} & set(worker)
    assert head["--labels"] == worker["--labels"] == "zone=a"
    assert "--no-monitor" in worker
    assert "--ray-client-server-port" not in head
    kept = ray(ray_options="--temp-dir /scratch/ray"), ray("algo-2", ray_options="--temp-dir /scratch/ray")
    assert [node(plan).words[2] for plan in kept] == ["/scratch/ray"] * 2
    assert [flags(plan).get("--temp-dir") for plan in kept] == ["/scratch/ray", None]
    assert [plan.temporary for plan in kept] == ["", ""], "a directory of the user's, with Ray's logs, stays"
    assert flags(ray(modules=frozenset({"grpc"})))["--ray-client-server-port"] == "20009"


def test_options_of_the_head_alone(ray: Planner) -> None:
    both = {"ray_options": "--num-cpus=4 --labels zone=a", "ray_head_options": "--num-cpus=0 --resources {}"}
    head, worker = flags(ray(**both)), flags(ray("algo-2", **both))
    assert (head["--num-cpus"], head["--resources"], head["--labels"]) == ("0", "{}", "zone=a")
    assert worker["--num-cpus"] == "4" and "--resources" not in worker


@pytest.mark.parametrize("text", ["num-cpus=4", "--num-cpus=4 5", "'--open", *(f"--{name} x" for name in OURS)])
def test_other_options_are_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match="--ray-head-options"):
        asked(text, "--ray-head-options")


def test_one_host_and_places(ray: Planner, values: Values) -> None:
    alone = ray("a", slots_of={"a": 1})
    assert flags(alone)["--node-ip-address"] == "127.0.0.1"
    assert values(alone, 1)["RAY_ADDRESS"] == "127.0.0.1:20001"
    assert values(ray(addresses="fd00::"), 1)["RAY_ADDRESS"] == "[fd00::1]:20001"
    assert ray(environ={"TMPDIR": "/scratch"}).temporary.startswith("/scratch/muster-ray-")
    assert ray(environ={"TMPDIR": "/a/directory/with/a/long/name"}).temporary.startswith("/tmp/muster-ray-")
