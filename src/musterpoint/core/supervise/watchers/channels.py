"""Watches what feeds the job's channels while ranks run: where one can't be read any more, the job ends.

A pipe that just ended would be the end of the data, to the program.
"""

from __future__ import annotations

import time

from musterpoint.base.errors import FetchError
from musterpoint.core.diagnosis import failures
from musterpoint.core.supervise.events import Broken
from musterpoint.core.supervise.watcher import Watched, Watcher


class ChannelsWatch(Watcher):
    """A channel that can't be fed any more is this host's failure."""

    def __init__(self, watched: Watched) -> None:
        assert watched.context.channels is not None
        self._watched, self._listen = watched, watched.context.channels
        self._listen(self._broken)

    def _broken(self, error: FetchError) -> None:
        context = self._watched.context
        self._watched.emit(Broken(failures.failure_of_error(error, context.host, context.mask, time.time())))

    def close(self) -> None:
        self._listen(None)


def watch(watched: Watched, _session: int) -> ChannelsWatch:
    """Watches while ranks run."""
    return ChannelsWatch(watched)
