"""One check for named tuples that were built from decoded JSON: every field has a type it may have."""

from __future__ import annotations

from typing import Any, Mapping


def check_types(row: Any, types: Mapping[str, tuple[type, ...]], what: str = "") -> None:
    """Raises ValueError, beginning with ``what``, for the first field of ``row`` that has none of its ``types``.

    JSON's true and false are no numbers here: ``bool`` must be named to be allowed.
    """
    for name, kinds in types.items():
        found = getattr(row, name)
        if not isinstance(found, kinds) or (isinstance(found, bool) and bool not in kinds):
            raise ValueError(f"{what}{name} is {found!r}")
