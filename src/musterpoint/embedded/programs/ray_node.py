"""A node of Ray's cluster: ``ray_node.py FOLDER SECONDS start OPTIONS...``, which is ``ray start OPTIONS...``.

Run by the user's Python as a program of its own, never imported by musterpoint. A worker first waits until its head
listens: ``ray start`` itself gives up after 20 s. What ``ray start`` prints on stdout is advice to people at a terminal
(``ray stop``, which would end other jobs' clusters too), so only its warnings and errors are shown. ``FOLDER`` is made
before Ray makes it, for this user alone. Where a signal killed one of Ray's processes, the same one ends this program:
``ray start`` would end with 1, as after any error.
"""

from __future__ import annotations

import io
import os
import re
import socket
import sys
import time
from typing import Callable, TextIO

SAY_SECONDS = 30.0
TRY_SECONDS = 0.1
LEVEL = re.compile(r"[\d-]+ [\d:,]+\t(\w+) \S+ -- ")
QUIET = ("INFO", "SUCC")
KILLED = re.compile(r"\[exit code=-(\d+)\]")
INFORMATION = re.compile(r"\[state-dump\]|\[[\d-]+ [\d:,]+ I \d+ \d+\]")
"""Lines of a raylet's log that report nothing wrong."""


def main() -> None:
    folder, seconds, *words = sys.argv[1:]
    # Ray and what it needs are not the user's modules beside the program
    own = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path = [entry for entry in sys.path if os.path.abspath(entry) not in own]
    os.makedirs(folder, 0o700, exist_ok=True)
    head = next((word.partition("=")[2] for word in words if word.startswith("--address=")), "")
    if head:
        wait_for(head, float(seconds))
    try:
        from ray.scripts.scripts import main as ray  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        sys.exit(f"Ray can't start: {sys.executable} can't import ray.scripts.scripts ({error})")
    be_patient(float(seconds))
    sys.stdout = Errors(sys.stderr, lambda signo: os.kill(os.getpid(), signo))
    sys.argv = ["ray", *words]
    ray()


def be_patient(seconds: float) -> None:
    """Gives a raylet ``seconds`` to be known to its cluster; Ray's own limit, 30 s, is too short on a loaded machine.

    ``Node.__init__`` of ``ray/_private/node.py`` asks these two functions.
    """
    try:
        from ray._private import node, services  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        return  # another version, whose limits are its own
    for module, name in ((services, "get_node"), (node, "get_all_node_info_until_retrieved")):
        if hasattr(module, name):
            setattr(module, name, patient(getattr(module, name), seconds))


def patient(function: Callable[..., object], seconds: float) -> Callable[..., object]:
    """``function``, called again while it raises, for ``seconds``."""

    def tried(*words: object, **more: object) -> object:
        until = time.monotonic() + seconds
        while True:
            try:
                return function(*words, **more)
            except Exception:
                if time.monotonic() >= until:
                    raise
            time.sleep(TRY_SECONDS)

    return tried


class Errors(io.TextIOBase):
    """Passes on what is no advice, of what ``ray start`` prints to a stream that is no terminal.

    Each of its messages begins with a time and a level (``ray/autoscaler/_private/cli_logger.py``). The last line then
    says which of Ray's processes ended, without the end of their logs. ``end`` gets the signal that killed one of them.
    """

    def __init__(self, stream: TextIO, end: Callable[[int], None]) -> None:
        self._stream, self._end = stream, end
        self._ended: list[str] | None = None

    def write(self, text: str) -> int:
        level = LEVEL.match(text)
        message = text[level.end() :] if level else text
        if message.strip() and not (level and level[1] in QUIET):
            lines = [line for line in message.splitlines() if line.strip() and not INFORMATION.match(line)]
            print("\n".join(lines), file=self._stream, flush=True)
            self._follow(message)
        return len(text)

    def _follow(self, message: str) -> None:
        if message.rstrip().endswith("exited unexpectedly:"):
            self._ended = []
        elif self._ended is not None and "[exit code=" in message:
            self._ended.append(message.strip())
        elif self._ended and "will be killed" in message:
            print(f"Ray's processes that ended here: {', '.join(self._ended)}", file=self._stream, flush=True)
            for signo in KILLED.findall(" ".join(self._ended)):
                self._end(int(signo))


def wait_for(head: str, seconds: float) -> None:
    """Returns when something listens at ``head``; ends this program when nothing does for ``seconds``."""
    host, _, port = head.rpartition(":")
    began = said = time.monotonic()
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), 5).close()
            return
        except OSError as error:
            now = time.monotonic()
            if now - began >= seconds:
                sys.exit(f"Ray's head at {head} can't be reached after {seconds:g} s: {error}")
            if now - said >= SAY_SECONDS:
                said = now
                print(f"waiting for Ray's head at {head} for {now - began:.0f} s: {error}", file=sys.stderr, flush=True)
        time.sleep(TRY_SECONDS)


if __name__ == "__main__":
    main()
