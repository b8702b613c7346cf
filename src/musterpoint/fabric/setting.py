"""An environment variable that a device, a launcher or a platform calls for; a value of the user's own is kept."""

from typing import Iterable, Mapping, NamedTuple

from musterpoint.programs.registry import Program

SEARCH_PATHS = frozenset({"PYTHONPATH", "LD_LIBRARY_PATH"})
"""Our value of one of these ends with the user's own, and so may replace it."""


class EnvSetting(NamedTuple):
    """A variable, and why it is set.

    name: of the variable.
    value: its text; where ``ours`` is given, this only stands for a path.
    reason: why we set it, for ``muster plan``.
    ours: the program of ours whose path the variable gets.
    """

    name: str
    value: str
    reason: str
    ours: Program | None = None


def unless_set(settings: Iterable[EnvSetting], environ: Mapping[str, str]) -> tuple[EnvSetting, ...]:
    """``settings`` without the variables of ``environ``; of several settings of one variable, the first.

    One of :data:`SEARCH_PATHS` stays.
    """
    kept: dict[str, EnvSetting] = {}
    for setting in settings:
        if setting.name not in environ or setting.name in SEARCH_PATHS:
            kept.setdefault(setting.name, setting)
    return tuple(kept.values())
