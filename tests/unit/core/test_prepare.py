"""This host's plan, from the steps before it: what the devices of this host add."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.failure import Failure
from musterpoint.base.settings import Settings
from musterpoint.core.fabric import cuda_compat
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.fabric.fabric_facts import Fabric
from musterpoint.core.fabric.libraries import Libraries
from musterpoint.core.fabric.rdma import RdmaDevice
from musterpoint.core.job.model import EntryPoint, Job, Paths, UnnamedHosts
from musterpoint.core.job.read import read_job
from musterpoint.core.job.unnamed import unnamed_job
from musterpoint.core.launch.host_plan import plan_host
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.launch.launcher import Wanted
from musterpoint.core.part import Excused, Part, Ready, Refused, Stopped, met
from musterpoint.core.prepare import offer_of, prepare_host
from musterpoint.core.rollcall.roster import Offer, Roster, Seat
from musterpoint.tools.plans.preview import assumed_roster

from ...ports import unheld


def plan(tmp_path: Path, launcher: str, gpus: int, compat: str, **environ: str) -> LaunchPlan:
    """On two hosts with this many GPUs."""
    (tmp_path / "train.py").touch()
    options = Settings(launcher=launcher, slots=2, cuda_compat=compat)
    words = {**environ, "SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-1", "PATH": os.environ["PATH"]}
    job = read_job(words, options, "", str(tmp_path / "train.py"), (), False)
    host = prepare_host(Wanted(job, options), words)._replace(devices=Devices(cpus=2, gpus=gpus, interfaces=("eth0",)))
    return plan_host(job, options, host, assumed_roster(job, options, lambda name: 2, {}), words)


def paths(plan: LaunchPlan) -> dict[str, str]:
    settings = (*plan.environment, *(setting for process in plan.processes for setting in process.environment))
    return {setting.name: setting.value for setting in settings if setting.name == "LD_LIBRARY_PATH"}


@pytest.mark.parametrize("launcher", ["script", "ranks", "tensorflow"])
def test_cudas_compatibility_library_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    monkeypatch.setattr(cuda_compat, "driver_version", lambda root: "535.183.01")
    monkeypatch.setattr(cuda_compat, "compat_version", lambda root: "570.124.06")
    assert paths(plan(tmp_path, launcher, 2, "auto")) == {"LD_LIBRARY_PATH": cuda_compat.COMPAT}
    own = plan(tmp_path, launcher, 2, "auto", LD_LIBRARY_PATH="/mine")
    assert paths(own) == {"LD_LIBRARY_PATH": f"{cuda_compat.COMPAT}:/mine"}
    assert paths(plan(tmp_path, launcher, 2, "off")) == {}
    assert paths(plan(tmp_path, launcher, 0, "auto")) == {}

    monkeypatch.setattr(cuda_compat, "_refusal", lambda driver, root: "the card refuses it")
    refused = plan(tmp_path, launcher, 2, "auto", LD_LIBRARY_PATH="/mine")
    assert paths(refused) == {}
    assert [note for note in refused.notes if "the card refuses it" in note]


def test_what_no_system_takes_is_an_error_that_names_the_longest(tmp_path: Path) -> None:
    """Each is short enough; together they are not. The kernel would only say that the list is too long."""
    most = {f"BIG_{number}": "x" * 100_000 for number in range(70)}
    with pytest.raises(UsageError) as error:
        plan(tmp_path, "ranks", 0, "auto", **most, LARGEST="x" * 110_000)
    assert str(error.value).startswith("the arguments and variables of rank 0 take 7,")
    assert "the longest are the variable LARGEST (110,000 bytes), the variable BIG_" in str(error.value)
    plan(tmp_path, "ranks", 0, "auto", FITS="x" * 100_000)


UNNAMED = unnamed_job("plain", UnnamedHosts(2, 1, "10.0.0.4"), slots=2)
SEATS = (Seat("b", "10.0.0.4", 2), Seat("a", "10.0.0.5", 2))


def test_the_rosters_names_replace_placeholders() -> None:
    job = Roster("j", "s", SEATS, "10.0.0.4", 7777, "a").settled(UNNAMED)
    assert (job.hosts, job.group_hosts, job.current_host, job.unnamed) == (("b", "a"), ("b", "a"), "a", None)
    assert Roster("j", "s", SEATS, "10.0.0.4", 7777, "b").settled(job) is job


@pytest.mark.parametrize(
    ("unnamed", "options", "sentence"),
    [
        ((2, 2), {}, "--node-rank is 2, and there are 2 hosts (--nnodes): node ranks go from 0 to 1"),
        (
            (2, None),
            {"launcher": "parameter-server"},
            "launcher parameter-server: a host's role follows from its place",
        ),
        ((2, 1), {"rollcall_check": "strict"}, "--rollcall-check strict: the platform names no hosts"),
        ((2, 1), {"rollcall_check": "strict", "secret": "an example of a secret"}, ""),
        ((2, None), {"launcher": "ranks"}, ""),
    ],
)
def test_what_can_not_be_had_without_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed: tuple[int, int | None], options: dict[str, Any],
    sentence: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("musterpoint.core.code.interpreter.modules_among", lambda names, *_: frozenset(names))
    (tmp_path / "train.py").touch()
    entry, paths = EntryPoint(str(tmp_path / "train.py")), Paths(code=str(tmp_path))
    job = UNNAMED._replace(unnamed=UnnamedHosts(*unnamed, "10.0.0.4"), entry_point=entry, paths=paths)
    if not sentence:
        prepare_host(Wanted(job, Settings(**{"launcher": "ranks", **options})), {}, True)
        return
    with pytest.raises(UsageError) as error:
        prepare_host(Wanted(job, Settings(**{"launcher": "ranks", **options})), {"PATH": os.environ["PATH"]}, True)
    assert sentence in str(error.value)


@pytest.mark.parametrize(("asked", "fits"), [("b", True), ("10.0.0.4:7776", True), ("alias", True), ("a", False)])
def test_a_leader_that_is_another_host_of_the_roster_is_an_error(tmp_path: Path, asked: str, fits: bool) -> None:
    (tmp_path / "train.py").touch()
    options = Settings(launcher="ranks", rollcall_leader=asked)
    entry = EntryPoint(str(tmp_path / "train.py"))
    job = Job("plain", "j", ("b", "a"), "b", ("b", "a"), entry, paths=Paths(code=str(tmp_path)))
    host = prepare_host(Wanted(job, options), {}, True)
    roster = Roster("j", "s", SEATS, "10.0.0.4", 7777, "b")
    if fits:
        plan_host(job, options, host, roster, {})
        return
    with pytest.raises(UsageError, match="is a, which is a, and rank 0 is on b"):
        plan_host(job, options, host, roster, {})


def fabric_plan(tmp_path: Path, devices: Devices, fabric: Fabric, ports: tuple[int, ...] = ()) -> LaunchPlan:
    """The first of two hosts with this fabric."""
    (tmp_path / "train.py").touch()
    options = Settings(launcher="ranks", slots=2)
    words = {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-1", "PATH": os.environ["PATH"]}
    job = read_job(words, options, "", str(tmp_path / "train.py"), (), False)
    host = prepare_host(Wanted(job, options), words)._replace(devices=devices, fabric=fabric)
    seats = tuple(Seat(name, f"10.0.0.{at}", 2, ports=ports) for at, name in enumerate(job.hosts, 1))
    return plan_host(job, options, host, Roster("j", "s", seats, "10.0.0.1", 7777, "algo-1"), words)


EFA_DEVICE = RdmaDevice("rdmap0s31", "efa", "0x1d0f", "0xefa1", state="ACTIVE", rate=100)


def test_the_fabrics_settings_and_notes_are_in_the_plan(tmp_path: Path) -> None:
    devices = Devices(cpus=2, gpus=4, interfaces=("eth0",), infiniband=("rdmap0s31",))
    libraries = Libraries(ofi_nccl="1.18.0", kernel="6.1.0")
    found = fabric_plan(tmp_path, devices, Fabric(devices, rdma=(EFA_DEVICE,), libraries=libraries))
    values = {setting.name: setting.value for setting in found.environment}
    assert values["FI_PROVIDER"] == "efa"
    said = "\n".join(found.notes)
    assert "network: 1 x EFA, 100 Gb/s (rdmap0s31); aws-ofi-nccl 1.18.0" in said
    assert "hangs in large broadcasts" in said
    assert "warning: 2 ranks run on this host, which has 4 GPUs: the others stay unused" in said


def test_neurons_runtimes_meet_at_the_port_that_the_leader_offered(tmp_path: Path) -> None:
    devices = Devices(cpus=2, neuron_cores=2)
    for ports, expected in (((), "10.0.0.1:46820"), ((7801, 20001), "10.0.0.1:20001")):
        found = fabric_plan(tmp_path, devices, Fabric(devices), ports)
        values = {setting.name: setting.value for setting in found.environment}
        assert values["NEURON_RT_ROOT_COMM_ID"] == expected


def test_a_host_says_its_switches_where_these_decide_the_order(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    words = {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-1", "PATH": os.environ["PATH"]}
    options = Settings(launcher="ranks", slots=2)
    job = read_job(words, options, "", str(tmp_path / "train.py"), (), False)._replace(place="s0.s1.algo-1")
    host = prepare_host(Wanted(job, options), words)
    assert offer_of(job, options, host, unheld()).place == ""
    options = options._replace(host_order="topology")
    assert offer_of(job, options, host, unheld()).place == "s0.s1.algo-1"
    assert offer_of(job, options._replace(topology="nn-1.nn-7"), host, unheld()).place == "nn-1.nn-7.algo-1"
    seats = (Seat("algo-2", "10.0.0.2", 2), Seat("algo-1", "10.0.0.1", 2))
    job = Roster("j", "s", seats, "10.0.0.2", 7777, "algo-1").settled(job)
    assert (job.hosts, job.group_hosts, job.current_host) == (("algo-2", "algo-1"), ("algo-2", "algo-1"), "algo-1")


def test_hosts_offer_their_versions_and_a_port_for_neuron(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    options = Settings(launcher="ranks", slots=2)
    words = {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-1", "PATH": os.environ["PATH"]}
    job = read_job(words, options, "", str(tmp_path / "train.py"), (), False)
    plain = prepare_host(Wanted(job, options), words)._replace(devices=Devices())
    assert offer_of(job, options, plain, unheld()).libraries == ()
    devices = Devices(neuron_cores=2)
    fabric = Fabric(devices, libraries=Libraries(nccl="2.27.3", ofed="5.4-1.0.3.0"))
    offer = offer_of(job, options, plain._replace(devices=devices, fabric=fabric), unheld())
    assert offer.libraries == ("NCCL=2.27.3", "MLNX_OFED=5.4-1.0.3.0")
    assert len(offer.ports) == len(offer_of(job, options, plain, unheld()).ports) + 1


def test_a_rival_that_is_not_installed_is_told_its_place(tmp_path: Path) -> None:
    """``muster launch horovodrun ...`` on a machine without Horovod."""
    job = Job("plain", "j", ("a",), "a", ("a",), EntryPoint("horovodrun"), paths=Paths(code=str(tmp_path)))
    with pytest.raises(UsageError, match="`muster launch --launcher ranks SCRIPT` starts a script as horovodrun would"):
        prepare_host(Wanted(job, Settings()), {"PATH": str(tmp_path)})


HOST: Any = None
FAILURE = Failure("a", 64, "muster", "user", "muster: no program")


@pytest.mark.parametrize("part", [Ready(HOST, Offer("j", "", 1, "")), Refused(FAILURE), Stopped(15), Excused("data")])
@pytest.mark.parametrize("capacity", [0, 2])
def test_a_host_that_could_run_waits_for_the_reason_of_one_that_cannot(part: Part, capacity: int) -> None:
    roster = Roster("j", "s", (SEATS[0], SEATS[1]._replace(capacity=capacity)), "10.0.0.4", 7777, "b")
    waits = isinstance(part, Ready) and not capacity
    assert met(part, roster) == (Excused("another host can't run its part") if waits else part)
