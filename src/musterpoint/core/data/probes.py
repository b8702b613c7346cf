"""How fast a place of data is from here, and whether it answers at all; a dead mount holds nobody."""

import contextlib
import queue
import subprocess
import threading
from typing import Any, Mapping

from musterpoint.base.errors import FetchError
from musterpoint.base.records import NamedTuple
from musterpoint.core.data.mover import Access, Run, Say, move
from musterpoint.embedded.programs.registry import fact_of

START = 60.0
"""Seconds in which the mover's Python starts and loads the store's library."""
ANSWER = 5.0
"""Seconds in which a place answers; a mount whose server is gone never does."""
MEASURE = 25.0
"""Seconds that measuring may take."""

UNKILLABLE = 2.0
"""Seconds to wait for a killed process: it may be stuck in the kernel."""


class Speed(NamedTuple):
    """Bytes per second to and from a place; None: not measured. ``newest``: bytes of the newest checkpoint there."""

    write: float | None
    read: float | None
    newest: int = 0


def speed(uri: str, access: Access, writes: bool = True, checkpoints: bool = False, answer: float = ANSWER) -> Speed:
    """How fast this host writes to ``uri`` and reads from it; the files that this takes are removed again.

    Raises:
        FetchError: it can't be read or written, or doesn't answer.
    """
    request = {"action": "probe", "uri": uri, "writes": writes, "checkpoints": checkpoints}
    done = answers(uri, request, access, answer)
    return Speed(done["write"], done["read"], done["newest"])


def answers(uri: str, request: Mapping[str, Any], access: Access, answer: float = ANSWER) -> dict[str, Any]:
    """Carries ``request`` out, as :func:`musterpoint.core.data.mover.move`, unless the place doesn't answer."""
    return move(uri, request, access, lambda _: None, limited(answer))


def limited(answer: float) -> Run:
    """A :data:`Run` that ends where the place doesn't answer."""
    return _Limited(answer).run


class _Limited:
    """Runs the mover, and leaves it alone where it gets no answer: a process that waits for a dead mount can't even be
    killed.
    """

    def __init__(self, answer: float) -> None:
        self._answer = answer

    def run(self, argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say) -> int:
        child = subprocess.Popen(
            argv, env=dict(environ), cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(child, lines), daemon=True).start()
        limit, what = START, "its library isn't loaded"
        try:
            while (line := lines.get(timeout=limit)) is not None:
                fact = fact_of(line) or {}
                if "opened" in fact:
                    limit, what = self._answer, "it doesn't answer (a mount whose server is gone, or no network)"
                elif "answers" in fact:
                    limit, what = MEASURE, "measuring it isn't over"
                else:
                    on_line(line)
        except queue.Empty:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(UNKILLABLE)
            raise FetchError(f"{what} after {limit:g} s") from None
        finally:
            assert child.stdin is not None
            child.stdin.close()
        return child.wait()


def _read(child: "subprocess.Popen[bytes]", lines: "queue.Queue[str | None]") -> None:
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            lines.put(line.decode("utf-8", "replace").rstrip("\n"))
    lines.put(None)
    child.wait()
