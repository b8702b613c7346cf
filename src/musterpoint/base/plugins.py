"""Launchers and platforms of other packages: entry points of theirs, looked up only for a name that isn't ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from musterpoint.base.errors import UsageError, chosen
from musterpoint.base.records import NamedTuple

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

LAUNCHERS = "musterpoint.launchers"
PLATFORMS = "musterpoint.platforms"
LOCAL_PLATFORMS = "musterpoint.local_platforms"
"""The groups of entry points."""

Kind = TypeVar("Kind")


class Named(NamedTuple):
    """The names that an option can have: ``auto``, ours, and those that installed packages add to a group."""

    field: str
    group: str
    ours: tuple[str, ...]

    @property
    def choices(self) -> tuple[str, ...]:
        """All of them but for packages'."""
        return ("auto", *self.ours)

    def read(self, text: str, where: str) -> str:
        """``text``, which must be such a name; a UsageError names ``where`` (a flag or variable)."""
        return text if text in self.choices else chosen((*self.choices, *names(self.group)), text, where)


def names(group: str) -> tuple[str, ...]:
    """The names that installed packages add to ``group``, sorted."""
    return tuple(sorted({point.name for point in _installed(group)}))


def load(group: str, name: str, kind: type[Kind]) -> Kind:
    """The object of class ``kind`` that an installed package calls ``name`` in ``group``.

    Raises:
        UsageError: there is none, several packages have one, it can't be imported, or it is something else.
    """
    found = tuple(point for point in _installed(group) if point.name == name)
    if len(found) != 1:
        several = f"{len(found)} installed packages have one: {', '.join(map(_origin, found))}; uninstall all but one"
        raise UsageError(
            f"{name}: {several if found else f'no installed package has an entry point of that name in {group}'}"
        )
    point = found[0]
    try:
        made = point.load()
    except Exception as error:  # any code of others may run here
        words = f"{type(error).__name__}: {error}"
        raise UsageError(f"{name}: {_origin(point)} can't be imported for it ({point.value}): {words}") from error
    if not isinstance(made, kind) or getattr(made, "name", name) != name:
        expected = f"a {kind.__module__}.{kind.__qualname__} whose name is {name}"
        raise UsageError(f"{name}: {point.value} of {_origin(point)} is {type(made).__name__}, expected {expected}")
    return made


def _installed(group: str) -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points  # costs as much as the whole start of a job

    return tuple(entry_points(group=group))


def _origin(point: EntryPoint) -> str:
    return f"the package {point.dist.name}" if point.dist is not None else "a package"
