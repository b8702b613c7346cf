"""Processors for each slot: disjoint, near its GPU, within what control groups leave."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.fabric.devices import seen_gpus
from musterpoint.core.fabric.placement import Processors, cpu_sets, divide, listed, survey_processors
from musterpoint.core.fabric.setting import cpu_numbers

from .trees import unpack


def status(root: Path, allowed: str, siblings: int = 0) -> None:
    """What a process may run on; ``siblings``: the second thread of each core has this number more."""
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/status").write_text(f"Name:\tpython\nCpus_allowed_list:\t{allowed}\n")
    for cpu in cpu_numbers(allowed) if siblings else ():
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True, exist_ok=True)
        first = cpu % siblings
        (folder / "thread_siblings_list").write_text(f"{first},{first + siblings}\n")


P4D = ["0-5,48-53", "6-11,54-59", "12-17,60-65", "18-23,66-71", "24-29,72-77", "30-35,78-83", "36-41,84-89",
       "42-47,90-95"]  # fmt: skip
A100 = ["24-35", "36-47", "0-11", "12-23", "72-83", "84-95", "48-59", "60-71"]


@pytest.mark.parametrize(
    ("name", "slots", "allowed", "siblings", "environ", "expected"),
    [
        ("p4d", 8, "0-95", 48, {}, P4D),
        ("p4d", 4, "0-95", 48, {"CUDA_VISIBLE_DEVICES": "0,1,4,5"},
         ["0-11,48-59", "12-23,60-71", "24-35,72-83", "36-47,84-95"]),
        ("nd96asr_v4", 8, "0-95", 0, {}, A100),
        # the container has one core of the second node: all share all cores
        ("p4d", 8, "0-15,24", 0, {}, ["0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15,24"]),
        ("p4d", 8, "0-6", 0, {}, []),
        # GPUs of one node: nothing to be near to
        ("p4d", 4, "0-95", 0, {}, []),
        ("p4d", 8, "0-95", 0, {"OMP_PLACES": "cores"}, []),
        ("p4d", 8, "0-95", 0, {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, []),
        ("g5_xlarge", 2, "0-3", 0, {}, []),
        ("vm", 2, "0-3", 0, {}, []),
    ],
)  # fmt: skip
def test_slots_are_near_their_gpus(
    name: str, slots: int, allowed: str, siblings: int, environ: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    tree = unpack(name, tmp_path)
    status(tmp_path, allowed, siblings)
    found = cpu_sets(slots, "auto", environ, tree)
    assert [one.cpus for one in found] == expected
    assert all("core" in one.reason for one in found)
    assert cpu_sets(slots, "off", environ, tree) == cpu_sets(1, "slots", environ, tree) == ()


def test_always_where_that_is_asked_for(tmp_path: Path) -> None:
    tree = unpack("vm", tmp_path)
    status(tmp_path, "0-3")
    assert [one.cpus for one in cpu_sets(2, "slots", {"OMP_PLACES": "cores"}, tree)] == ["0-1", "2-3"]
    assert cpu_sets(5, "slots", {}, tree) == ()


def test_a_node_without_gpus_helps_the_nearest(tmp_path: Path) -> None:
    for node, distances in enumerate(("10 32 12 32", "32 10 32 12", "12 32 10 32", "32 12 32 10")):
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{node * 4}-{node * 4 + 3}\n")
        (folder / "distance").write_text(distances + "\n")
    status(tmp_path, "0-15")
    assert [one.cpus for one in divide(survey_processors(str(tmp_path)), [2, 1])] == ["0-3,8-11", "4-7,12-15"]


def test_nothing_to_read_is_no_placement(tmp_path: Path) -> None:
    assert survey_processors(str(tmp_path)) == Processors()
    assert divide(Processors(), [-1, -1]) == ()
    assert seen_gpus((), {"CUDA_VISIBLE_DEVICES": "0"}) == []


@given(
    st.lists(st.integers(-1, 3), min_size=2, max_size=16),
    st.dictionaries(st.integers(0, 63), st.integers(0, 3), max_size=64),
)
def test_sets_are_disjoint_and_leave_no_core_out(of_slots: list[int], nodes: dict[int, int]) -> None:
    cores = tuple((cpu,) for cpu in sorted(nodes))
    sets = [cpu_numbers(one.cpus) for one in divide(Processors(cores, nodes), of_slots)]
    assert bool(sets) == (len(cores) >= len(of_slots))
    if sets:
        assert len(sets) == len(of_slots) and all(sets)
        assert sorted(cpu for one in sets for cpu in one) == sorted(nodes)


@given(st.sets(st.integers(0, 512), min_size=1))
def test_lists_as_the_kernel_writes_them(cpus: set[int]) -> None:
    assert cpu_numbers(listed(list(cpus))) == sorted(cpus)


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,", "3-x", "0-99999999"])
def test_other_texts_are_no_lists(text: str) -> None:
    assert cpu_numbers(text) == []
