"""The table of platforms, in the order in which they are looked for: only the file of the one that is found is read."""

from importlib import import_module
from typing import Mapping, NamedTuple

from musterpoint.base import plugins
from musterpoint.base.settings import BY_FIELD
from musterpoint.core.job.platform import Platform


class _Entry(NamedTuple):
    """A platform's name, which is also its module's, and how its signs begin.

    Where no variable begins so the module isn't imported; where it is, the platform itself decides.
    """

    name: str
    begins: tuple[str, ...] = ()


_TABLE = (
    _Entry("sagemaker"),
    _Entry("azurebatch", ("AZ_BATCH_",)),
    _Entry("azureml", ("AZUREML_", "AZ_BATCH")),
    _Entry("slurm", ("SLURM",)),
    _Entry("lws", ("LWS_",)),
    _Entry("hyperpod", ("PET_MASTER_ADDR",)),
    _Entry("kubeflow", ("PET_", "JAX_", "DMLC_", "MASTER_ADDR", "K_MPI_", "OMPI_MCA_", "I_MPI_HYDRA_", "HYDRA_")),
    _Entry("vertex", ("CLUSTER_SPEC",)),
    _Entry("awsbatch", ("AWS_BATCH_JOB_N",)),
    _Entry("skypilot", ("SKYPILOT_NUM_NODES", "SKYPILOT_NODE_")),
    _Entry("dstack", ("DSTACK_NODE",)),
    _Entry("determined", ("DET_",)),
    _Entry("tfconfig", ("TF_CONFIG",)),
    _Entry("volcano", ("VC_",)),
    _Entry("flux", ("FLUX_",)),
    _Entry("lsf", ("LSB_",)),
    _Entry("pbs", ("PBS_",)),
    _Entry("nomad", ("NOMAD_",)),
    _Entry("kubernetes", ("JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST")),
    _Entry("plain"),
)
NAMES = tuple(entry.name for entry in _TABLE)


def load(name: str) -> Platform:
    """The platform ``name``: ours, or one that an installed package adds.

    Raises:
        UsageError: there is no such platform, or a package's can't be had.
    """
    if name in NAMES:
        platform: Platform = import_module(f"{__name__}.{name}").PLATFORM
        return platform
    return plugins.load(plugins.PLATFORMS, BY_FIELD["platform"].read(name, "--platform"), Platform)


def here(environ: Mapping[str, str], base: str) -> Platform:
    """The platform whose variables, or files below ``base``, this process has. Plugins' are never looked for."""
    possible = [entry for entry in _TABLE if not entry.begins or any(name.startswith(entry.begins) for name in environ)]
    for entry in possible:
        platform = load(entry.name)
        if platform.found(environ, base):
            return platform
    return next(
        platform for platform in map(load, (entry.name for entry in possible)) if platform.presumed(environ, base)
    )
