"""Which launcher, how many slots, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.errors import LauncherError
from musterpoint.fabric.devices import Devices
from musterpoint.job.model import KINDS, Distribution, EntryPoint, Job
from musterpoint.launch.choose import BUILT, choose
from musterpoint.settings import LAUNCHERS, Settings


def job(kind: str = "none", hosts: int = 1, per_host: int | None = None, group: int | None = None, me: int = 1) -> Job:
    names = tuple(f"algo-{number}" for number in range(1, hosts + 1))
    members = names[: group or hosts]
    return Job("sagemaker", "j", names, f"algo-{me}", members, EntryPoint("t.py"), Distribution(kind, per_host))


CHOICES: list[tuple[str, Job, dict[str, Any], Devices, bool, tuple[str, int]]] = [
    # name, job, settings, devices, typed by a person, launcher and slots
    ("no distribution", job(), {}, Devices(), False, ("script", 1)),
    ("no distribution, 8 GPUs", job(hosts=2), {}, Devices(gpus=8), False, ("script", 1)),
    ("torch_distributed", job("torch_distributed", 2), {}, Devices(gpus=8), False, ("torchrun", 8)),
    ("torch_distributed, CPU", job("torch_distributed", 2), {}, Devices(cpus=64), False, ("torchrun", 1)),
    ("Neuron cores", job("torch_distributed"), {}, Devices(neuron_cores=32), False, ("torchrun", 32)),
    ("pytorchddp", job("pytorch_ddp"), {}, Devices(gpus=4), False, ("torchrun", 4)),
    ("the job's slots", job("torch_distributed", per_host=3), {}, Devices(gpus=8), False, ("torchrun", 3)),
    (
        "the setting's slots",
        job("torch_distributed", per_host=3),
        {"slots": 2},
        Devices(gpus=8),
        False,
        ("torchrun", 2),
    ),
    ("script has one slot", job(), {"launcher": "script", "slots": 4}, Devices(gpus=8), False, ("script", 1)),
    ("ranks", job(), {"launcher": "ranks", "slots": 4}, Devices(), False, ("ranks", 4)),
    ("over an unbuilt kind", job("mpi"), {"launcher": "ranks"}, Devices(gpus=2), False, ("ranks", 2)),
    ("outside the group", job("torch_distributed", 3, group=2, me=3), {}, Devices(gpus=8), False, ("torchrun", 0)),
    ("typed, one slot", job(), {}, Devices(), True, ("script", 1)),
    ("typed, GPUs", job(), {}, Devices(gpus=2), True, ("torchrun", 2)),
    ("typed, hosts", job(hosts=2), {}, Devices(), True, ("torchrun", 1)),
    ("typed, slots", job(), {"slots": 2}, Devices(), True, ("torchrun", 2)),
]


@pytest.mark.parametrize(("job", "given", "devices", "typed", "expected"), [row[1:] for row in CHOICES],
                         ids=[row[0] for row in CHOICES])  # fmt: skip
def test_choice(job: Job, given: dict[str, Any], devices: Devices, typed: bool, expected: tuple[str, int]) -> None:
    choice = choose(job, Settings(**given), devices, lambda: True, typed)
    assert (choice.launcher, choice.slots) == expected
    assert choice.reason


def no_torch_asked() -> bool:
    raise AssertionError("torch was asked for")


@pytest.mark.parametrize("given", [{}, {"launcher": "script", "slots": 8}, {"launcher": "ranks", "slots": 8}])
def test_torch_is_asked_for_only_where_torchrun_may_be_the_answer(given: dict[str, Any]) -> None:
    choose(job(), Settings(**given), Devices(), no_torch_asked, True)


@pytest.mark.parametrize(
    ("job", "given", "typed", "words"),
    [
        (job("torch_distributed"), {}, False, "no module torch"),
        (job(), {"launcher": "torchrun"}, False, "--launcher torchrun was given"),
        (job(), {"slots": 2}, True, "2 slots make a world of several ranks"),
        (job(hosts=2), {}, True, "2 hosts with 1 slot each"),
    ],
)
def test_without_torch_nothing_runs_as_a_world_of_one(job: Job, given: dict[str, Any], typed: bool, words: str) -> None:
    with pytest.raises(LauncherError, match=words) as caught:
        choose(job, Settings(**given), Devices(), lambda: False, typed)
    assert caught.value.code == 72
    assert "--launcher script" in str(caught.value)


def test_a_host_outside_the_group_needs_no_torch() -> None:
    outside = job("torch_distributed", 3, group=2, me=3)
    assert choose(outside, Settings(), Devices(), no_torch_asked, False).slots == 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("none", "torch_distributed", "pytorch_ddp")])
def test_a_distribution_without_its_launcher_says_what_works(kind: str) -> None:
    with pytest.raises(LauncherError, match=f"{kind}.*script, torchrun and ranks"):
        choose(job(kind), Settings(), Devices(), lambda: True, False)


@pytest.mark.parametrize("launcher", sorted({*LAUNCHERS} - {"auto", *BUILT}))
def test_a_launcher_of_a_later_release(launcher: str) -> None:
    with pytest.raises(LauncherError, match=f"--launcher {launcher}: not part of this release"):
        choose(job(), Settings(launcher=launcher), Devices(), lambda: True, False)
