"""Paths as they were typed, for hosts that start elsewhere."""

from __future__ import annotations

import os

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import OPTIONS

_OPTIONS = {option.variable: option for option in OPTIONS}


def typed_path(variable: str, value: str, cwd: str, code: str, in_containers: bool) -> str:
    """The value of an option that was given in the directory ``cwd``, for hosts with the user's ``code``.

    A file among the code is named by its path from there: each host has its own copy. Values of options that are no
    path stay as they are.

    Raises:
        UsageError: hosts are containers, which don't have the file.
    """
    option = _OPTIONS.get(variable)
    if option is None or not option.path or (option.path == "command" and "/" not in value):
        return value
    if option.path == "place" and "://" in value:
        return value
    path = os.path.normpath(os.path.join(cwd, value))
    if option.path in ("output", "place"):
        return path
    if in_containers and option.path == "command":
        return value
    if option.path == "code":
        if not os.path.exists(path):
            return value
        inside = os.path.relpath(path, code)
        if not inside.startswith(os.pardir + os.sep):
            return inside
        if in_containers:
            raise UsageError(f"{option.flag} {value}: the containers don't have {path}: put it beside the program")
    return path
