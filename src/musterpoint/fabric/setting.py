"""An environment variable that we set because of a device, a launcher or a platform. The user's own value is kept."""

from typing import Iterable, Mapping, NamedTuple

from musterpoint.programs.registry import Program

SEARCH_PATHS = frozenset({"PYTHONPATH", "LD_LIBRARY_PATH"})
"""Our value of these replaces the user's: it contains the user's value at its end."""


class EnvSetting(NamedTuple):
    """A variable, and why it is set.

    name: the variable's name.
    value: its text; a placeholder where ``ours`` is given.
    reason: why we set it, for ``muster plan``.
    ours: the program of musterpoint whose path the variable gets.
    """

    name: str
    value: str
    reason: str
    ours: Program | None = None


def unless_set(settings: Iterable[EnvSetting], environ: Mapping[str, str]) -> tuple[EnvSetting, ...]:
    """``settings`` without variables that ``environ`` has; of several settings of one variable, the first.

    Variables of :data:`SEARCH_PATHS` are always kept.
    """
    kept: dict[str, EnvSetting] = {}
    for setting in settings:
        if setting.name not in environ or setting.name in SEARCH_PATHS:
            kept.setdefault(setting.name, setting)
    return tuple(kept.values())
