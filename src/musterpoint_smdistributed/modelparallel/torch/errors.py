"""The errors of a step that several ranks run together."""

from __future__ import annotations

import os
import traceback

from ..backend.exceptions import SMPError

_HERE = os.path.dirname(__file__)


class SMPRemoteError(SMPError, RuntimeError):
    """Another rank of this step failed.

    rank: its global rank.
    remote_traceback: what Python said there.
    """

    def __init__(self, rank: int, remote_traceback: str) -> None:
        super().__init__(f"rank {rank} failed, and with it this step. What it said:\n\n{remote_traceback}")
        self.rank = rank
        self.remote_traceback = remote_traceback


class SMPPeerLostError(SMPError, RuntimeError):
    """Another rank of this pipeline ended, or its connection broke, while it was needed."""


class SMPStalledError(SMPError, TimeoutError):
    """No rank of this pipeline has said anything for too long."""


class SMPStepError(SMPError, RuntimeError):
    """The model or a step was used in a way that the library can't follow."""


def text_of(error: BaseException) -> str:
    """The traceback as another rank shows it: what the script and torch did, without this package's own frames."""
    told = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = told
    while part is not None:
        foreign = [frame for frame in part.stack if os.path.dirname(frame.filename) != _HERE]
        if foreign:
            part.stack[:] = foreign
        part = part.__cause__ or part.__context__
    return "".join(told.format()).rstrip()
