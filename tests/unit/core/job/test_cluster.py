from __future__ import annotations

import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.errors import UsageError
from musterpoint.core.job.cluster import Cluster, accelerated, choose, from_config
from musterpoint.core.job.host_order import natural
from musterpoint.core.job.model import Distribution, EntryPoint, InstanceGroup, Job

CPU = {"instance_group_name": "data", "instance_type": "ml.c5.xlarge", "hosts": ["algo-2", "algo-1"]}
GPU = {"instance_group_name": "train", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-10", "algo-3"]}
GPU2 = {"instance_group_name": "big", "instance_type": "ml.g5.48xlarge", "hosts": ["algo-4"]}
HOSTS = ["algo-1", "algo-10", "algo-2", "algo-3", "algo-4"]


def read(**config: Any) -> Cluster:
    return from_config({"hosts": HOSTS, "current_host": "algo-3", **config}, lambda key: f"file: {key}")


def test_everything_a_current_job_has() -> None:
    cluster = read(
        instance_groups=[CPU, GPU],
        current_group_name="train",
        current_instance_type="ml.p4d.24xlarge",
        network_interface_name="eth0",
        topology=None,
    )
    assert cluster == Cluster(
        hosts=("algo-1", "algo-2", "algo-3", "algo-4", "algo-10"),
        current_host="algo-3",
        groups=(
            InstanceGroup("data", "ml.c5.xlarge", ("algo-1", "algo-2")),
            InstanceGroup("train", "ml.p4d.24xlarge", ("algo-3", "algo-10")),
        ),
        current_group="train",
        instance_type="ml.p4d.24xlarge",
        network_interface="eth0",
    )


def test_group_and_type_are_found_from_the_groups() -> None:
    cluster = read(instance_groups=[CPU, GPU])
    assert (cluster.current_group, cluster.instance_type) == ("train", "ml.p4d.24xlarge")
    assert read(instance_groups=[CPU], current_instance_group="data").current_group == "data"


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"hosts": None}, 'file: hosts is null, expected a list of host names such as ["algo-1", "algo-2"]'),
        ({"hosts": []}, "file: hosts is [], expected at least one host name"),
        ({"hosts": "algo-3"}, 'file: hosts is "algo-3", expected a list'),
        ({"hosts": ["algo-3", 4]}, "file: hosts[1] is 4, expected a host name such as algo-1"),
        ({"hosts": ["algo-3", "algo-3"]}, "file: hosts has algo-3 more than once"),
        ({"current_host": None}, "file: current_host is null, expected a host name"),
        ({"current_host": "algo-9"}, 'current_host is "algo-9", expected one of the hosts: algo-1, algo-2, algo-3'),
        ({"current_instance_type": 3}, "file: current_instance_type is 3, expected a string"),
        ({"network_interface_name": []}, "file: network_interface_name is [], expected a string"),
        ({"current_group_name": 1}, "file: current_group_name is 1, expected a string"),
        ({"current_instance_group": 1}, "file: current_instance_group is 1, expected a string"),
        ({"instance_groups": {}}, "file: instance_groups is {}, expected a list of instance groups"),
        ({"instance_groups": [1]}, "file: instance_groups[0] is 1, expected an object"),
        ({"instance_groups": [{"hosts": []}]}, "instance_groups[0].instance_group_name is null, expected the group's"),
        ({"instance_groups": [{**CPU, "hosts": None}]}, "file: instance_groups[0].hosts is null, expected a list"),
        ({"instance_groups": [{**CPU, "hosts": ["x"]}]}, 'instance_groups[0].hosts has "x", expected one of the hosts'),
        ({"instance_groups": [CPU, {**GPU, "hosts": ["algo-1"]}]}, 'has "algo-1" in two groups, data and train'),
        ({"instance_groups": [{**CPU, "instance_type": 1}]}, "instance_groups[0].instance_type is 1, expected a str"),
    ],
)
def test_wrong_keys(config: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        read(**config)


TORCH = Distribution("torch_distributed")


@pytest.mark.parametrize(
    ("groups", "distribution", "asked", "chosen", "hosts"),
    [
        ([], TORCH, "", (), ("algo-1", "algo-2", "algo-3", "algo-4", "algo-10")),
        ([CPU, GPU], Distribution(), "", (), ("algo-1", "algo-2", "algo-3", "algo-4", "algo-10")),
        ([CPU, GPU], Distribution("mpi", groups=("data",)), "", ("data",), ("algo-1", "algo-2")),
        ([CPU, GPU], Distribution("mpi", groups=("data",)), "train", ("data",), ("algo-1", "algo-2")),
        ([CPU, GPU], TORCH, "", ("train",), ("algo-3", "algo-10")),
        ([CPU, GPU], TORCH, "data", ("data",), ("algo-1", "algo-2")),
        ([CPU, GPU, GPU2], TORCH, "big", ("big",), ("algo-4",)),
        ([CPU, GPU, {**GPU2, "hosts": []}], TORCH, "", ("train",), ("algo-3", "algo-10")),
        ([GPU], TORCH, "", ("train",), ("algo-3", "algo-10")),
    ],
)
def test_who_takes_part(
    groups: list[Any], distribution: Distribution, asked: str, chosen: tuple[str, ...], hosts: tuple[str, ...]
) -> None:
    members = [member for group in groups for member in group["hosts"]] if len(groups) == 1 else HOSTS
    choice = choose(read(hosts=members or HOSTS, instance_groups=groups), distribution, asked)
    assert (choice.groups, choice.hosts) == (chosen, hosts)


def test_a_guess_is_loud() -> None:
    (note,) = choose(read(instance_groups=[CPU, GPU]), TORCH).notes
    assert (note.level, "train is used" in note.text) == ("warning", True)


@pytest.mark.parametrize(
    ("groups", "distribution", "asked", "says"),
    [
        ([CPU, GPU, GPU2], TORCH, "", "set MUSTER_GROUP to one of them"),
        ([CPU, {**CPU, "instance_group_name": "more", "hosts": ["algo-3"]}], TORCH, "", "set MUSTER_GROUP"),
        ([CPU, GPU], TORCH, "x", 'MUSTER_GROUP names the instance group "x", expected one of data, train'),
        ([CPU, GPU], Distribution("mpi", groups=("x",)), "", 'distribution_instance_groups names the instance'),
        ([CPU, {**GPU, "hosts": []}], Distribution("mpi", groups=("train",)), "", "which has no hosts"),
    ],
)  # fmt: skip
def test_no_choice(groups: list[Any], distribution: Distribution, asked: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        choose(read(instance_groups=groups), distribution, asked)


@pytest.mark.parametrize(
    ("instance_type", "expected"),
    [
        ("ml.p4d.24xlarge", True), ("ml.p5en.48xlarge", True), ("ml.g4dn.xlarge", True), ("ml.g6e.xlarge", True),
        ("ml.trn1.32xlarge", True), ("ml.inf2.xlarge", True), ("p3.2xlarge", True), ("local_gpu", True),
        ("ml.m5.xlarge", False), ("ml.c5n.18xlarge", False), ("ml.r5.xlarge", False), ("local", False), ("", False),
    ],
)  # fmt: skip
def test_accelerated(instance_type: str, expected: bool) -> None:
    assert accelerated(instance_type) is expected


@pytest.mark.parametrize(
    "names",
    [
        ("algo-1", "algo-2", "algo-10", "algo-100"),
        ("algo-1-w8w6m", "algo-2-w8w6m", "algo-10-w8w6m"),  # SDK v2 local mode
        ("sagemaker-local",),
        ("node001", "node2", "node010"),
        ("10.0.0.2", "10.0.0.10", "10.0.1.1"),
        ("a", "a-1", "b"),
        ("algo-01", "algo-1", "algo-001x"),
        (),
    ],
)
def test_numbers_count_by_value(names: tuple[str, ...]) -> None:
    shuffled = list(names)
    random.Random(0).shuffle(shuffled)
    assert natural(shuffled) == names


@given(st.lists(st.text(), unique=True))
def test_order_does_not_depend_on_the_order_given(names: list[str]) -> None:
    assert natural(names) == natural(reversed(names))
    assert sorted(natural(names)) == sorted(names)


def test_thousands_of_digits_are_no_trouble() -> None:
    assert natural(["a" + "9" * 6000, "a1"]) == ("a1", "a" + "9" * 6000)


GROUP_HOSTS = ("algo-1", "algo-2", "algo-10")


@pytest.mark.parametrize(
    ("me", "group", "leader", "rank", "inside"),
    [
        ("algo-1", GROUP_HOSTS, "algo-1", 0, True),
        ("algo-10", GROUP_HOSTS, "algo-1", 2, True),
        ("algo-1", ("algo-2", "algo-10"), "algo-2", 0, False),
        ("algo-10", ("algo-2", "algo-10"), "algo-2", 2, True),
    ],
)
def test_leader_and_place(me: str, group: tuple[str, ...], leader: str, rank: int, inside: bool) -> None:
    job = Job("sagemaker", "digits", GROUP_HOSTS, me, group, EntryPoint("train.py"))
    assert (job.leader, job.rank_of_host, job.in_group) == (leader, rank, inside)
