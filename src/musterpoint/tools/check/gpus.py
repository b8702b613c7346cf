"""The health of this host's NVIDIA GPUs, as the driver's library (NVML) and the kernel's log tell it.

NVML is asked through ``nvidia-ml-py``, the extra ``gpu``. Where it isn't there, :attr:`Gpus.unlooked` says so.
"""

import os
import re
from typing import Any, Callable, Mapping, NamedTuple

from musterpoint.core.fabric.devices import read
from musterpoint.tools.check.system import System

RECOVERY = (
    "none", "reset of the GPU", "reboot", "drain of its peers", "drain and reset", "recovery of its IMEX domain",
    "reset of its bus", "reboot of the system",
)  # fmt: skip
"""NVML's recovery actions (``nvmlDeviceGpuRecoveryAction_t``, nvml.h), by number."""
THROTTLES: Mapping[int, str] = {
    0x8: "hardware slowdown", 0x20: "heat, by the driver", 0x40: "heat, by the hardware", 0x80: "power brake",
}  # fmt: skip
"""Reasons for lower clocks that are faults (``nvmlClocksEventReasons``, nvml.h); idle and power caps are none."""
XIDS: Mapping[int, str] = {
    **dict.fromkeys((48, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158), "reset"),
    **dict.fromkeys((79, 151, 168), "reboot"), 54: "replace", 74: "look at NVLink",
}  # fmt: skip
"""What NVIDIA's catalogue of Xids asks for where it isn't the application's fault (docs.nvidia.com/deploy/xid-errors;
the buckets of driver r590 as AWS's gpu-cluster-healthcheck has them)."""
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): (\d+)")
_LOGGED = 1 << 20
_LARGE = 512 << 20


class Gpu(NamedTuple):
    """One GPU.

    number: as nvidia-smi counts.
    recovery: what the driver asks for; empty for nothing.
    uncorrected: errors of its memory since the driver was loaded; -1: no ECC.
    repair: the repair of its memory that is due or failed; empty for none.
    throttled: reasons for low clocks that are faults.
    lanes, most_lanes: of PCI Express.
    used: bytes of its memory.
    """

    number: int
    name: str = ""
    recovery: str = ""
    uncorrected: int = -1
    repair: str = ""
    throttled: tuple[str, ...] = ()
    lanes: int = 0
    most_lanes: int = 0
    used: int = 0


class Xid(NamedTuple):
    """An error number of a GPU in the kernel's log. ``bus``: the GPU's PCI address."""

    bus: str
    number: int


class Gpus(NamedTuple):
    """``unlooked``: why NVML wasn't asked; empty: it was. ``driver``: its version."""

    unlooked: str = ""
    driver: str = ""
    all: tuple[Gpu, ...] = ()
    xids: tuple[Xid, ...] = ()


def survey_gpus(expected: int, system: System) -> Gpus:
    """The GPUs of this host. Where none is ``expected`` NVML isn't asked."""
    driver = _kernel_driver(system.root)
    if not expected:
        return Gpus(driver=driver)
    xids = kernel_xids(system.root)
    try:
        import pynvml  # the extra gpu
    except ImportError:
        return Gpus("nvidia-ml-py isn't installed for musterpoint's Python", driver, (), xids)
    return ask_nvml(pynvml, driver, xids)


def ask_nvml(nvml: Any, driver: str = "", xids: tuple[Xid, ...] = ()) -> Gpus:
    """What the library says. ``nvml``: the module ``pynvml``."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Gpus(f"NVML doesn't answer: {error}", driver, (), xids)
    try:
        driver = _text(_tried(nvml, nvml.nvmlSystemGetDriverVersion)) or driver
        found = tuple(_gpu(nvml, index) for index in range(_tried(nvml, nvml.nvmlDeviceGetCount) or 0))
    finally:
        _tried(nvml, nvml.nvmlShutdown)
    return Gpus("", driver, found, xids)


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = _tried(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return Gpu(index, recovery="an answer at all: it is lost")

    def ask(name: str, *arguments: Any) -> Any:
        call = getattr(nvml, name, None)  # older releases lack some
        return _tried(nvml, call, handle, *arguments) if call else None

    reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
    uncorrected = ask("nvmlDeviceGetTotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    memory = ask("nvmlDeviceGetMemoryInfo")
    return Gpu(
        number=index,
        name=_text(ask("nvmlDeviceGetName")),
        recovery=_recovery(nvml, handle),
        uncorrected=-1 if uncorrected is None else uncorrected,
        repair=_repair(ask("nvmlDeviceGetRemappedRows"), ask("nvmlDeviceGetRetiredPagesPendingStatus")),
        throttled=tuple(words for bit, words in THROTTLES.items() if reasons & bit),
        lanes=ask("nvmlDeviceGetCurrPcieLinkWidth") or 0,
        most_lanes=ask("nvmlDeviceGetMaxPcieLinkWidth") or 0,
        used=memory.used if memory is not None else 0,
    )


def _recovery(nvml: Any, handle: Any) -> str:
    field = getattr(nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
    values = _tried(nvml, nvml.nvmlDeviceGetFieldValues, handle, [field]) if field is not None else None
    if not values or values[0].nvmlReturn:
        return ""
    action = int(values[0].value.uiVal)
    return "" if not action else RECOVERY[action] if action < len(RECOVERY) else f"recovery action {action}"


def _repair(rows: Any, pages: Any) -> str:
    """``rows``: corrected, uncorrected, whether a remapping is pending, and whether one failed."""
    if rows is not None and rows[3]:
        return "rows of its memory couldn't be remapped"
    if rows is not None and rows[2]:
        return "rows of its memory are to be remapped at the next reset"
    return "pages of its memory are to be retired at the next reset" if pages else ""


def _tried(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """What ``call`` gives; None where the driver or GPU doesn't know it."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def _kernel_driver(root: str) -> str:
    return read(os.path.join(root, "sys/module/nvidia/version")).strip()


def kernel_xids(root: str = "/") -> tuple[Xid, ...]:
    """The Xids in the kernel's log; none where this process may not read it, as in most containers."""
    try:
        fd = os.open(os.path.join(root, "dev/kmsg"), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return ()
    text, size = [], 0
    try:
        while size < _LOGGED and (piece := os.read(fd, 8192)):  # one record of the log each
            text.append(piece.decode("utf-8", "replace"))
            size += len(piece)
    except OSError:
        pass  # the log's end, or records that were overwritten meanwhile
    finally:
        os.close(fd)
    found = [Xid(bus, int(number)) for bus, number in _XID.findall("".join(text))]
    return tuple(dict.fromkeys(found))


def is_busy(gpu: Gpu) -> bool:
    """Whether more of its memory is used than the driver itself takes."""
    return gpu.used > _LARGE
