"""Says for whom a host waits that is done: where the job still runs, and since when. The pauses between lines grow."""

from __future__ import annotations

import os
from typing import Sequence

from musterpoint.base.loop import Timer
from musterpoint.core.channel.peers import Peers, StillRunning
from musterpoint.core.channel.topics import running_hosts
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.host_processes import HostProcesses
from musterpoint.core.supervise.watcher import Watched, Watcher

PAUSES = (10.0, 20.0, 30.0, 60.0, 180.0, 300.0, 600.0)
"""Seconds before each line; the last for all that follow."""
ON_A_TERMINAL = (5.0, 10.0, 15.0, 30.0)
"""The same where a person looks on."""


class WaitingWatch(Watcher):
    """Asks the leader in the ``pauses`` who still runs, and says it. ``processes`` are this host's."""

    def __init__(
        self, context: SupervisorContext, peers: Peers, processes: HostProcesses, pauses: Sequence[float] = ()
    ) -> None:
        self._context, self._peers, self._processes = context, peers, processes
        self._pauses = pauses or (ON_A_TERMINAL if os.isatty(2) else PAUSES)
        self._since = context.loop.clock()
        self._asked = 0
        self._running = ""
        self._timer: Timer = context.loop.call_later(self._pauses[0], self._ask)

    def _ask(self) -> None:
        self._asked += 1
        self._peers.topic(running_hosts.TOPIC).ask_running()
        pause = self._pauses[min(self._asked, len(self._pauses) - 1)]
        self._timer = self._context.loop.call_later(pause, self._ask)

    def still_running(self, event: StillRunning) -> None:
        """The leader's answer."""
        if not event.hosts:
            return
        more = f" and {event.more} more" if event.more else ""
        self._running = ", ".join(event.hosts) + more
        self._context.say(f"{self.sentence}, for {self._context.loop.clock() - self._since:.0f} s now")
        self._context.record("waiting-for-hosts", hosts=self._running)

    @property
    def sentence(self) -> str:
        """Who is waited for, as far as that is known."""
        ranks = not self._processes.independent
        here = "no rank runs here"
        if self._processes.had_ranks:
            here = "the ranks here have ended" if ranks else "the program here has ended"
        if not self._running:
            return f"{here}; waiting for the other hosts"
        return f"{here}; waiting for {self._running}, where {'the job' if ranks else 'it'} still runs"

    def hear(self, event: StillRunning) -> None:
        self.still_running(event)

    def close(self) -> None:
        self._timer.cancel()


def watch(watched: Watched) -> WaitingWatch:
    """Watches while this host waits for others."""
    return WaitingWatch(watched.context, watched.peers, watched.processes)
