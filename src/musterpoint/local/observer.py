"""Who looks on while a local job runs, hears of its statuses, and may end its hosts."""

from __future__ import annotations

from typing import Callable, Protocol

from musterpoint.base.metrics import Point
from musterpoint.local.job_status import Phase


class Steered(Protocol):
    """The hosts of a running job, for an observer. All but :meth:`post` only in the thread that looks after them."""

    stopped: bool

    def post(self, action: Callable[[], None]) -> None:
        """Calls ``action`` in the thread that looks after the hosts; may be called from any."""

    def stop(self, why: str) -> None:
        """Stops the job, as StopTrainingJob does."""

    def end_the_rest(self, why: str) -> None:
        """Ends the hosts that still run, as after the failure of another."""

    def kill(self, host: str = "") -> None:
        """Kills what still runs of ``host``, of all hosts where none is named."""


class Observer(Protocol):
    """What is called by the thread that runs the job, but for :meth:`wrote` and :meth:`measured`: by any."""

    def entered(self, phase: Phase) -> None:
        """The job has entered ``phase``."""

    def opened(self, hosts: Steered) -> None:
        """The hosts can be ended from now on; none has been started yet."""

    def wrote(self, host: str, data: bytes) -> None:
        """``host`` wrote ``data``; no data: it writes no more."""

    def measured(self, point: Point) -> None:
        """A metric's value was found in the output."""


class Unobserved:
    """Nobody looks on."""

    def entered(self, phase: Phase) -> None:
        pass

    def opened(self, hosts: Steered) -> None:
        pass

    def wrote(self, host: str, data: bytes) -> None:
        pass

    def measured(self, point: Point) -> None:
        pass
