"""Jobs whose scripts import smdistributed: how they find musterpoint's own, and what is checked before the start."""

from typing import Callable, Mapping

from musterpoint.errors import UsageError
from musterpoint.job.model import Job
from musterpoint.settings import Launcher

SWITCH = "SMDISTRIBUTED_SHIM"
DATAPARALLEL = "smdistributed.dataparallel"
NOTE = (
    f"{DATAPARALLEL} is musterpoint's own, on PyTorch, unless the program's Python has AWS's ({SWITCH}=0 leaves it out)"
)


def wanted(job: Job, environ: Mapping[str, str]) -> bool:
    """Whether the programs of ``job`` get musterpoint's smdistributed, where AWS's isn't installed.

    Raises:
        UsageError: the variable that switches it on or off has another value than 0 or 1.
    """
    switch = environ.get(SWITCH, "")
    if switch not in ("", "0", "1"):
        raise UsageError(
            f"{SWITCH}={switch}: expected 0 (never musterpoint's smdistributed) or 1 (always, also where AWS's is "
            "installed); leave it out for AWS's where there is one"
        )
    return switch == "1" or (switch != "0" and job.distribution.dataparallel)


def notes(job: Job, environ: Mapping[str, str], launcher: Launcher, why: str) -> tuple[str, ...]:
    """Whose package it is, and what starts the ranks where it isn't mpirun; ``why`` is the choice's reason."""
    without_mpi = job.distribution.kind == "smdistributed_dataparallel" and launcher != "mpi"
    started = (f"launcher {launcher}: {why}",) if without_mpi else ()
    return (*started, NOTE) if wanted(job, environ) else started


def check(job: Job, environ: Mapping[str, str], has: Callable[[str], bool]) -> None:
    """Looks ahead at the script's first import; ``has`` asks the program's Python, with its own PYTHONPATH.

    Raises:
        UsageError: it has no package for what the job asks for, and musterpoint's can't take its place.
    """
    ours = wanted(job, environ)
    if not job.distribution.dataparallel or environ.get(SWITCH) == "1" or has(DATAPARALLEL):
        return
    asks = "the job asks for smdistributed data parallelism, but the program's Python has"
    if not ours:
        raise UsageError(
            f"{asks} no {DATAPARALLEL}, and {SWITCH}=0 leaves musterpoint's out: unset it, or install AWS's"
        )
    if not has("torch"):
        raise UsageError(
            f"{asks} neither AWS's {DATAPARALLEL} nor torch, which musterpoint's needs (there is none for TensorFlow): "
            "install torch, or ask for mpi with Horovod"
        )
