"""Facts as JSON and back; what another host sends is checked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.tools.check.facts import HostFacts, Interface, Links, RdmaPort, Version
from musterpoint.tools.check.gpus import Gpu, Gpus, Xid
from musterpoint.tools.check.steps import Told, from_json, to_json
from musterpoint.tools.check.system import Disk, MachineState

TOLD = Told(
    HostFacts(
        "algo-1", 8, True, 96, 8, 0, ("efa_0",), MachineState(disks=(Disk("output", "/o"),)),
        Links("eth0", (Interface("eth0"),), (RdmaPort("efa_0/1", "ACTIVE"),)),
        Gpus("", "550", (Gpu(0, throttled=("power brake",)),), (Xid("0:1", 79),)), (Version("torch", "2.1"),), ("::1",),
    ),
    (7777, 40000),
)  # fmt: skip


def test_facts_come_back_as_they_were() -> None:
    assert from_json(Told, json.loads(json.dumps(to_json(TOLD)))) == TOLD


def test_fields_that_another_release_has_are_left_out_and_missing_ones_have_defaults() -> None:
    assert from_json(HostFacts, {"host": "a", "new": 1}) == HostFacts("a")


@pytest.mark.parametrize(
    "value",
    [
        None, [], {}, {"facts": {}}, {"facts": {"host": 1}}, {"facts": {"host": "a", "slots": True}},
        {"facts": {"host": "a"}, "ports": ["x"]}, {"facts": {"host": "a", "machine": {"shm_total": 2**70}}},
        {"facts": {"host": "a", "rdma": [[]]}},
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        from_json(Told, value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*HostFacts._fields, "facts"]), inner),
    max_leaves=12,
)


@given(JSON)
def test_nothing_that_json_can_say_does_harm(value: Any) -> None:
    try:
        told = from_json(Told, value)
    except ValueError:
        return
    json.dumps(to_json(told))
