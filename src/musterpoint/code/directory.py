"""What can be told of the code directory at a glance; most jobs need no more."""

from __future__ import annotations

import os

PART = ".musterpoint.part"
"""What is being fetched lies here until it is whole."""
REQUIREMENTS = "requirements.txt"
SETUP = "setup.py"
PYPROJECT = "pyproject.toml"


def holds_something(folder: str) -> bool:
    """Whether there is anything in ``folder`` but what an interrupted fetch left."""
    try:
        return any(name != PART for name in os.listdir(folder))
    except OSError:
        return False


def may_want_packages(folder: str) -> bool:
    """Whether there is a file that an installer reads."""
    return any(os.path.isfile(os.path.join(folder, name)) for name in (REQUIREMENTS, SETUP, PYPROJECT))
