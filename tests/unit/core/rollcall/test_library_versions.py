"""Libraries whose versions differ between hosts are named, with the hosts."""

from __future__ import annotations

import pytest

from musterpoint.core.rollcall.hosts_here import differences

NEW, OLD = "NCCL=2.27.3", "NCCL=2.26.2"


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ({}, []),
        ({"algo-1": [NEW, "MLNX_OFED=5.4-1.0.3.0"], "algo-2": [NEW, "MLNX_OFED=5.4-1.0.3.0"]}, []),
        ({"algo-1": [NEW], "algo-2": [OLD], "algo-3": [NEW]},
         ["NCCL differs between hosts: 2.27.3 on algo-1, algo-3; 2.26.2 on algo-2."]),
        ({"algo-1": [NEW, "libfabric=1.22"], "algo-2": [NEW]},
         ["libfabric differs between hosts: 1.22 on algo-1; not found on algo-2."]),
        ({"algo-1": [OLD], **{f"algo-{n}": [NEW] for n in range(2, 8)}},
         ["2.26.2 on algo-1; 2.27.3 on algo-2, algo-3, algo-4 and 3 more."]),
    ],
)  # fmt: skip
def test_differences(hosts: dict[str, list[str]], said: list[str]) -> None:
    warnings = differences(hosts)
    assert len(warnings) == len(said)
    assert all(part in warning for part, warning in zip(said, warnings, strict=True)), warnings
