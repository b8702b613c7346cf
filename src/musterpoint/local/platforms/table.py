"""The platforms that ``muster local`` can play; only the module of the one asked for is imported."""

from __future__ import annotations

from importlib import import_module

from musterpoint.base.errors import UsageError
from musterpoint.base.plugins import PLATFORMS, names
from musterpoint.base.settings import chosen
from musterpoint.core.job import platforms
from musterpoint.local.platforms.platform import LocalPlatform

DEFAULT = platforms.NAMES[0]


def playable() -> tuple[str, ...]:
    """The names of our platforms that can be played."""
    return tuple(name for name in platforms.NAMES if platforms.load(name).played)


def read_platform(text: str) -> str:
    """``text``, which must be the name of a platform that can be played: one of ours, or one of an installed package.

    Raises:
        UsageError: it is another.
    """
    ours = playable()
    if text in ours:
        return text
    chosen((*ours, *(name for name in names(PLATFORMS) if platforms.load(name).played)), text, "--platform")
    return text


def played(name: str) -> LocalPlatform:
    """How the platform ``name`` is played.

    Raises:
        UsageError: it can't be.
    """
    module = platforms.load(name).played
    if not module:
        raise UsageError(f"--platform {name}: muster local can't play it: expected one of {', '.join(playable())}")
    made: LocalPlatform = import_module(module).PLAYED
    return made
