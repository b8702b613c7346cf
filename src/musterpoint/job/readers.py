"""The platforms that start ``muster launch`` on their hosts and describe the job in variables: a row for each."""

from typing import Callable, Mapping, NamedTuple

from musterpoint.job.model import Job
from musterpoint.settings import Platform, Settings


class Reader(NamedTuple):
    """A platform's reader.

    ``found``: whether a process's variables are that platform's.
    ``load``: imports the module that reads them and returns its function from variables and settings to the job, which
    has no program yet. It raises a UsageError that names the variable, its value and what was expected.
    """

    platform: Platform
    found: Callable[[Mapping[str, str]], bool]
    load: Callable[[], Callable[[Mapping[str, str], Settings], Job]]


def _slurm(environ: Mapping[str, str]) -> bool:
    """An allocation or a step; or a task's number, where a container was given no more of Slurm's variables."""
    named = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
    numbers = (("SLURM_NTASKS", "1"), ("SLURM_NNODES", "1"), ("SLURM_PROCID", "0"))
    return any(map(environ.get, named)) or any(environ.get(name, alone) not in ("", alone) for name, alone in numbers)


def _load_slurm() -> Callable[[Mapping[str, str], Settings], Job]:
    from musterpoint.job.slurm import read_slurm

    return read_slurm


READERS: tuple[Reader, ...] = (Reader("slurm", _slurm, _load_slurm),)
"""All but SageMaker's, in the order in which their variables are looked for; only the one found is imported."""
