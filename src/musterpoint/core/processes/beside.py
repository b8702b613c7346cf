"""A program of ours beside the job, in the first Python that has its library; one that dies is started again."""

import functools
from typing import Any, Callable, Mapping, Sequence

from musterpoint.base import settings
from musterpoint.base.loop import Loop
from musterpoint.base.records import NamedTuple
from musterpoint.base.stop_budget import UPLOAD_OVERTIME, UPLOAD_RESERVE, upload_time
from musterpoint.core.data.mover_process import Access, Say, advice, pythons_of
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.received_signals import STOPPING
from musterpoint.core.processes.sidecars import Sidecar, Sidecars
from musterpoint.embedded.programs.registry import Program, Texts, fact_of

Left = Callable[[], "float | None"]
MOST_DEATHS = 3
"""Unexpected ends after which it isn't started again, unless the job has ended since."""


def run(
    loop: Loop, sidecars: Sidecars, argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say, seconds: Left
) -> int:
    """Runs a program in the loop to its end; returns its exit status. ``seconds`` is asked how long it may still take
    (None: no limit); what it raises ends the program.

    Raises:
        OSError: it can't be started.
    """
    ended: list[int] = []
    try:
        sidecar = sidecars.start(argv, environ, on_line, ended.append)
    except CannotStart as error:
        raise error.error from None
    try:
        while not ended:
            loop.turn(seconds())
    except BaseException:
        sidecar.dismiss()
        raise
    return ended[0]


class Task(NamedTuple):
    """The program, from its parts, and its name in messages. ``uri``: the place that it reaches by ``access``."""

    parts: Sequence[Program]
    name: str
    uri: str
    access: Access
    request: Callable[[], dict[str, Any]]
    """Gives what it is asked for, at each start."""
    hear: Callable[[dict[str, Any]], None]
    """Gets the facts that it says, but for those of its start and end."""
    last: Callable[[float], str]
    """Gives the line that ends it within so many seconds."""


class Beside:
    """Nothing here raises or changes how the job ends. ``grace`` is seconds between SIGTERM and SIGKILL. ``over``: what
    the program said at its end; ``why_not``: why it can't be had.
    """

    def __init__(self, task: Task, loop: Loop, sidecars: Sidecars, say: Callable[[str], None], grace: float) -> None:
        self._task, self._loop, self._sidecars, self._say, self._grace = task, loop, sidecars, say, grace
        self.texts = Texts()
        self.over: dict[str, Any] | None = None
        self.why_not = ""
        self._sidecar: Sidecar | None = None
        self._starts = self._deaths = 0
        self._pythons, self._lacking = list(pythons_of(task.access)), dict[str, str]()
        self._words: list[str] = []
        self._until: float | None = None

    @property
    def runs(self) -> bool:
        return self._sidecar is not None

    @property
    def is_finishing(self) -> bool:
        return self._until is not None

    @property
    def is_settled(self) -> bool:
        return self.over is not None or bool(self.why_not)

    def start(self) -> None:
        """Starts it, in the place of one that runs; call it in the main thread."""
        self.dismiss()
        environ = settings.without_own(self._task.access.environ)
        while self._pythons:
            self._starts, self._words = self._starts + 1, []
            its_line, its_end = (functools.partial(act, self._starts) for act in (self._on_line, self._on_end))
            try:
                argv = self.texts.command(self._pythons[0], self._task.parts, self._task.request())
                self._sidecar = self._sidecars.start(argv, environ, its_line, its_end)
            except CannotStart as error:
                if error.step == "fork":
                    self._cannot_start(error.error)
                    return
                self._lacking[self._pythons.pop(0)] = error.error.strerror or "it can't be started"
            except OSError as error:
                self._cannot_start(error)
                return
            else:
                self._send_last()
                return
        self._give_up(f"{self._task.name} can't run", advice(self._task.uri, self._lacking))

    def _cannot_start(self, error: OSError) -> None:
        """No process, memory or descriptor is left."""
        what = f"{self._task.name} can't be started"
        if self.is_finishing:
            self._give_up(what, error.strerror or str(error))
        else:
            self._say(f"warning: {what}: {error.strerror}; it is tried again when the job has ended")

    def _give_up(self, what: str, why: str) -> None:
        self.why_not = why
        self._say(f"warning: {what}: {why}")

    def send(self, line: str) -> None:
        if self._sidecar is not None:
            self._sidecar.send(line)

    def dismiss(self) -> None:
        """Ends it; what it still says isn't heard."""
        sidecar, self._sidecar = self._sidecar, None
        self._starts += 1
        if sidecar is not None:
            sidecar.dismiss()

    def finish(self, left: float | None) -> float:
        """Lets it do the rest in what :func:`~musterpoint.base.stop_budget.upload_time` gives of the ``left`` seconds
        (None: no stop limits it), and waits for its end; returns how long that took (s).
        """
        began = self._loop.clock()
        self._until, self._deaths = began + upload_time(left), min(self._deaths, MOST_DEATHS - 1)
        if self._sidecar is not None:
            self._send_last()
        elif not self.is_settled:
            self.start()
        while not self.is_settled and (remaining := self._until + UPLOAD_OVERTIME - self._loop.clock()) > 0:
            self._loop.turn(remaining)
        return self._loop.clock() - began

    def close(self) -> None:
        """How it ends isn't heard any more."""
        self._starts += 1
        self.texts.close()

    def on_signal(self, signo: int) -> None:
        """A signal while it finishes: after the first stop only the grace is left."""
        if signo in STOPPING and self._until is not None:
            until = self._loop.clock() + self._grace - UPLOAD_RESERVE
            if until < self._until:
                self._until = until
                self._send_last()

    def _send_last(self) -> None:
        if self._until is not None:
            self.send(self._task.last(round(max(0.0, self._until - self._loop.clock()), 3)))

    def _on_line(self, start: int, line: str) -> None:
        fact = fact_of(line)
        if start != self._starts:
            return
        if fact is None:
            self._words = [*self._words[-2:], line]
        elif "lacks" in fact:
            self._lacking[self._pythons[0]] = f"no {fact['lacks']}"
        elif "over" in fact:
            self.over = fact["over"]
        else:
            self._task.hear(fact)

    def _on_end(self, start: int, code: int) -> None:
        if start != self._starts:
            return
        self._sidecar = None
        if self.is_settled:
            return
        if self._pythons and self._pythons[0] in self._lacking:
            self._pythons.pop(0)
            self.start()
            return
        self._deaths += 1
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        what, words = f"{self._task.name} {how}", f" ({' '.join(self._words)})" if self._words else ""
        if self._deaths < MOST_DEATHS:
            self._say(f"warning: {what}{words}; it is started again")
            self.start()
        elif self.is_finishing:
            self.why_not = f"{what}{words}"
            self._say(f"warning: {what}{words}; it is given up")
        else:
            self._say(f"warning: {what}{words}; it is started again when the job has ended")
