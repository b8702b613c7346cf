"""Which plans say where their ranks are to meet, and what accelerate is told on CPUs whatever starts the ranks."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.core.fabric.devices import Devices
from musterpoint.core.job.model import Distribution

from .conftest import Planner, Values

TWO = {"a": 2, "b": 2}
MET: list[tuple[str, dict[str, int], dict[str, Any], bool | None]] = [
    # launcher, slots, more of the plan, whether the ranks have to meet (None: nobody watches)
    ("ranks", TWO, {}, False),
    ("torchrun", TWO, {}, False),
    ("accelerate", TWO, {}, True),
    ("tensorflow", TWO, {"ports": (7777,)}, False),
    ("ranks", TWO, {"me": "b"}, None),
    ("torchrun", TWO, {"me": "b"}, None),
    ("ranks", {"a": 1}, {}, None),
    ("torchrun", TWO, {"rendezvous": "c10d"}, None),
    ("ranks", TWO, {"modules": frozenset(["horovod"])}, None),
    ("accelerate", TWO, {"devices": Devices(neuron_cores=2)}, None),
    ("tensorflow", TWO, {"me": "b", "ports": (7777,)}, None),
    ("script", TWO, {}, False),
    ("script", {"a": 2}, {}, None),
    ("deepspeed", TWO, {}, None),
]


@pytest.mark.parametrize(("launcher", "slots", "more", "required"), MET)
def test_where_ranks_meet(
    plan: Planner, launcher: str, slots: dict[str, int], more: dict[str, Any], required: bool | None
) -> None:
    made = plan(launcher, slots, **more)
    if required is None:
        assert made.meeting is None
    else:
        assert made.meeting is not None
        assert (made.meeting.required, made.meeting.hosts) == (required, ("10.0.0.2",))
        assert made.meeting.port == (0 if made.meeting.apart else 7777)


PROXY = {"http_proxy": "http://proxy:3128"}
PAST: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("jax", PROXY, {"no_proxy": "a,10.0.0.1,b,10.0.0.2"}),
    ("jax", {**PROXY, "NO_PROXY": "x,b"}, dict.fromkeys(("no_proxy", "NO_PROXY"), "x,b,a,10.0.0.1,10.0.0.2")),
    ("jax", {**PROXY, "no_proxy": "*"}, {}),
    ("jax", {}, {}),
    ("ranks", PROXY, {}),
]


@pytest.mark.parametrize(("launcher", "environ", "past"), PAST)
def test_servers_on_the_hosts_talk_past_a_proxy(
    plan: Planner, values: Values, launcher: str, environ: dict[str, str], past: dict[str, str]
) -> None:
    made = plan(launcher, TWO, environ=environ)
    assert {name: value for name, value in values(made).items() if name.lower() == "no_proxy"} == past
    assert any("http_proxy" in note for note in made.notes) == bool(past)


CPUS = Devices(cpu_only=True)
TOLD: list[tuple[str, dict[str, Any], bool]] = [
    ("ranks", {}, True),
    ("torchrun", {}, True),
    ("mpi", {}, True),
    ("ranks", {"devices": Devices()}, False),
    ("ranks", {"slots": {"a": 1}}, False),
    ("ranks", {"environ": {"ACCELERATE_USE_DEEPSPEED": "true"}}, False),
    ("mpi", {"distribution": Distribution("smdistributed_dataparallel")}, False),
    ("torchrun", {"distribution": Distribution("smdistributed_dataparallel")}, False),
    ("deepspeed", {}, False),
    ("script", {}, False),
    ("tensorflow", {}, False),
]


@pytest.mark.parametrize(("launcher", "more", "told"), TOLD)
def test_several_ranks_on_cpus(plan: Planner, values: Values, launcher: str, more: dict[str, Any], told: bool) -> None:
    made = plan(launcher, **{"slots": TWO, "devices": CPUS, **more})
    names = {setting.name for setting in (*made.environment, *made.processes[0].environment)}
    assert ("ACCELERATE_USE_CPU" in names) == told
    kept = plan(launcher, **{"slots": TWO, "devices": CPUS, **more, "environ": {"ACCELERATE_USE_CPU": "false"}})
    assert "ACCELERATE_USE_CPU" not in {setting.name for setting in kept.environment}
