"""The versions on this host that must be the same on all: of the user's Python, torch, NCCL, the driver, libfabric."""

import json
import os
import re
from typing import TYPE_CHECKING, Mapping, NamedTuple

from musterpoint import __version__
from musterpoint.fabric.devices import entries, read

if TYPE_CHECKING:
    from musterpoint.probe import Ask

_DISTRIBUTIONS = ("torch", "tensorflow", "jax", "deepspeed", "mpi4py", "nvidia-nccl")
_ASK = (
    "import importlib.metadata as m,json,platform,sys\n"
    "found={'python':platform.python_version()}\n"
    "for d in m.distributions():\n"
    " n=(d.metadata['Name'] or '').lower()\n"
    " for w in sys.argv[1:]:\n"
    "  if n==w or (w=='nvidia-nccl' and n.startswith(w)): found[w]=d.version\n"
    "print(json.dumps(found))"
)
"""Reads the metadata of packages: importing torch would take seconds."""
_LIBRARIES = (
    "opt/amazon/efa/lib", "opt/amazon/efa/lib64", "usr/local/lib", "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/cuda/lib64",
)  # fmt: skip
"""Where images have libfabric (AWS's installer: /opt/amazon/efa) and NCCL."""


class Version(NamedTuple):
    """``name``: what it is the version of."""

    name: str
    version: str


def survey_versions(interpreter: str, environ: Mapping[str, str], ask: "Ask", root: str = "/") -> tuple[Version, ...]:
    """Every version that is found. ``interpreter``: the user's Python, which is asked through ``ask``; empty:
    it isn't asked, which takes as long as it takes to start.
    """
    found = {"musterpoint": __version__, **(_of_python(interpreter, environ, ask) if interpreter else {})}
    nccl = found.pop("nvidia-nccl", "") or library_version("libnccl.so", root)
    found.update(nccl=nccl, libfabric=library_version("libfabric.so", root), efa=_efa_installer(root))
    found["nvidia-driver"] = read(os.path.join(root, "sys/module/nvidia/version")).strip()
    found["ofed"] = read(os.path.join(root, "sys/module/mlx5_core/version")).strip()
    found["kernel"] = read(os.path.join(root, "proc/sys/kernel/osrelease")).strip()
    return tuple(Version(name, version) for name, version in found.items() if version)


def _of_python(interpreter: str, environ: Mapping[str, str], ask: "Ask") -> dict[str, str]:
    try:
        answer = ask((interpreter, "-c", _ASK, *_DISTRIBUTIONS), environ, "/", False)
        found = json.loads(answer.text)
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(name): str(version) for name, version in found.items()}


def library_version(name: str, root: str = "/") -> str:
    """The version of a library by its file's full name (``libfabric.so.1.24.0``: 1.24.0); empty where there is none."""
    pattern = re.compile(re.escape(name) + r"\.(\d+\.\d+(?:\.\d+)*)$")
    for folder in _LIBRARIES:
        found = [match[1] for file in entries(os.path.join(root, folder)) if (match := pattern.fullmatch(file))]
        if found:
            return max(found, key=lambda text: [int(part) for part in text.split(".")])
    return ""


def _efa_installer(root: str) -> str:
    """AWS's installer writes its version into the first line: ``# EFA installer version: 1.38.0``."""
    first = read(os.path.join(root, "opt/amazon/efa_installed_packages")).partition("\n")[0]
    return first.rpartition(":")[2].strip() if "version" in first else ""
