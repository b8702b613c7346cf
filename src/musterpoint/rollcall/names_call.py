"""The small roll call: every name must resolve before the deadline; nobody is called."""

from __future__ import annotations

from typing import Callable

from musterpoint.channel.names import Answer, Follower, Names
from musterpoint.channel.timeouts import Timeouts
from musterpoint.errors import MusterError, RollCallError, StoppedEarly
from musterpoint.loop import Loop, Timer
from musterpoint.rollcall.progress import Row, Teller, sentence, table


class NamesCall:
    """:attr:`result` (name to its first address) or :attr:`error` is set when it is over."""

    def __init__(
        self, loop: Loop, hosts: tuple[str, ...], me: str, timeout: float, names: Names, timeouts: Timeouts,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.result: dict[str, str] | None = None
        self.error: MusterError | None = None
        self._loop = loop
        self._hosts = hosts
        self._me = me
        self._timeout = timeout
        self._names = names
        self._timeouts = timeouts
        self._say = say
        self._found: dict[str, str] = {}
        self._follower = Follower(loop, names, timeouts, self._resolved)
        self._timer: Timer
        self._teller: Teller

    def start(self) -> None:
        self._timer = self._loop.call_later(self._timeout, self._deadline)
        self._teller = Teller(
            self._loop, self._say, lambda: sentence(len(self._hosts), self._rows()),
            self._timeouts.retry_most, self._timeouts.say,
        )  # fmt: skip
        for host in self._hosts:
            self._follower.follow(host)

    def abandon(self, stop: StoppedEarly) -> None:
        self._end(stop)

    def _resolved(self, name: str, answer: Answer) -> None:
        if answer.addresses:
            self._follower.drop(name)
            self._found[name] = answer.addresses[0]
            if len(self._found) == len(self._hosts):
                self._stop()
                self.result = self._found

    def _rows(self) -> list[Row]:
        return [Row(host, "name", self._names.known(host).trouble) for host in self._hosts if host not in self._found]

    def _deadline(self) -> None:
        rows = self._rows()
        headline = f"the roll call's {self._timeout:g} s are over, and {len(rows)} names do not resolve on {self._me}"
        self._end(RollCallError(table(headline, len(self._hosts), rows, [])))

    def _end(self, error: MusterError) -> None:
        if self.result is None and self.error is None:
            self.error = error
            self._stop()

    def _stop(self) -> None:
        self._timer.cancel()
        self._teller.stop()
        for host in self._hosts:
            self._follower.drop(host)
