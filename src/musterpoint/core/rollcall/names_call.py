"""The roll call by names only: every host name must resolve before the deadline; no connections."""

from __future__ import annotations

from musterpoint.base.errors import MusterError, RollCallError, StoppedEarly
from musterpoint.base.loop import Timer
from musterpoint.core.channel.link import Context
from musterpoint.core.channel.names import Answer, Follower, Names
from musterpoint.core.rollcall.attendance import ProgressPrinter, Row, sentence, table
from musterpoint.core.rollcall.roster import Participant


class NamesCall:
    """:attr:`result` (name to its first address) or :attr:`error` is set when it is over."""

    def __init__(self, context: Context, names: Names, participant: Participant) -> None:
        self.result: dict[str, str] | None = None
        self.error: MusterError | None = None
        self._context = context
        self._hosts = participant.hosts
        self._me = participant.me
        self._timeout = participant.settings.rollcall_timeout
        self._names = names
        self._found: dict[str, str] = {}
        self._follower = Follower(context, names, self._resolved)
        self._timer: Timer
        self._progress: ProgressPrinter

    def start(self) -> None:
        self._timer = self._context.loop.call_later(self._timeout, self._deadline)
        self._progress = ProgressPrinter(self._context, lambda: sentence(len(self._hosts), self._rows()))
        for host in self._hosts:
            self._follower.follow(host)

    def stop(self, stop: StoppedEarly) -> None:
        self._end(stop)

    def _resolved(self, name: str, answer: Answer) -> None:
        if answer.addresses:
            self._follower.drop(name)
            self._found[name] = answer.addresses[0]
            if len(self._found) == len(self._hosts):
                self._finish()
                self.result = self._found

    def _rows(self) -> list[Row]:
        return [
            Row(host, "name", self._names.last_answer(host).trouble) for host in self._hosts if host not in self._found
        ]

    def _deadline(self) -> None:
        rows = self._rows()
        headline = f"the roll call's {self._timeout:g} s are over, and {len(rows)} names do not resolve on {self._me}"
        self._end(RollCallError(table(headline, len(self._hosts), rows, [])))

    def _end(self, error: MusterError) -> None:
        if self.result is None and self.error is None:
            self.error = error
            self._finish()

    def _finish(self) -> None:
        self._timer.cancel()
        self._progress.stop()
        for host in self._hosts:
            self._follower.drop(host)
