"""For jobs whose scripts import smdistributed: whether they get musterpoint's own, and checks before the start."""

from typing import Callable, Mapping

from musterpoint.errors import UsageError
from musterpoint.job.model import Job
from musterpoint.settings import Launcher

SWITCH = "SMDISTRIBUTED_SHIM"
DATAPARALLEL = "smdistributed.dataparallel"
_OURS = f"{DATAPARALLEL} is musterpoint's own, on PyTorch"
NOTE = f"{_OURS}, unless the program's Python has AWS's ({SWITCH}=0 leaves it out)"
NOTE_FORCED = f"{_OURS}, also where the program's Python has AWS's: {SWITCH}=1"


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
    """Notes for the log: whose package is used, and the launcher where it isn't mpirun (``why`` is its reason)."""
    without_mpi = job.distribution.kind == "smdistributed_dataparallel" and launcher != "mpi"
    started = (f"launcher {launcher}: {why}",) if without_mpi else ()
    ours = NOTE_FORCED if environ.get(SWITCH) == "1" else NOTE
    return (*started, ours) if wanted(job, environ) else started


def check(job: Job, environ: Mapping[str, str], has: Callable[[str], bool]) -> None:
    """Checks that the script can import the package; ``has`` asks the program's Python, with its own PYTHONPATH.

    Raises:
        UsageError: there is no package for what the job asks for, and musterpoint's can't replace it.
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
