"""One environment variable that a device, a launcher or a platform calls for; the user's own value goes before it."""

from typing import Iterable, Mapping, NamedTuple

from musterpoint.programs.registry import Program

SEARCH_PATHS = frozenset({"PYTHONPATH", "LD_LIBRARY_PATH"})
"""What we set of these goes on with the user's own value, and so may take its place."""


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
