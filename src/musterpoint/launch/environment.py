"""The environment every launcher adds. A variable that is already set is the user's: it stays, or is gone on with."""

from __future__ import annotations

from typing import Iterable, Mapping

from musterpoint.fabric.devices import Devices
from musterpoint.fabric.setting import SEARCH_PATHS, EnvSetting


def common_environment(
    exports: Iterable[tuple[str, str]],
    devices: Devices,
    ranks: int,
    network: Iterable[EnvSetting],
    environ: Mapping[str, str],
    grace: float,
) -> tuple[EnvSetting, ...]:
    """``exports`` are the platform's variables for scripts; ``ranks`` is how many a launcher starts on this host.

    0 of them: the program runs once there, and has the host to itself. ``grace`` is how many seconds ranks have to
    stop; a torchrun (or accelerate) that the program itself starts would kill its own after 30 s.
    """
    return unless_set(
        (
            EnvSetting("PYTHONUNBUFFERED", "1", "the last lines before a crash reach the log"),
            EnvSetting("PYTHONFAULTHANDLER", "1", "a rank that dies by a signal says where it was"),
            *((EnvSetting("OMP_NUM_THREADS", *_threads(devices.cpus, ranks)),) if ranks else ()),
            EnvSetting("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(int(-(-grace // 1))), "for ranks of a torchrun below"),
            *network,
            *(EnvSetting(name, value, "what scripts expect on this platform") for name, value in exports),
        ),
        environ,
    )


def unless_set(settings: Iterable[EnvSetting], environ: Mapping[str, str]) -> tuple[EnvSetting, ...]:
    """``settings`` without the variables of ``environ``; of several settings of one variable, the first.

    A search path stays: the user's own is its end.
    """
    kept: dict[str, EnvSetting] = {}
    for setting in settings:
        if setting.name not in environ or setting.name in SEARCH_PATHS:
            kept.setdefault(setting.name, setting)
    return tuple(kept.values())


def _threads(cpus: int, ranks: int) -> tuple[str, str]:
    threads = max(1, cpus // ranks)
    processors = f"{cpus} processor{'s' if cpus != 1 else ''}"
    slots = f"{ranks} slot{'s' if ranks != 1 else ''}"
    return str(threads), f"{processors} of this container over {slots}"
