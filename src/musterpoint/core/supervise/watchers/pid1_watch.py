"""Watches a PID 1 that drops SIGTERM, so that a stop reaches this job.

It is opened as early as possible: a stop may come while the code is being made ready.
"""

from __future__ import annotations

import signal
import sys
from functools import partial
from typing import Callable, Mapping

from musterpoint.base.settings import LOCAL
from musterpoint.core.processes.pid1 import pid1_note, refusal, refused_note, tracer_of_pid1, unstoppable_pid1
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.sidecars import Sidecars
from musterpoint.core.supervise.watcher import WatchedJob, Watcher
from musterpoint.embedded.programs.registry import Texts


class Pid1Watch(Watcher):
    """Watches PID 1, called ``name``, until :meth:`close`; ``on_stop`` is called once, for the first SIGTERM to it.

    Both it and ``say`` are called in the loop's thread.
    """

    def __init__(
        self,
        sidecars: Sidecars,
        environ: Mapping[str, str],
        name: str,
        say: Callable[[str], None],
        on_stop: Callable[[], None],
    ) -> None:
        self._name, self._say, self._on_stop = name, say, on_stop
        self._stopped = self._warned = self._closed = False
        self._last_line = ""
        self._texts = Texts()
        self._local = bool(environ.get(LOCAL))
        try:
            argv = (sys.executable, "-I", "-S", self._texts.path("pid1_tracer"), "1")
            sidecars.start(argv, environ, self._on_line, self._on_end)
        except (CannotStart, OSError) as error:
            self._refused(str(error))

    def _on_line(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "TERM" and not self._stopped:
            self._stopped = True
            self._on_stop()
        elif word == "watching":
            self._say(pid1_note(self._name, "auto"))
        elif word == "refused":
            # the hosts of a local job share PID 1: one of them traces it, and its stop reaches all
            self._warned = self._local and tracer_of_pid1() > 0
            self._refused(refusal(int(rest)))
        else:
            self._last_line = line

    def _refused(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            self._say(refused_note(self._name, why))

    def _on_end(self, code: int) -> None:
        if not self._closed and not self._stopped:
            self._refused(f"what watched it has ended with {code}{': ' if self._last_line else ''}{self._last_line}")

    def close(self) -> None:
        """Prints nothing from now on. The tracer ends with the other sidecars."""
        self._closed = True
        self._texts.close()


def watch(seen: WatchedJob) -> Watcher:
    """Watches PID 1 where it keeps SIGTERM to itself, unless ``--pid1-watch off`` was given."""
    name = unstoppable_pid1()
    if name and seen.options.pid1_watch == "off":
        seen.say(pid1_note(name, "off"))
    elif name:
        return Pid1Watch(seen.sidecars, seen.environ, name, seen.say, partial(seen.signals.deliver, signal.SIGTERM))
    return Watcher()
