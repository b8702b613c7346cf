"""What is configured already: by the environment, and by files of the image or the user that libraries read themselves.

A setting of ours yields to both. NCCL reads ``/etc/nccl.conf``, and ``~/.nccl.conf`` or the file that NCCL_CONF_FILE
names (NCCL's documentation, "Environment Variables"); Open MPI its ``openmpi-mca-params.conf``, whose parameters are
variables named ``OMPI_MCA_…``.
"""

import os
from typing import Iterator, Mapping, Sequence

from musterpoint.core.fabric.devices import read_text

ENVIRONMENT = "the environment"


def configured(environ: Mapping[str, str], root: str = "/") -> dict[str, tuple[str, str]]:
    """For each variable that is set in a file or in ``environ``: its value, and where; the environment comes first."""
    found: dict[str, tuple[str, str]] = {}
    for prefix, files in (("", _nccl_files(environ)), ("OMPI_MCA_", _openmpi_files(environ))):
        for file in files:
            for name, value in _assignments(file, root):
                found.setdefault(prefix + name, (value, file))
    found.update((name, (value, ENVIRONMENT)) for name, value in environ.items() if name.startswith(_PREFIXES))
    return found


_PREFIXES = (
    "NCCL_",
    "GLOO_",
    "TP_",
    "FI_",
    "RDMAV_",
    "IBV_",
    "UCX_",
    "OMPI_MCA_",
    "MSCCL_",
    "NEURON_",
    "CUDA_",
    "MV2_",
    "I_MPI_",
    "OMP_",
    "KMP_",
    "GOMP_",
)


def _nccl_files(environ: Mapping[str, str]) -> tuple[str, str]:
    """NCCL's own files, the user's before the system's."""
    return environ.get("NCCL_CONF_FILE") or _home(environ) + "/.nccl.conf", "/etc/nccl.conf"


def _openmpi_files(environ: Mapping[str, str]) -> list[str]:
    prefixes = [environ["OPAL_PREFIX"]] if environ.get("OPAL_PREFIX") else ["/usr", "/usr/local", "/opt/amazon/openmpi"]
    files = [f"{prefix}/etc/openmpi-mca-params.conf" for prefix in prefixes]
    return [_home(environ) + "/.openmpi/mca-params.conf", *files, "/etc/openmpi/openmpi-mca-params.conf"]


def _home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or "/root"


def _assignments(file: str, root: str) -> Iterator[tuple[str, str]]:
    """``NAME = value`` lines; ``#`` begins a comment."""
    for line in read_text(os.path.join(root, file.lstrip("/")) if file.startswith("/") else file).splitlines():
        name, equals, value = line.partition("#")[0].partition("=")
        if equals and name.strip():
            yield name.strip(), value.strip()


def fits_any(value: str, names: Sequence[str], exact: bool = False) -> bool:
    """Whether NCCL, which takes names for prefixes unless ``=`` or ``^`` comes first, would find one of ``names``."""
    without = value.startswith("^")
    listed = value.removeprefix("^")
    exact = exact or listed.startswith("=")
    words = [word.strip().partition(":")[0] for word in listed.lstrip("=").split(",")]
    found = [any(name == word if exact else name.startswith(word) for word in words if word) for name in names]
    return not all(found) if without else any(found)
