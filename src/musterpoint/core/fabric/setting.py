"""What we set because of a device, a launcher or a platform: environment variables, and the processors of ranks.

The user's own value of a variable is kept.
"""

from typing import Iterable, Mapping

from musterpoint.base.records import NamedTuple
from musterpoint.embedded.programs.registry import Program

SEARCH_PATHS = frozenset({"PYTHONPATH", "LD_LIBRARY_PATH"})
"""Our value of these replaces the user's: it contains the user's value at its end."""
FOR_ALL_BELOW = SEARCH_PATHS | {"PATH", "MUSTER_HOSTFILE", "PDSH_RCMD_TYPE", "MUSTER_ROLE", "MUSTER_ROLES"}
"""What the plan sets of these holds for a launch in the job's program, too: ssh between the hosts is the job's."""


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


class CpuSet(NamedTuple):
    """The processors of one local rank.

    cpus: their numbers as the kernel lists them, such as ``0-11,48-59``.
    reason: why these, for ``muster plan``.
    """

    cpus: str
    reason: str


def cpu_numbers(text: str) -> list[int]:
    """The numbers of a list as the kernel writes it: ``0-2,8`` is 0, 1, 2, 8; empty for anything else."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not first.isdecimal() or not last.isdecimal() or int(last) - int(first) > 65536:
            return []
        found += range(int(first), int(last) + 1)
    return found


def unless_set(settings: Iterable[EnvSetting], environ: Mapping[str, str]) -> tuple[EnvSetting, ...]:
    """``settings`` without variables that ``environ`` has; of several settings of one variable, the first.

    Variables of :data:`SEARCH_PATHS` are always kept.
    """
    kept: dict[str, EnvSetting] = {}
    for setting in settings:
        if setting.name not in environ or setting.name in SEARCH_PATHS:
            kept.setdefault(setting.name, setting)
    return tuple(kept.values())
