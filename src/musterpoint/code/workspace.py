"""The workspace: where the user's code lies and how it is started, before any launcher is around it."""

from typing import NamedTuple


class Workspace(NamedTuple):
    """``argv`` starts the user's program (hyperparameters included) with ``cwd`` as working directory.

    ``kind`` is ``python``, ``module``, ``shell`` or ``executable``; ``python`` and ``module`` programs start with
    ``interpreter``, the user's Python (not necessarily ours). ``program`` is the path or module name.
    ``pythonpath`` are the directories put in front of the user's own PYTHONPATH.
    """

    kind: str
    program: str
    argv: tuple[str, ...]
    cwd: str
    interpreter: str
    pythonpath: tuple[str, ...] = ()
