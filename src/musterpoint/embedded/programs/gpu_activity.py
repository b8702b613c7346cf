"""Says once a second how busy this host's NVIDIA GPUs are: ``gpu_activity.py``, until it is killed or its stdin ends.

Each line of stdout is a JSON array with a pair for each GPU: percent of the last moment in which a kernel ran, and in
which memory was read or written. Nothing is printed where there is no NVML, or where it shows neither.

Run beside ``stack_sampler``, from its text: a call into the driver of a GPU that has failed may never return.
Source: NVIDIA's NVML API reference (``nvmlUtilization_t``); the names and types are those of ``nvidia-ml-py`` 13.580.
"""

from __future__ import annotations

import ctypes
import json
import os
import select

LIBRARY = "libnvidia-ml.so.1"
SECONDS = 1.0
MOST_GPUS = 64


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Gpus:
    """All GPUs that this process may see.

    Raises:
        OSError: there is no NVML, or it can't be started.
    """

    def __init__(self) -> None:
        self._nvml = ctypes.CDLL(LIBRARY)
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self._devices = []
        for number in range(min(count.value, MOST_GPUS)):
            device = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(device))
            self._devices.append(device)

    def _call(self, name: str, *arguments: object) -> None:
        try:
            code = getattr(self._nvml, name)(*arguments)
        except AttributeError:
            raise OSError(f"{LIBRARY} has no {name}") from None
        if code:
            raise OSError(f"{name} has returned {code}")

    def busy(self) -> list[tuple[int, int]]:
        """Percent of running kernels and of memory in use, for each GPU.

        Raises:
            OSError: NVML doesn't show it, as on parts of a GPU (MIG).
        """
        found = []
        for device in self._devices:
            utilization = Utilization()
            self._call("nvmlDeviceGetUtilizationRates", device, ctypes.byref(utilization))
            found.append((utilization.gpu, utilization.memory))
        return found


def main() -> None:
    try:
        gpus = Gpus()
        while True:
            print(json.dumps(gpus.busy()), flush=True)
            if select.select([0], [], [], SECONDS)[0] and not os.read(0, 1):
                return
    except OSError:
        return


if __name__ == "__main__":
    main()
