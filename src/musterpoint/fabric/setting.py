"""One environment variable that a device, a launcher or a platform calls for."""

from typing import NamedTuple

from musterpoint.programs.registry import Program

SEARCH_PATHS = frozenset({"PYTHONPATH", "LD_LIBRARY_PATH"})
"""What we set of these goes on with the user's own value, and so may take its place."""


class EnvSetting(NamedTuple):
    """Name, value, and why we set it. Variables the user set never become one, but for :data:`SEARCH_PATHS`.

    ``ours`` names the program of ours whose path the variable gets; ``value`` then only shows that.
    """

    name: str
    value: str
    reason: str
    ours: Program | None = None
