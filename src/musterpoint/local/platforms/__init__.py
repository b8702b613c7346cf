"""The platforms whose control plane ``muster local`` plays.

A platform that gives its hosts variables alone has a sample of them in its own file in ``core/job/platforms``. Another
one has a file here, and a row in :data:`OWN`. A package's may be an entry point ``musterpoint.local_platforms``.
"""

from __future__ import annotations

from typing import Callable, Mapping

from musterpoint.base import plugins
from musterpoint.base.errors import UsageError, chosen
from musterpoint.core.job import platforms
from musterpoint.local.platforms import commands
from musterpoint.local.platforms.local_platform import LocalPlatform

DEFAULT = next(iter(platforms.PLATFORMS))


def _azureml() -> LocalPlatform:
    from musterpoint.local.platforms import azureml_nodes

    return azureml_nodes.PLAYED


def _kubeflow() -> LocalPlatform:
    from musterpoint.local.platforms import clusters

    return clusters.KUBEFLOW


def _pbs() -> LocalPlatform:
    from musterpoint.local.platforms import clusters

    return clusters.PBS


def _sagemaker() -> LocalPlatform:
    from musterpoint.local.platforms import training_container

    return training_container.PLAYED


def _slurm() -> LocalPlatform:
    from musterpoint.local.platforms import clusters

    return clusters.SLURM


def _tfconfig() -> LocalPlatform:
    from musterpoint.local.platforms import clusters

    return clusters.TFCONFIG


OWN: Mapping[str, Callable[[], LocalPlatform]] = {
    "sagemaker": _sagemaker,
    "azureml": _azureml,
    "slurm": _slurm,
    "kubeflow": _kubeflow,
    "tfconfig": _tfconfig,
    "pbs": _pbs,
}
"""The platforms that have a file here; only that of the one asked for is imported."""


def playable() -> tuple[str, ...]:
    """The names of our platforms that can be played."""
    return tuple(name for name in platforms.PLATFORMS if name in OWN or platforms.load(name).sample)


def read_platform(text: str) -> str:
    """Checks that a platform can be played: one of ours, or one of an installed package.

    Raises:
        UsageError: it is another.
    """
    ours = playable()
    if text in ours:
        return text
    others = plugins.names(plugins.PLATFORMS)
    played_by_packages = plugins.names(plugins.LOCAL_PLATFORMS)
    known = [name for name in others if name in played_by_packages or platforms.load(name).sample]
    return chosen((*ours, *known), text, "--platform")


def played(name: str) -> LocalPlatform:
    """The play of the platform ``name``.

    Raises:
        UsageError: it can't be.
    """
    if name in OWN:
        return OWN[name]()
    sample = platforms.load(name).sample
    if sample is not None:
        return commands.sampled(sample)
    if name in plugins.names(plugins.LOCAL_PLATFORMS):
        return plugins.load(plugins.LOCAL_PLATFORMS, name, LocalPlatform)
    raise UsageError(f"--platform {name}: muster local can't play it: expected one of {', '.join(playable())}")
