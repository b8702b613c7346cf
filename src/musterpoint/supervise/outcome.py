"""The outcome: how the job ended, as this host knows it."""

from typing import NamedTuple

from musterpoint.failure import Failure, Secondary


class Outcome(NamedTuple):
    """How the job ended, as this host knows it.

    ``code`` is the exit code of the job. ``failure`` is the job's root cause, the same on every host; None when all
    went well or the job was stopped. ``stopped_by`` is the host whose platform stopped the job, else empty.
    ``secondary`` counts the failures beside the root cause, on all hosts as far as known. ``stopped_at`` is when this
    host first learned of a stop, here or elsewhere (the loop's clock); None: never. ``spoilt`` is what went wrong on
    this host while it was stopping, such as a checkpoint that couldn't be saved.
    """

    code: int
    failure: Failure | None = None
    stopped_by: str = ""
    secondary: Secondary = Secondary()
    stopped_at: float | None = None
    spoilt: Failure | None = None
