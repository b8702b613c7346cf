"""Runs the programs that get the user's code ready (pip, the S3 reader): one at a time, and a stop ends them.

They run inside the job's event loop, so that a signal is noticed while they work.
"""

import os
import signal
from typing import TYPE_CHECKING, Callable, Mapping, Sequence

from musterpoint.base import probe
from musterpoint.base.errors import PREPARING, FetchError, StoppedEarly
from musterpoint.base.lines import Line, Lines
from musterpoint.base.loop import Loop, Timer
from musterpoint.base.python_variables import for_tools
from musterpoint.base.records import NamedTuple

if TYPE_CHECKING:
    import subprocess

STOP_GRACE = 3.0
"""Seconds between SIGINT, on which pip undoes its work, and SIGKILL."""
QUIET = 60.0
"""Seconds without output after which we log what is still being done."""
_POLL_INTERVAL = 0.05
_PIECE = 4 << 20


class Output(NamedTuple):
    """Where messages and events go.

    ``say``: prints a line of ours.
    ``show``: prints a line of a program's.
    ``record``: adds an event to the timeline: its name and facts.
    ``mask``: hides the job's secrets in a text that is kept for a message.
    """

    say: Line
    show: Line
    record: Callable[..., None]
    mask: Callable[[str], str] = str


class Execution(NamedTuple):
    """A program to run: its argv, all its variables and its working directory.

    ``ends_with_stdin``: its stdin stays open until it is to end.
    ``pass_fds``: descriptors that it inherits.
    """

    words: Sequence[str]
    environ: Mapping[str, str]
    cwd: str
    ends_with_stdin: bool = False
    pass_fds: Sequence[int] = ()


