"""How many ranks a host has room for."""

from __future__ import annotations

import pytest

from musterpoint.fabric.devices import Devices


@pytest.mark.parametrize(
    ("devices", "slots"),
    [
        (Devices(), 1),
        (Devices(cpus=96, machine_cpus=96), 1),
        (Devices(gpus=8), 8),
        (Devices(neuron_cores=32, neuron_devices=16), 32),
        (Devices(gpus=2, neuron_cores=32), 2),
    ],
)
def test_slots(devices: Devices, slots: int) -> None:
    assert devices.slots == slots
