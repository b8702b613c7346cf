"""The library's logger: what concerns all ranks is said by rank 0 alone."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from typing import Iterator

from ...shared.log import is_first, ready

logger = logging.getLogger("smdistributed.modelparallel")

HINT = "SMP_HINT_SECONDS"
"""The variable that says after how many seconds a rank that waits for others says so; 60 where it isn't set."""


def hint_seconds() -> float:
    """After how long a rank that waits for others says so."""
    return float(os.environ.get(HINT) or 60)


def get_logger(name: str = "") -> logging.Logger:
    """The library's logger, or a child of it; its lines go to stderr unless the script configured logging otherwise."""
    return ready(logger).getChild(name) if name else ready(logger)


def say(text: str) -> None:
    """An INFO line by rank 0."""
    if is_first():
        ready(logger).info(text)


def warn(text: str) -> None:
    """A WARNING by rank 0."""
    if is_first():
        ready(logger).warning(text)


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Says on which rank this is if ``what`` takes long: all ranks have to take part, and one may never come."""

    def hint() -> None:
        ready(logger).warning(
            f"rank {os.environ.get('RANK', '0')} has waited {seconds:g} s for other ranks, in {what}: all of them have "
            "to call it, not one alone"
        )

    seconds = hint_seconds()
    timer = threading.Timer(seconds, hint)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
