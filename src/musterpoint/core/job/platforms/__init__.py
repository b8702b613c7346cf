"""The platforms: a file for each, with all that differs as one object, ``PLATFORM``; and a row for each.

Only the file of the one that is found is imported.
"""

from typing import Callable, Mapping

from musterpoint.base import plugins
from musterpoint.base.records import NamedTuple
from musterpoint.core.job.platform import Platform


def _sagemaker() -> Platform:
    from musterpoint.core.job.platforms import sagemaker

    return sagemaker.PLATFORM


def _azurebatch() -> Platform:
    from musterpoint.core.job.platforms import azurebatch

    return azurebatch.PLATFORM


def _azureml() -> Platform:
    from musterpoint.core.job.platforms import azureml

    return azureml.PLATFORM


def _slurm() -> Platform:
    from musterpoint.core.job.platforms import slurm

    return slurm.PLATFORM


def _lws() -> Platform:
    from musterpoint.core.job.platforms import lws

    return lws.PLATFORM


def _hyperpod() -> Platform:
    from musterpoint.core.job.platforms import hyperpod

    return hyperpod.PLATFORM


def _kubeflow() -> Platform:
    from musterpoint.core.job.platforms import kubeflow

    return kubeflow.PLATFORM


def _vertex() -> Platform:
    from musterpoint.core.job.platforms import vertex

    return vertex.PLATFORM


def _awsbatch() -> Platform:
    from musterpoint.core.job.platforms import awsbatch

    return awsbatch.PLATFORM


def _skypilot() -> Platform:
    from musterpoint.core.job.platforms import skypilot

    return skypilot.PLATFORM


def _dstack() -> Platform:
    from musterpoint.core.job.platforms import dstack

    return dstack.PLATFORM


def _determined() -> Platform:
    from musterpoint.core.job.platforms import determined

    return determined.PLATFORM


def _tfconfig() -> Platform:
    from musterpoint.core.job.platforms import tfconfig

    return tfconfig.PLATFORM


def _volcano() -> Platform:
    from musterpoint.core.job.platforms import volcano

    return volcano.PLATFORM


def _flux() -> Platform:
    from musterpoint.core.job.platforms import flux

    return flux.PLATFORM


def _lsf() -> Platform:
    from musterpoint.core.job.platforms import lsf

    return lsf.PLATFORM


def _pbs() -> Platform:
    from musterpoint.core.job.platforms import pbs

    return pbs.PLATFORM


def _nomad() -> Platform:
    from musterpoint.core.job.platforms import nomad

    return nomad.PLATFORM


def _kubernetes() -> Platform:
    from musterpoint.core.job.platforms import kubernetes

    return kubernetes.PLATFORM


def _plain() -> Platform:
    from musterpoint.core.job.platforms import plain

    return plain.PLATFORM


class PlatformRow(NamedTuple):
    """A platform before its file is imported.

    ``begins``: how its variables begin: where none begins so it isn't looked at, else it decides itself.
    """

    load: Callable[[], Platform]
    begins: tuple[str, ...] = ()


PLATFORMS: dict[str, PlatformRow] = {
    "sagemaker": PlatformRow(_sagemaker),
    "azurebatch": PlatformRow(_azurebatch, ("AZ_BATCH_",)),
    "azureml": PlatformRow(_azureml, ("AZUREML_", "AZ_BATCH")),
    "slurm": PlatformRow(_slurm, ("SLURM",)),
    "lws": PlatformRow(_lws, ("LWS_",)),
    "hyperpod": PlatformRow(_hyperpod, ("PET_MASTER_ADDR",)),
    "kubeflow": PlatformRow(
        _kubeflow, ("PET_", "JAX_", "DMLC_", "MASTER_ADDR", "K_MPI_", "OMPI_MCA_", "I_MPI_HYDRA_", "HYDRA_")
    ),
    "vertex": PlatformRow(_vertex, ("CLUSTER_SPEC",)),
    "awsbatch": PlatformRow(_awsbatch, ("AWS_BATCH_JOB_N",)),
    "skypilot": PlatformRow(_skypilot, ("SKYPILOT_NUM_NODES", "SKYPILOT_NODE_")),
    "dstack": PlatformRow(_dstack, ("DSTACK_NODE",)),
    "determined": PlatformRow(_determined, ("DET_",)),
    "tfconfig": PlatformRow(_tfconfig, ("TF_CONFIG",)),
    "volcano": PlatformRow(_volcano, ("VC_",)),
    "flux": PlatformRow(_flux, ("FLUX_",)),
    "lsf": PlatformRow(_lsf, ("LSB_",)),
    "pbs": PlatformRow(_pbs, ("PBS_",)),
    "nomad": PlatformRow(_nomad, ("NOMAD_",)),
    "kubernetes": PlatformRow(_kubernetes, ("JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST")),
    "plain": PlatformRow(_plain),
}
"""Every platform of ours, in the order in which they are looked for. ``plain``: there is none."""
NAMED = plugins.Named("platform", plugins.PLATFORMS, tuple(PLATFORMS))


def load(name: str) -> Platform:
    """The platform ``name``: ours, or one that an installed package adds.

    Raises:
        UsageError: there is no such platform, or a package's can't be had.
    """
    if name in PLATFORMS:
        return PLATFORMS[name].load()
    return plugins.load(plugins.PLATFORMS, NAMED.read(name, "--platform (MUSTER_PLATFORM)"), Platform)


def here(environ: Mapping[str, str], base: str) -> Platform:
    """The platform whose variables, or files below ``base``, this process has. Plugins' are never looked for."""
    rows = PLATFORMS.values()
    possible = [row for row in rows if not row.begins or any(each.startswith(row.begins) for each in environ)]
    for row in possible:
        if row.load().found(environ, base):
            return row.load()
    return next(row.load() for row in possible if row.load().presumed(environ, base))
