"""The operations of the API, a module for each noun, and their values."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple

from musterpoint.serve.jobs import Jobs
from musterpoint.serve.moto_services import MotoServices, Telemetry
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import State


class Context(NamedTuple):
    """The parts of the running server.

    ``settings``: what it was started with. ``state``: everything it knows. ``jobs``: starts jobs and tells them.
    ``telemetry``: what their hosts have written. ``moto``: S3, IAM and the like, called inside of this process.
    ``say``: prints a line where the server runs.
    """

    settings: Settings
    state: State
    jobs: Jobs
    telemetry: Telemetry
    moto: MotoServices
    say: Callable[[str], None]


class Request(NamedTuple):
    """One call of the API: the operation's name, and parameters that botocore's model has taken."""

    operation: str
    parameters: Mapping[str, Any]
    context: Context


Handler = Callable[[Request], Mapping[str, Any]]
"""Answers an operation as botocore's model has it. Times are seconds since the epoch. Raises ApiError."""
