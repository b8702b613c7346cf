"""Programs that get the user's code ready (pip, the S3 reader): run one at a time, heard line by line, ended by a stop.

They run inside the job's event loop, so that a signal is noticed while they work.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Callable, Mapping, Sequence

from musterpoint import probe
from musterpoint.errors import FetchError
from musterpoint.lines import Line, Lines
from musterpoint.loop import Loop, Timer

if TYPE_CHECKING:
    import subprocess

PATIENCE = 3.0
"""Seconds between the wish that a program ends (SIGINT, which pip answers by undoing its work) and SIGKILL."""
QUIET = 60.0
"""Seconds without a word after which we say what is still being done."""
_BREATH = 0.05
_PIECE = 4 << 20


class Stopped(Exception):
    """This host was told to stop by ``signal`` while its code was being made ready."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"told to stop (signal {signal})")
        self.signal = signal


class Tools:
    """``say`` prints a line of ours and ``show`` one of a program's; ``record`` takes a moment's name and facts.

    All work together may take ``limit`` seconds (None: as long as it takes). ``stopped`` makes what is raised of the
    signal that told this host to stop. ``mask`` hides the job's secrets in a text that is kept for a message.
    """

    def __init__(
        self, loop: Loop, say: Line, show: Line, record: Callable[..., None], limit: float | None = None,
        stopped: Callable[[int], Exception] = Stopped, mask: Callable[[str], str] = str,
    ) -> None:  # fmt: skip
        self.say, self.show, self.record, self.mask = say, show, record, mask
        self._stopped_by = stopped
        self.doing = "getting the code ready"
        self._loop = loop
        self._limit = limit
        self._deadline = loop.clock() + limit if limit is not None else None
        self._began = self._heard_at = self._breathed = loop.clock()
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped: int | None = None

    def begin(self, doing: str) -> None:
        """What is done from now on, in words that follow ``still``."""
        self.doing = doing
        self._began = self._loop.clock()

    @property
    def seconds(self) -> float:
        """Since :meth:`begin`."""
        return round(self._loop.clock() - self._began, 3)

    def hear(self, signo: int) -> None:
        """This host was told to stop: whatever runs is ended, and what waits for it raises :class:`Stopped`."""
        self._stopped = signo
        self._end_child()

    def breathe(self) -> None:
        """To be called often in long work of our own.

        Raises:
            Stopped: this host was told to stop.
            FetchError: the limit is over.
        """
        if self._loop.clock() - self._breathed >= _BREATH:
            self._loop.turn(0)
            self._breathed = self._loop.clock()
        self._check()

    def pause(self, seconds: float) -> None:
        """Waits, with open ears. Raises as :meth:`breathe` does."""
        until = self._loop.clock() + seconds
        while (left := until - self._loop.clock()) > 0:
            self._check()
            self._loop.turn(left)
        self._check()

    def run(
        self, words: Sequence[str], environ: Mapping[str, str], cwd: str, line: Line, *, give: bytes = b"",
        apart: bool = False, keep: Sequence[int] = (),
    ) -> int:  # fmt: skip
        """Runs a program to its end; its exit status, negative for a signal.

        ``line`` gets each line of its output as it comes; with ``apart`` only those of stdout, and stderr is shown.
        ``give`` (at most a pipe's 64 KiB) is its stdin, ``keep`` are descriptors that it inherits.

        Raises:
            OSError: it can't be started.
            Stopped: this host was told to stop; the program and what it started have ended.
            FetchError: the limit is over; likewise.
        """
        import subprocess

        self._check()
        child = subprocess.Popen(
            list(words), env=dict(environ), cwd=cwd, stdin=subprocess.PIPE if give else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE if apart else subprocess.STDOUT, start_new_session=True,
            pass_fds=tuple(keep),
        )  # fmt: skip
        self._child = child
        self._heard_at = self._loop.clock()
        readers = [Lines(self._loop, fd, self._heard(call)) for fd, call in _outputs(child, line, self.show)]
        timers = [Ticking(self._loop, QUIET, self._still)]
        late = None if self._deadline is None else self._loop.call_at(self._deadline, self._end_child)
        ended = probe.End(self._loop, child.pid)
        try:
            if give:
                _give(child, give)
            while child.poll() is None:
                self._loop.turn()
        finally:
            if child.poll() is None or self._stopped is not None:
                _kill(child)
            self._child = None
            ended.close()
            for reader in readers:
                reader.close()
            for timer in (*timers, late):
                if timer is not None:
                    timer.cancel()
        self._check()
        return child.returncode

    def copy(self, source: str, target: str) -> str:
        """Copies a file, of any size, with what the system knows of it; a link as it is. Raises as :meth:`breathe`."""
        import shutil

        self.breathe()
        if os.path.islink(source) or not os.path.isfile(source):  # a pipe is refused there, by name
            return str(shutil.copy2(source, target, follow_symlinks=False))
        with open(source, "rb") as one, open(target, "wb") as other:
            while piece := one.read(_PIECE):
                other.write(piece)
                self.breathe()
        shutil.copystat(source, target)
        return target

    def ask(self, words: Sequence[str], environ: Mapping[str, str], cwd: str, errors: bool) -> probe.Answer:
        """Asks a program (:mod:`musterpoint.probe`). Raises as :meth:`run` does."""
        return probe.ask(words, environ, cwd, errors, self._loop, self._check)

    def _heard(self, call: Line) -> Line:
        def heard(text: str) -> None:
            self._heard_at = self._loop.clock()
            call(text)

        return heard

    def _still(self) -> None:
        if self._loop.clock() - self._heard_at >= QUIET - 1:
            self.say(f"still {self.doing}, {self.seconds:.0f} s so far")

    def _check(self) -> None:
        if self._stopped is not None:
            raise self._stopped_by(self._stopped)
        if self._deadline is not None and self._loop.clock() >= self._deadline:
            raise FetchError(
                f"{self.doing} wasn't done within {self._limit:.0f} s, and the other hosts wait for this one no longer "
                "than --rollcall-timeout: raise it (MUSTER_ROLLCALL_TIMEOUT), or put the packages into the image"
            )

    def _end_child(self) -> None:
        child = self._child
        if child is None or child.poll() is not None:
            return
        probe.signal_group(child.pid, signal.SIGINT)
        self._loop.call_later(PATIENCE, lambda: _kill(child) if self._child is child else None)


class Ticking:
    """Calls ``call`` every ``seconds`` until it is cancelled."""

    def __init__(self, loop: Loop, seconds: float, call: Callable[[], None]) -> None:
        self._loop, self._seconds, self._call = loop, seconds, call
        self._timer: Timer = loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._call()
        self._timer = self._loop.call_later(self._seconds, self._tick)

    def cancel(self) -> None:
        self._timer.cancel()


def _outputs(child: subprocess.Popen[bytes], line: Line, show: Line) -> list[tuple[int, Line]]:
    """Its pipes as descriptors, which their reader closes."""
    found = []
    for pipe, call in ((child.stdout, line), (child.stderr, show)):
        if pipe is not None:
            found.append((os.dup(pipe.fileno()), call))
            pipe.close()
    return found


def _give(child: subprocess.Popen[bytes], data: bytes) -> None:
    assert child.stdin is not None
    try:
        with child.stdin as pipe:
            pipe.write(data)
    except OSError:
        pass  # it ended without reading; its status says why


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Ends the program and everything in its session's first group, now."""
    probe.signal_group(child.pid, signal.SIGKILL)
    child.wait()
