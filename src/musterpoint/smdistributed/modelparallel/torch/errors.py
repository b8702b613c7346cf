"""The errors of a step that several ranks run together."""

from __future__ import annotations

import traceback

from ..backend.exceptions import SMPError


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
    """The traceback as another rank shows it."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
