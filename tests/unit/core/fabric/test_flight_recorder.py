"""When torch is asked to write down what NCCL did, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from musterpoint.core.fabric.devices import Devices
from musterpoint.core.fabric.flight_recorder import FILE, PIPE, flight_recorder_settings

GPUS, NONE = Devices(cpus=8, gpus=2), Devices(cpus=8)


def test_the_settings(tmp_path: Path) -> None:
    environ = {"TMPDIR": str(tmp_path)}
    first, other = (flight_recorder_settings(GPUS, "session", host, environ) for host in ("algo-1", "algo-2"))
    values = {setting.name: setting.value for setting in first}
    assert values.pop(FILE) == values.pop(PIPE)
    assert values == {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    stems = {setting.value for setting in (*first, *other) if setting.name == FILE}
    assert len(stems) == 2
    assert all(stem.startswith(f"{tmp_path}/muster-nccl-") for stem in stems)


@pytest.mark.parametrize(
    ("devices", "environ"),
    [
        (NONE, {}),
        (GPUS, {"TMPDIR": "/nowhere"}),  # torch would refuse to start where it can't make its pipe
        (GPUS, {"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}),
        (GPUS, {"TORCH_FR_DUMP_TEMP_FILE": "/fsx/traces/rank_"}),
        (GPUS, {PIPE: ""}),
    ],
)
def test_none_without_gpus_or_a_place_or_where_the_user_has_some(devices: Devices, environ: dict[str, str]) -> None:
    assert flight_recorder_settings(devices, "session", "algo-1", environ) == ()
