"""What the handler of an operation works with."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple

from musterpoint.serve.moto_services import MotoServices
from musterpoint.serve.notices import Notices
from musterpoint.serve.runner import Runner
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import State


class Context(NamedTuple):
    """The parts of the running server.

    ``settings``: what it was started with. ``state``: everything it knows. ``runner``: starts jobs and tells them.
    ``notices``: what has changed. ``moto``: S3, IAM, Logs and the like, called inside of this process.
    ``say``: prints a line where the server runs.
    """

    settings: Settings
    state: State
    runner: Runner
    notices: Notices
    moto: MotoServices
    say: Callable[[str], None]


class Request(NamedTuple):
    """One call of the API: the operation's name, and what it was called with, checked against botocore's model."""

    operation: str
    parameters: Mapping[str, Any]
    context: Context


Handler = Callable[[Request], Mapping[str, Any]]
"""What an operation answers, as botocore's model has it; times are seconds since the epoch. Raises ApiError."""
