"""The rest of a rank's output: what processes that it left behind still write to its pipes.

Scripts send their output through loggers of their own (``exec > >(tee -a "$LOG")``), which end after the program.
"""

from __future__ import annotations

from typing import Callable, Mapping

from musterpoint.base.loop import Loop, Timer
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.pump import Pump

LONGEST = 3.0
"""Seconds that a rank's pipes are read after its end, where somebody goes on writing."""
SILENT = 0.5
"""Seconds after which holders of the pipes are given up that neither write nor use the processor."""
LOOK = 0.1
"""Seconds between two looks at the holders: no event tells that a process uses the processor."""
BUSY = 0.005
"""Seconds of the processor between two looks from which on holders count as busy; a server that waits uses less."""


class RestOfOutput:
    """Waits for the end of the pipes of ``rank``; calls ``on_over`` when it has come, or is given up.

    ``is_over`` may be true at once; ``on_over`` isn't called then. ``most``: seconds, where there are less than
    :data:`LONGEST`.
    """

    def __init__(self, loop: Loop, pump: Pump, rank: int, on_over: Callable[[], None], most: float = LONGEST) -> None:
        self._loop, self._pump, self._rank = loop, pump, rank
        self._active = loop.clock()
        self._deadline = self._active + min(most, LONGEST)
        self._pipes: Mapping[str, int] = {}
        self._used: dict[int, float] = {}
        self._timer: Timer | None = None
        self._on_over: Callable[[], None] = lambda: None
        self.is_over = False
        self._look()
        if not self.is_over:
            self._on_over = on_over
            pump.on_end(rank, lambda: loop.post(self._look))

    def end_within(self, seconds: float) -> None:
        """Takes ``seconds`` from now on at most."""
        self._deadline = min(self._deadline, self._loop.clock() + seconds)
        self._look()

    def _look(self) -> None:
        if self.is_over:
            return
        self.close()
        now = self._loop.clock()
        pipes = self._pump.still_open(self._rank)
        # one may hand over to its child meanwhile
        holders = (process_tree.holders(pipes) or process_tree.holders(pipes)) if pipes else []
        if self._is_busy(pipes, holders):
            self._active = now
        if not holders or now >= min(self._deadline, self._active + SILENT):
            self.is_over = True
            self._on_over()
        else:
            self._timer = self._loop.call_at(min(now + LOOK, self._deadline), self._look)

    def _is_busy(self, pipes: Mapping[str, int], holders: list[process_tree.Stat]) -> bool:
        """Whether something came since the last look, or holders of the pipes used the processor or the disk."""
        before, used = self._used, {stat.pid: process_tree.processor_time(stat.pid) for stat in holders}
        spent = sum(seconds - before.get(pid, 0.0) for pid, seconds in used.items())
        changed = pipes != self._pipes
        self._pipes, self._used = pipes, used
        return changed or spent >= BUSY or any(stat.state in "RD" for stat in holders)

    def close(self) -> None:
        """Looks no more by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
