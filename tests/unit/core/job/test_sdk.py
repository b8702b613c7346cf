from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.errors import UsageError
from musterpoint.core.job.sdk import FORMS, from_sdk

VECTORS = json.loads((Path(__file__).parent / "vectors" / "v2_hyperparameters.json").read_text())
ON: dict[str, Any] = {"enabled": True}
P4 = "ml.p4d.24xlarge"


def mpi(**options: Any) -> dict[str, Any]:
    return {"mpi": {**ON, **options}}


def data(**options: Any) -> dict[str, Any]:
    return {"smdistributed": {"dataparallel": {**ON, **options}}}


def model(**parameters: Any) -> dict[str, Any]:
    return {"smdistributed": {"modelparallel": {**ON, "parameters": parameters}}}


TORCH = {"torch_distributed": ON}
G2 = {"instance_groups": ["g2"]}

CASES: list[tuple[str, dict[str, Any], str, str | None]] = [
    ("PT mpi", mpi(), "pytorch", P4),
    ("PT mpi opts", mpi(processes_per_host=8, custom_mpi_options="-verbose --NCCL_DEBUG=INFO"), "pytorch", P4),
    ("PT mpi disabled", {"mpi": {"enabled": False}}, "pytorch", P4),
    ("PT smddp", data(), "pytorch", P4),
    ("PT smddp opts", data(custom_mpi_options="-x A=1"), "pytorch", P4),
    ("PT smp", {**model(partitions=2, microbatches=4, ddp=True), **mpi(processes_per_host=8)}, "pytorch", P4),
    ("PT smp only", model(partitions=2), "pytorch", P4),
    ("PT smp v2 + torch_distributed", {**TORCH, **model(tensor_parallel_degree=8)}, "pytorch", P4),
    ("PT torch_distributed", TORCH, "pytorch", P4),
    ("PT torch_distributed + smddp", {**TORCH, **data()}, "pytorch", P4),
    ("PT pytorchddp", {"pytorchddp": ON}, "pytorch", P4),
    ("PT pytorchddp opts", {"pytorchddp": {**ON, "custom_mpi_options": "-x B=2"}}, "pytorch", P4),
    ("PT parameter_server", {"parameter_server": ON}, "pytorch", P4),
    ("PT cpu torch_distributed image_uri", TORCH, "pytorch", "ml.m5.xlarge"),
    ("PT hetero mpi", {**G2, **mpi(processes_per_host=8)}, "pytorch", None),
    ("PT hetero smddp", {**G2, **data()}, "pytorch", None),
    ("PT hetero smp", {**G2, **model(partitions=2), **mpi()}, "pytorch", None),
    ("PT hetero torch_distributed", {**G2, **TORCH}, "pytorch", None),
    ("PT hetero nodist", {}, "pytorch", None),
    ("TF mpi", mpi(processes_per_host=4), "tensorflow", P4),
    ("TF ps", {"parameter_server": ON}, "tensorflow", P4),
    ("TF mwms", {"multi_worker_mirrored_strategy": ON}, "tensorflow", P4),
    ("TF smddp", data(), "tensorflow", P4),
    ("TF smp", {**model(partitions=2), **mpi()}, "tensorflow", P4),
    ("TF pytorchxla", {"pytorchxla": ON}, "tensorflow", P4),
    ("HF pytorchddp", {"pytorchddp": ON}, "huggingface", P4),
    ("HF torch_distributed", TORCH, "huggingface", P4),
    ("HF td+smp", {**TORCH, **model(partitions=2)}, "huggingface", P4),
    ("HF td+smddp", {**TORCH, **data()}, "huggingface", P4),
    ("HF smddp", data(), "huggingface", P4),
    ("HF mpi", mpi(), "huggingface", P4),
    ("HF hetero td", {**G2, **TORCH}, "huggingface", None),
    ("HF one group smddp", {**G2, **data()}, "huggingface", None),
]  # fmt: skip


@pytest.mark.parametrize(("case", "distribution", "framework", "instance_type"), CASES, ids=[case[0] for case in CASES])
def test_as_the_sdk_sends_it(
    case: str, distribution: dict[str, Any], framework: str, instance_type: str | None
) -> None:
    sent = {name: value for name, value in VECTORS[case]["hyperparameters"].items() if name != "model_dir"}
    assert from_sdk(distribution, framework, instance_type) == sent


@pytest.mark.parametrize(
    ("distribution", "framework", "says"),
    [
        ({"modelparallel": ON}, "pytorch", '"modelparallel" outside "smdistributed"; expected {"smdistributed": {'),
        ({"dataparallel": ON}, "pytorch", '"dataparallel" outside "smdistributed"'),
        ({"ray": ON}, "pytorch", 'the unknown key "ray", expected one of:\n{"torch_distributed": {"enabled": true}}'),
        ({"torch_distributed": {**ON, "processes_per_host": 8}}, "pytorch", "set --slots instead"),
        ({"mpi": {**ON, "proceses_per_host": 8}}, "pytorch", 'has the unknown key "proceses_per_host", expected {'),
        ({"mpi": True}, "pytorch", 'the distribution\'s "mpi" is true, expected {"mpi": {"enabled": true'),
        ({"mpi": {}}, "pytorch", '"mpi" "enabled" is null, expected {"mpi"'),
        ({"mpi": {"enabled": "true"}}, "pytorch", '"enabled" is "true", expected'),
        ({"mpi": {**ON, "processes_per_host": "x"}}, "pytorch", 'is "x", expected a whole number'),
        ({"smdistributed": {}}, "pytorch", '"smdistributed" is {}, expected'),
        ({"smdistributed": {"ddp": ON}}, "pytorch", 'has the unknown key "ddp", expected {"smdistributed"'),
        (model(partitions=1) | {"instance_groups": "g"}, "pytorch", '"instance_groups" is "g", expected'),
        ({"multi_worker_mirrored_strategy": ON}, "pytorch", "is for tensorflow, not for pytorch"),
        (TORCH, "tensorflow", "is for pytorch and huggingface, not for tensorflow"),
        ({"multi_worker_mirrored_strategy": ON, "parameter_server": ON}, "tensorflow", "choose one"),
        ({}, "mxnet", 'the framework "mxnet" isn\'t one of pytorch, tensorflow, huggingface'),
        ([], "pytorch", "the distribution is [], expected an object"),
    ],
)  # fmt: skip
def test_what_the_sdk_would_swallow_is_an_error(distribution: Any, framework: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        from_sdk(distribution, framework, P4)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["enabled", "dataparallel"]), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(FORMS)), JSON) | JSON)
def test_only_usage_errors_come_out(distribution: Any) -> None:
    try:
        sent = from_sdk(distribution)
    except UsageError:
        return
    assert all(isinstance(json.loads(value), object) for value in sent.values())
