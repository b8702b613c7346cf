"""CUDA's forward compatibility: the image's own libcuda in place of an older host driver's, where NVIDIA supports it.

An image with a newer CUDA than the host's driver brings ``/usr/local/cuda/compat``, whose libcuda works with older
drivers on data center GPUs (NVIDIA, CUDA Compatibility, Forward Compatibility). It must come first on the
search path where the driver's branch is older, and must not be there otherwise: CUDA fails then (error 803 or 804).
"""

from __future__ import annotations

import json
import os
from typing import Mapping

from musterpoint.core.fabric.devices import entries, read_text
from musterpoint.core.fabric.setting import EnvSetting

COMPAT = "/usr/local/cuda/compat"
VARIABLE = "LD_LIBRARY_PATH"
_CONSUMER = ("geforce", "titan")
"""Products that don't support it (error 804). By NVIDIA's list, data center GPUs and some RTX cards do."""
_LIBRARY = "libcuda.so."
_NOTE = b"NVIDIA Corporation"
_SHT_NOTE = 7
_LONGEST_NOTE = 65536


def cuda_settings(environ: Mapping[str, str], root: str = "/") -> tuple[tuple[EnvSetting, ...], str]:
    """The search path with the compatibility library in front; and a note where it is needed but can't be used.

    The user's own path of ``environ`` follows it. Both are empty where the driver is new enough or unknown, where the
    image has no such library, or where the path already has its folder.
    """
    driver, compat = driver_version(root), compat_version(root)
    own = environ.get(VARIABLE, "")
    if not driver or not compat or _branch(driver) >= _branch(compat) or _named(own, root):
        return (), ""
    of_host = f"this host's NVIDIA driver {driver} is older than {COMPAT} of the image, {compat}"
    refusal = _refusal(driver, root)
    if refusal:
        return (), f"{of_host}, which is left out: {refusal}"
    value = os.pathsep.join((COMPAT, *([own] if own else [])))
    reason = f"{of_host}: CUDA's forward compatibility" + (", in front of the path that was given" if own else "")
    return (EnvSetting(VARIABLE, value, reason),), ""


def driver_version(root: str = "/") -> str:
    """The version of the kernel module, such as ``535.183.01``, from ``/proc``; empty where there is none.

    Lines of open kernel modules have ``Kernel Module for x86_64`` before it.
    """
    for line in read_text(os.path.join(root, "proc/driver/nvidia/version")).splitlines():
        if line.startswith("NVRM"):
            return next((word for word in line.split() if _is_version(word)), "")
    return ""


def compat_version(root: str = "/") -> str:
    """The driver version that the compatibility library belongs to, from its file name; empty where there is none."""
    library = _library(root)
    return os.path.basename(library).removeprefix(_LIBRARY)


def _library(root: str) -> str:
    folder = root.rstrip("/") + COMPAT
    try:
        names = [os.path.basename(os.readlink(os.path.join(folder, _LIBRARY + "1")))]
    except OSError:
        names = entries(folder)
    found = [name for name in names if name.startswith(_LIBRARY) and _is_version(name.removeprefix(_LIBRARY))]
    return os.path.join(folder, found[0]) if len(found) == 1 else ""


def _refusal(driver: str, root: str) -> str:
    """Why the library would not work with this host's devices and driver; empty where it would."""
    folder = os.path.join(root, "proc/driver/nvidia/gpus")
    for gpu in sorted(entries(folder)):
        for line in read_text(os.path.join(folder, gpu, "information")).splitlines():
            name, _, model = line.partition(":")
            if name == "Model" and any(word in model.lower() for word in _CONSUMER):
                return f"{model.strip()} doesn't support it (data center GPUs do)"
    branches = supported_branches(_library(root))
    if branches and _branch(driver) not in branches:
        listed = ", ".join(map(str, branches))
        return f"it supports drivers {listed}"
    return ""


def supported_branches(library: str) -> tuple[int, ...]:
    """Driver branches that the library itself names (575's: 535, 550, …, 575); empty where it names none.

    Since CUDA 12.9 one of its ELF notes is by NVIDIA Corporation: a JSON object whose ``Driver`` lists them.
    """
    for note in _notes(library):
        if note[12:].startswith(_NOTE):
            try:
                value = json.loads(note[note.index(b"{") : note.rindex(b"}") + 1])
                return tuple(branch for branch in value["Driver"] if isinstance(branch, int))
            except (ValueError, KeyError, TypeError):
                continue
    return ()


def _notes(path: str) -> list[bytes]:
    """The note sections of a 64-bit little-endian ELF file; empty for any other file."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if len(head) < 64 or not head.startswith(b"\x7fELF\x02\x01"):
                return []
            file.seek(_word(head, 40, 8))
            size, count = _word(head, 58, 2), _word(head, 60, 2)
            table = file.read(size * count)
            found = []
            for at in range(0, len(table) - size + 1, max(size, 1)):
                if size >= 40 and _word(table, at + 4, 4) == _SHT_NOTE:
                    file.seek(_word(table, at + 24, 8))
                    found.append(file.read(min(_word(table, at + 32, 8), _LONGEST_NOTE)))
            return found
    except (OSError, ValueError, OverflowError):
        return []


def _word(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _named(path: str, root: str) -> bool:
    wanted = os.path.realpath(root.rstrip("/") + COMPAT)
    return any(os.path.realpath(root.rstrip("/") + entry) == wanted for entry in path.split(os.pathsep) if entry)


def _is_version(word: str) -> bool:
    return "." in word and all(part.isdecimal() for part in word.split("."))


def _branch(version: str) -> int:
    return int(version.partition(".")[0])