class Tools:
    """Runs programs and copies files for the fetch and the install, on this host (``host``).

    All work together may take ``limit`` seconds (None: no limit).
    """

    def __init__(self, loop: Loop, host: str, output: Output, limit: float | None = None) -> None:
        self.say, self.show, self.record, self.mask = output
        self.doing = "getting the code ready"
        self._loop = loop
        self._host = host
        self._limit = limit
        self._deadline = loop.clock() + limit if limit is not None else None
        self._began = self._output_at = self._polled_at = loop.clock()
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped: int | None = None

    def begin(self, doing: str) -> None:
        """Names the work that begins now, in words that can follow "still"."""
        self.doing = doing
        self._began = self._loop.clock()

    @property
    def seconds(self) -> float:
        """Since :meth:`begin`."""
        return round(self._loop.clock() - self._began, 3)

    def stop(self, signo: int) -> None:
        """Ends the running program; whoever waits for it gets :class:`StoppedEarly`. ``signo`` is the stop's signal."""
        self._stopped = signo
        self._end_child()

    def poll(self) -> None:
        """Runs the event loop once. Long work of our own has to call it often.

        Raises:
            StoppedEarly: this host was told to stop.
            FetchError: the time limit is over.
        """
        if self._loop.clock() - self._polled_at >= _POLL_INTERVAL:
            self._loop.turn(0)
            self._polled_at = self._loop.clock()
        self._check()

    def pause(self, seconds: float) -> None:
        """Waits; a stop ends the wait. Raises as :meth:`poll` does."""
        until = self._loop.clock() + seconds
        while (left := until - self._loop.clock()) > 0:
            self._check()
            self._loop.turn(left)
        self._check()

    def run(self, program: Execution, line: Line, show_stderr: bool = False) -> int:
        """Runs a program to its end; returns its exit status, negative for a signal.

        ``line`` gets each line of its output as it comes. With ``show_stderr`` it gets stdout only; stderr is shown.

        Raises:
            OSError: it can't be started.
            StoppedEarly: this host was told to stop; the program and what it started have ended.
            FetchError: the time limit is over; the program has ended too.
        """
        import subprocess

        self._check()
        child = subprocess.Popen(
            list(program.words),
            env=for_tools(program.environ),
            cwd=program.cwd,
            stdin=subprocess.PIPE if program.ends_with_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if show_stderr else subprocess.STDOUT,
            start_new_session=True,
            pass_fds=tuple(program.pass_fds),
        )
        self._child = child
        self._output_at = self._loop.clock()
        readers = [Lines(self._loop, fd, self._noting_time(call)) for fd, call in _outputs(child, line, self.show)]
        quiet = _Repeating(self._loop, QUIET, self._still)
        late = None if self._deadline is None else self._loop.call_at(self._deadline, self._end_child)
        ended = probe.End(self._loop, child.pid)
        try:
            while child.poll() is None:
                self._loop.turn()
        finally:
            if child.poll() is None or self._stopped is not None:
                _kill(child)
            self._child = None
            ended.close()
            if child.stdin is not None:
                child.stdin.close()
            for reader in readers:
                reader.close()
            quiet.cancel()
            if late is not None:
                late.cancel()
        self._check()
        return child.returncode

    def copy(self, source: str, target: str) -> str:
        """Copies a file of any size with its mode and times; a link as a link. Raises as :meth:`poll`."""
        import shutil

        self.poll()
        if os.path.islink(source) or not os.path.isfile(source):  # copy2 refuses a pipe, with its name
            return str(shutil.copy2(source, target, follow_symlinks=False))
        with open(source, "rb") as one, open(target, "wb") as other:
            while piece := one.read(_PIECE):
                other.write(piece)
                self.poll()
        shutil.copystat(source, target)
        return target

    def ask(self, words: Sequence[str], environ: Mapping[str, str], cwd: str, errors: bool) -> probe.Answer:
        """Asks a program (:mod:`musterpoint.base.probe`). Raises as :meth:`run` does."""
        return probe.ask(words, environ, cwd, errors, self._loop, self._check)

    def _noting_time(self, call: Line) -> Line:
        def line(text: str) -> None:
            self._output_at = self._loop.clock()
            call(text)

        return line

    def _still(self) -> None:
        if self._loop.clock() - self._output_at >= QUIET - 1:
            self.say(f"still {self.doing}, {self.seconds:.0f} s so far")

    def _check(self) -> None:
        if self._stopped is not None:
            raise StoppedEarly(self._host, self._stopped, PREPARING)
        if self._deadline is not None and self._loop.clock() >= self._deadline:
            raise FetchError(
                f"{self.doing} wasn't done within {self._limit:.0f} s, and the other hosts wait for this one no longer "
                "than --rollcall-timeout: raise it (MUSTER_ROLLCALL_TIMEOUT), or put the packages into the image"
            )

    def _end_child(self) -> None:
        child = self._child
        if child is None or child.poll() is not None:
            return
        if child.stdin is not None:
            child.stdin.close()
        probe.signal_group(child.pid, signal.SIGINT)
        self._loop.call_later(STOP_GRACE, lambda: _kill(child) if self._child is child else None)


class _Repeating:
    """Calls ``call`` every ``seconds`` until it is cancelled."""

    def __init__(self, loop: Loop, seconds: float, call: Callable[[], None]) -> None:
        self._loop, self._seconds, self._call = loop, seconds, call
        self._timer: Timer = loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._call()
        self._timer = self._loop.call_later(self._seconds, self._tick)

    def cancel(self) -> None:
        self._timer.cancel()


def _outputs(child: "subprocess.Popen[bytes]", line: Line, show: Line) -> list[tuple[int, Line]]:
    """The child's pipes as descriptors, which the reader closes."""
    found = []
    for pipe, call in ((child.stdout, line), (child.stderr, show)):
        if pipe is not None:
            found.append((os.dup(pipe.fileno()), call))
            pipe.close()
    return found


def _kill(child: "subprocess.Popen[bytes]") -> None:
    """Kills the program and its process group at once."""
    probe.signal_group(child.pid, signal.SIGKILL)
    child.wait()
