"""The channel of a host that is alone: what it says comes straight back."""

from __future__ import annotations

from musterpoint.peers import AllDone, Arrived, Failure, JobFailed
from musterpoint.rollcall.events import Events


class LonePeers(Events):
    """For one-host jobs, and for jobs whose roll call opens no channel."""

    _failed = False

    def failed(self, failure: Failure) -> None:
        if not self._failed:
            self._failed = True
            self._emit(JobFailed(failure))

    def stopping(self, signal: int) -> None:
        """There is nobody to tell."""

    def arrive(self, point: str) -> None:
        self._emit(Arrived(point))

    def done(self, code: int, failures: int = 0) -> None:
        self._emit(AllDone(failures))

    def close(self) -> None:
        self._deafen()
