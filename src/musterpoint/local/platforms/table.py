"""The table of platforms that ``muster local`` can play; only the module of the one asked for is imported."""

from __future__ import annotations

from typing import Callable

from musterpoint.local.platforms.platform import LocalPlatform


def _sagemaker() -> LocalPlatform:
    from musterpoint.local.platforms.sagemaker import SAGEMAKER

    return SAGEMAKER


def _azureml() -> LocalPlatform:
    from musterpoint.local.platforms.azureml import AZUREML

    return AZUREML


def _kubernetes() -> LocalPlatform:
    from musterpoint.local.platforms.kubernetes import KUBERNETES

    return KUBERNETES


def _kubeflow() -> LocalPlatform:
    from musterpoint.local.platforms.kubeflow import KUBEFLOW

    return KUBEFLOW


def _slurm() -> LocalPlatform:
    from musterpoint.local.platforms.slurm import SLURM

    return SLURM


PLAYED: dict[str, Callable[[], LocalPlatform]] = {
    "sagemaker": _sagemaker,
    "azureml": _azureml,
    "kubernetes": _kubernetes,
    "kubeflow": _kubeflow,
    "slurm": _slurm,
}
"""A platform's name, and how its module is loaded. The first one is the default."""


def played(platform: str) -> LocalPlatform:
    """How ``platform`` is played."""
    return PLAYED[platform]()
