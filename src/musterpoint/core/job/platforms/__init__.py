"""The table of platforms, in the order in which they are looked for: only the file of the one that is found is read."""

from importlib import import_module
from typing import Mapping

from musterpoint.base import plugins
from musterpoint.base.kinds import PLATFORMS
from musterpoint.base.settings import BY_FIELD
from musterpoint.core.job.platform import Platform

NAMES = tuple(PLATFORMS)


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
    possible = [
        name for name, begins in PLATFORMS.items() if not begins or any(each.startswith(begins) for each in environ)
    ]
    for platform in map(load, possible):
        if platform.found(environ, base):
            return platform
    return next(platform for platform in map(load, possible) if platform.presumed(environ, base))
