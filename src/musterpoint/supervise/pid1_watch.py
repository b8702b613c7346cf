"""The watch on a PID 1 that keeps SIGTERM to itself: a companion that traces it and tells us of each one."""

from __future__ import annotations

import sys
from typing import Callable, Mapping

from musterpoint.settings import LOCAL
from musterpoint.supervise.companions import Companions
from musterpoint.supervise.pid1 import pid1_note, refusal, refused_note, tracer_of_pid1
from musterpoint.supervise.process import CannotStart
from musterpoint.supervise.texts import Texts


class Pid1Watch:
    """Watches PID 1, called ``name``, until :meth:`close`; ``hear`` is called once, for the first SIGTERM to it.

    Both it and ``say`` are called in the loop's thread.
    """

    def __init__(
        self, companions: Companions, environ: Mapping[str, str], name: str, say: Callable[[str], None],
        hear: Callable[[], None],
    ) -> None:  # fmt: skip
        self._name, self._say, self._hear = name, say, hear
        self._heard = self._told = self._closed = False
        self._last = ""
        self._texts = Texts()
        self._local = bool(environ.get(LOCAL))
        try:
            argv = (sys.executable, "-I", "-S", self._texts.path("pid1_tracer"), "1")
            companions.start(argv, environ, self._line, self._ended)
        except (CannotStart, OSError) as error:
            self._refused(str(error))

    def _line(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "TERM" and not self._heard:
            self._heard = True
            self._hear()
        elif word == "watching":
            self._say(pid1_note(self._name, "auto"))
        elif word == "refused":
            self._told = self._local and tracer_of_pid1() > 0  # another host of this machine's job hears for all
            self._refused(refusal(int(rest)))
        else:
            self._last = line

    def _refused(self, why: str) -> None:
        if not self._told:
            self._told = True
            self._say(refused_note(self._name, why))

    def _ended(self, code: int) -> None:
        if not self._closed and not self._heard:
            self._refused(f"what watched it has ended with {code}{': ' if self._last else ''}{self._last}")

    def close(self) -> None:
        """Nothing is said any more. The companions' end is the watch's."""
        self._closed = True
        self._texts.close()
