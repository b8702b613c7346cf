"""What feeds a run's pipes: a program for each, the same as on every platform, until the run is over."""

from __future__ import annotations

import subprocess
import threading
from typing import Callable, Mapping

from musterpoint.base.errors import FetchError
from musterpoint.core.data.channels import Feed, feed
from musterpoint.core.data.mover import Access, Say, lines_of, started
from musterpoint.core.data.places import Channel, Share
from musterpoint.embedded.programs.registry import fact_of
from musterpoint.serve.transfers import TransferError


class Feeders:
    """The feeders of one run. ``access`` reaches the server also after it was started anew. ``failed`` is called with
    the reason when a pipe can't be fed any more, in a thread of its own.
    """

    def __init__(self, access: Access, failed: Callable[[str], None]) -> None:
        self._access, self._failed = access, failed
        self._running: list[subprocess.Popen[bytes]] = []
        self._is_over = False

    def feed(self, channel: Channel, path: str, share: Share, how: Feed) -> None:
        """Begins to feed the pipes of ``path``; the first is there when it returns.

        Raises:
            TransferError: the channel can't be read.
        """
        try:
            feed(channel, path, self._access, share, print, self._run, how)
        except FetchError as error:
            raise TransferError(str(error)) from None

    def _run(self, argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say) -> int:
        """A :data:`musterpoint.core.data.mover.Run` that goes on once the pipes are there."""
        child = started(argv, environ)
        self._running.append(child)
        for line in lines_of(child):
            on_line(line)
            if "done" in (fact_of(line) or {}):
                threading.Thread(target=self._listen, args=(child, on_line), name="feeder", daemon=True).start()
                return 0
        return child.wait()

    def _listen(self, child: subprocess.Popen[bytes], on_line: Say) -> None:
        """Hears what it says until it ends, which it does only where it was killed, or the run is over."""
        for line in lines_of(child):
            on_line(line)
            if why := (fact_of(line) or {}).get("error"):
                self._failed(why)
        code = child.wait()
        if not self._is_over:
            self._failed(f"what feeds a pipe has ended with code {code}")

    def end(self) -> None:
        """Nobody reads any more."""
        self._is_over = True
        for child in self._running:
            child.kill()
            child.wait()
            assert child.stdin is not None
            child.stdin.close()
        self._running.clear()
