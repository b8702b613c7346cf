"""The table of platforms that ``muster local`` can play; only the module of the one asked for is imported."""

from __future__ import annotations

from typing import Callable

from musterpoint.local.platforms.platform import LocalPlatform
from musterpoint.settings import Platform


def _sagemaker() -> LocalPlatform:
    from musterpoint.local.platforms.sagemaker import SAGEMAKER

    return SAGEMAKER


def _azureml() -> LocalPlatform:
    from musterpoint.local.platforms.azureml import AZUREML

    return AZUREML


PLAYED: dict[Platform, Callable[[], LocalPlatform]] = {"sagemaker": _sagemaker, "azureml": _azureml}
"""A platform's name, and how its module is loaded. The first one is the default."""


def played(platform: Platform) -> LocalPlatform:
    """How ``platform`` is played."""
    return PLAYED[platform]()
