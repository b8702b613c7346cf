"""The process of one job, of any kind: it outlives the server, and writes what becomes of the job into the state.

It is forked by :mod:`~musterpoint.serve.fork_server` with the job's lock, which is free again when it has ended.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, Mapping, Sequence

from musterpoint.base.metrics import Point
from musterpoint.serve import notices, transitions
from musterpoint.serve.job_keys import split_key
from musterpoint.serve.job_run import END, INTERRUPT, STOP, JobRun
from musterpoint.serve.orders import Orders
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import Record, State
from musterpoint.serve.telemetry import Telemetry
from musterpoint.serve.transfers import Transfers
from musterpoint.serve.transitions import entered

INTERNAL_ERROR = "InternalServerError: We encountered an internal error. Please try again."
SERVER_ENDED = "muster serve was ended while the job ran"


class JobProcess(ABC):
    """One job, from its first host to its last status. ``key``: its kind and name, see :mod:`.job_keys`."""

    def __init__(self, settings: Settings, key: str) -> None:
        self._settings = settings
        self._state = State(settings.data)
        self._key = key
        self._kind, self._name = split_key(key)
        self._directory = settings.job_directory(key)
        self._run: JobRun | None = None
        self._over: JobRun | None = None
        self._ended_for = ""
        self._transfers = Transfers(settings, self._give_up)

    def claim(self) -> Record | None:
        """The job, once it is known that this process is the only one that ever runs it; None: it isn't to be run."""
        claimed: list[Record] = []

        def change(record: Record) -> Record | None:
            if record.status in transitions.OVER or record.facts.get("_claimed"):
                return None
            claimed.append(record._replace(facts={**record.facts, "_claimed": os.getpid()}))
            return claimed[0]

        self._state.change(self._kind, self._name, change)
        return claimed[0] if claimed else None

    def main(self) -> None:
        """Runs the job."""
        record = self.claim()
        if record is None:
            return
        if record.status == "Stopping":  # it was stopped before this process was there to hear of it
            self._ended_for = STOP
        Orders(self._directory, self._take).start()
        os.makedirs(self._empty, exist_ok=True)
        number = 1
        while self._once(record, number):
            number += 1

    @property
    def _empty(self) -> str:
        """An empty directory in the place of the user's code: that comes as the request says."""
        return os.path.join(self._directory, "empty")

    def _telemetry(self, group: str) -> Telemetry:
        """What sends the output of a run to the log group."""
        return Telemetry(self._settings, group, self._name, self._sent)

    def _sent(self, points: Sequence[Point]) -> None:
        """These points, and lines before them, can be read; in the thread that sends them."""
        notices.send(self._settings.data, self._key)

    @abstractmethod
    def _once(self, record: Record, number: int) -> bool:
        """One run of the job; whether it is to be run again."""

    def _enter(self, status: str, message: str = "", **facts: Any) -> None:
        def change(record: Record) -> Record | None:
            if record.facts["SecondaryStatus"] == status and not facts:
                return None
            return entered(record, status, message, **self._facts(record, status, facts))

        self._state.change(self._kind, self._name, change)
        notices.send(self._settings.data, self._key)

    def _facts(self, record: Record, status: str, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """What is known of the job from now on, as its kind has it."""
        return facts

    def _give_up(self) -> None:
        """A stop ends what is brought before the hosts start; what they left is brought away all the same."""
        if self._run is not None and self._run is not self._over and self._ended_for:
            self._run.give_up()

    def _take(self, order: Mapping[str, Any]) -> None:
        """An order of the server, in the thread that reads them."""
        what = order["order"]
        if what in (STOP, END, INTERRUPT):
            if what != INTERRUPT:
                self._ended_for = what
            if self._run is not None:
                self._run.end(what)
        elif what == "back":
            settings = Settings.from_json(order["settings"])
            self._transfers.server_is_back(settings)
            if self._run is not None:
                self._run.telemetry.server_is_back(settings)
                self._run.way.server_is_back(settings)
        elif self._run is not None:
            self._fail(self._run, order)

    def _fail(self, run: JobRun, order: Mapping[str, Any]) -> None:
        """Makes a fault, where the kind of job has any."""
        print(f"{order['order']}: jobs of this kind have no faults", flush=True)
