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


def _azureml(environ: Mapping[str, str]) -> bool:
    return any(environ.get(name) for name in AZUREML_SIGNS)


def _load_azureml() -> Callable[[Mapping[str, str], Settings], Job]:
    from musterpoint.job.azureml import read

    return read


AZUREML_SIGNS = (
    "AZUREML_RUN_ID", "AZUREML_NODE_COUNT", "AZ_BATCH_MASTER_NODE", "AZ_BATCHAI_MPI_MASTER_NODE", "AZ_BATCH_HOST_LIST",
    "AZ_BATCH_NODE_LIST", "AZUREML_CR_NODE_RANK", "AZ_BATCHAI_TASK_INDEX", "AZUREML_CR_DISTRIBUTED_CONFIG",
    "AZ_BATCHAI_JOB_MASTER_NODE_IP",
)  # fmt: skip
"""Variables that only processes of AzureML's have."""

READERS: tuple[Reader, ...] = (Reader("azureml", _azureml, _load_azureml),)
"""All but SageMaker's, in the order in which their variables are looked for; only the one found is imported."""
