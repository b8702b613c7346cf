"""accelerate's variables on the ranks, and command lines of ``accelerate launch`` and trl."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.base.errors import LauncherError, UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.fabric.accelerate_config import Accelerate, read_without
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.job.model import EntryPoint, Job
from musterpoint.core.launch.launchers.accelerate import as_typed, typed_words

from .conftest import NO_GPUS, Planner, Values

FILE = "/root/.cache/huggingface/accelerate/default_config.yaml"
FSDP = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "ACCELERATE_MIXED_PRECISION": "bf16"}
GPUS = Accelerate("1.15.0", FILE, "FSDP", False, "nccl", FSDP)


def test_ranks_have_accelerates_variables(plan: Planner, values: Values) -> None:
    made = plan("accelerate", {"a": 2, "b": 2}, "b", accelerate=GPUS)
    got = values(made, 1)
    assert {name: got[name] for name in FSDP} == FSDP
    assert (got["RANK"], got["WORLD_SIZE"], got["MASTER_ADDR"]) == ("3", "4", "10.0.0.1")
    reasons = {setting.name: setting.reason for setting in made.environment}
    assert reasons["FSDP_VERSION"] == f"FSDP: as accelerate launch sets it, from {FILE}"
    assert "ACCELERATE_USE_CPU" not in got


def test_on_cpus_accelerate_is_told_so(plan: Planner, values: Values) -> None:
    made = plan("accelerate", {"a": 2, "b": 2}, devices=Devices(cpu_only=True))
    assert values(made)["ACCELERATE_USE_CPU"] == "true"
    assert not made.notes


def test_the_environments_values_yield_only_to_what_was_asked_for(plan: Planner, values: Values) -> None:
    environ = {"ACCELERATE_MIXED_PRECISION": "fp16", "ACCELERATE_USE_CPU": "false"}
    kept = values(plan("accelerate", {"a": 2}, environ=environ))
    assert not environ.keys() & kept.keys()
    assert (
        values(plan("accelerate", {"a": 2}, environ=environ, accelerate=GPUS))["ACCELERATE_MIXED_PRECISION"] == "bf16"
    )


def test_a_world_of_one_is_refused_before_the_start(plan: Planner) -> None:
    nothing = NO_GPUS._replace(on_cpus=False, backend="")
    with pytest.raises(LauncherError, match="no way for 2 ranks on a to meet, so that each would be a world of one"):
        plan("accelerate", {"a": 2}, accelerate=nothing)
    plan("accelerate", {"a": 1}, accelerate=nothing)


SHAPES: dict[str, tuple[Any, str]] = {
    "num_processes": (32, "file"), "num_machines": (2, "words"), "machine_rank": (0, "file"),
    "main_process_ip": ("h", "words"), "main_process_port": (7777, "words"),
}  # fmt: skip


def test_what_is_not_followed_is_named(plan: Planner) -> None:
    found = GPUS._replace(shape=SHAPES, unused=("max_restarts", "rdzv_backend"), on_cpus=True)
    assert plan("accelerate", {"a": 2, "b": 2}, "b", accelerate=found).notes == (
        f"{FILE}: num_processes 32 isn't followed, it is 4 here: this job's hosts have that many slots",
        f"{FILE}: machine_rank 0 isn't followed, it is 1 here: this host's place in the job",
        "accelerate launch: main_process_ip h isn't followed, it is 10.0.0.1 here: the first host of the job",
        "accelerate launch: max_restarts, rdzv_backend isn't followed: musterpoint starts the ranks itself",
        f"warning: {FILE} asks for FSDP, but accelerate finds no accelerator on b: its ranks compute on CPUs; "
        "accelerate doesn't use FSDP on CPUs",
    )


def job(program: str, *words: str, hosts: int = 2, module: bool = False) -> Job:
    names = tuple(f"algo-{number}" for number in range(1, hosts + 1))
    return Job("plain", "j", names, names[0], names, EntryPoint(program, module=module), arguments=words)


LINES: list[tuple[Job, str, tuple[str, ...] | None]] = [
    (job("accelerate", "launch", "train.py", "--lr", "1"), "auto", ("train.py", "--lr", "1")),
    (job("/opt/conda/bin/accelerate", "launch", "--cpu", "train.py"), "accelerate", ("--cpu", "train.py")),
    (job("accelerate-launch", "train.py"), "auto", ("train.py",)),
    (job("accelerate.commands.launch", "train.py", module=True), "auto", ("train.py",)),
    (job("accelerate.commands.accelerate_cli", "launch", "t.py", module=True), "auto", ("t.py",)),
    (job("accelerate", "env"), "auto", None),
    (job("accelerate"), "auto", None),
    (job("accelerate", "launch", "train.py"), "script", None),
    (job("trl", "env"), "auto", None),
    (job("trl", "--help"), "auto", None),
    (job("trl", "sft"), "script", None),
    (job("train.py", "launch"), "auto", None),
]


@pytest.mark.parametrize(("job", "launcher", "words"), LINES)
def test_what_follows_accelerate_launch(job: Job, launcher: Any, words: tuple[str, ...] | None) -> None:
    assert typed_words(job, Settings(launcher=launcher)) == words


@pytest.mark.parametrize(
    ("job", "launcher", "words"),
    [
        (job("trl", "sft", "--model", "m"), "auto", "muster launch --launcher accelerate -m trl.scripts.sft"),
        (job("trl.cli", "dpo", module=True), "accelerate", "-m trl.scripts.dpo"),
        (job("accelerate", "launch", "t.py"), "torchrun", "--launcher torchrun: PROGRAM is `accelerate launch`"),
        (job("accelerate-launch", "t.py"), "ranks", "which each rank would start"),
    ],
)
def test_launchers_that_would_make_worlds_of_their_own(job: Job, launcher: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        typed_words(job, Settings(launcher=launcher))


def typed(**shape: Any) -> Accelerate:
    return GPUS._replace(
        script="pkg.train", module=True, arguments=("--lr", "1"),
        shape={name: (value, "words") for name, value in shape.items()},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "slots", "asked"),
    [({}, None, None), ({"num_processes": 8}, None, 4), ({"num_processes": 8, "num_machines": 2}, 4, 4)],
)
def test_the_program_and_its_ranks(shape: dict[str, int], slots: int | None, asked: int | None) -> None:
    made, got = as_typed(job("accelerate", "launch"), Settings(slots=slots), typed(**shape))
    assert (made.entry_point, made.arguments, got) == (EntryPoint("pkg.train", module=True), ("--lr", "1"), asked)


@pytest.mark.parametrize(
    ("shape", "slots", "words"),
    [
        ({"num_machines": 3}, None, "--num_machines 3: this job has 2 host"),
        ({"num_processes": 7}, None, "--num_processes 7: .* a multiple of the job's 2 host"),
        ({"num_processes": 0}, None, "--num_processes 0"),
        ({"num_processes": 8}, 2, "--num_processes 8 is 4 rank.*--slots is 2: give one of them"),
    ],
)
def test_options_that_contradict_the_job(shape: dict[str, int], slots: int | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        as_typed(job("accelerate", "launch"), Settings(slots=slots), typed(**shape))


@pytest.mark.parametrize(
    ("line", "script", "module", "shape"),
    [
        ("--multi_gpu --num_processes 8 train.py --lr 1", "train.py", False, {"num_processes": 8}),
        ("--num-machines=2 --mixed_precision bf16 -m package.train", "package.train", True, {"num_machines": 2}),
        ("--config_file c.yaml --use-fsdp --fsdp_version 2 train.py --num_processes 3", "train.py", False, {}),
    ],
)
def test_a_line_is_read_without_accelerate(line: str, script: str, module: bool, shape: dict[str, int]) -> None:
    found = read_without(line.split())
    assert (found.script, found.module) == (script, module)
    assert {name: value for name, (value, _) in found.shape.items()} == shape
    with pytest.raises(UsageError, match="no script is named"):
        read_without(["--num_processes", "8"])
