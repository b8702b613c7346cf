"""Channels that are read while the job runs, by named pipes or a mount: what feeds them runs beside the ranks.

Its failure is the job's.
"""

import os
from typing import Any, Callable, Mapping

from musterpoint.base.errors import FetchError
from musterpoint.core.data.channels import feed, mount
from musterpoint.core.data.mover import Access, Say
from musterpoint.core.data.places import Channel, Share
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.sidecars import Sidecar
from musterpoint.core.runtime import Runtime
from musterpoint.embedded.programs.registry import fact_of

LONGEST_END = 5.0
"""Seconds in which a mount is undone."""


class Attached:
    """The channels of this host that are fed while it runs. ``wait`` waits until the call that it gets is true.

    :meth:`listen`: hears why one of them can't be fed any more.
    """

    def __init__(
        self, runtime: Runtime, access: Access, share: Share, wait: Callable[[Callable[[], bool]], None]
    ) -> None:
        self._runtime, self._access, self._share, self._wait = runtime, access, share, wait
        self._feeders: dict[str, Sidecar] = {}
        self._broken: FetchError | None = None
        self._on_broken: Callable[[FetchError], None] | None = None

    def start(self, channel: Channel, path: str) -> None:
        """Begins to feed it; through pipes with the first epoch, also where it was begun before.

        Raises:
            FetchError: it can't be read.
        """
        if channel.mode == "fastfile" and path in self._feeders:
            return
        old = self._feeders.pop(path, None)
        if old is not None:
            old.dismiss()
            self._wait(lambda: old.code is not None)
        self._broken = None
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise FetchError(f"channel {channel.name}: its directory can't be made: {error}") from None
        what = f"channel {channel.name}"

        def run(argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say) -> int:
            return self._run(what, path, argv, environ, on_line)

        say, add = self._runtime.console.say, self._runtime.timeline.add
        if channel.mode == "fastfile":
            mount(channel, path, self._access, say, run)
            say(f"{what}: {channel.uri} is mounted at {path}")
            add("channel-mounted", channel=channel.name)
            return
        size = feed(channel, path, self._access, self._share, say, run)
        say(f"{what}: {size.sentence} come through the pipe {path}_0, and {path}_1 after it")
        add("channel-piped", channel=channel.name, files=size.files, bytes=size.bytes)

    def end(self) -> None:
        """No rank reads any more."""
        loop, feeders = self._runtime.loop, tuple(self._feeders.values())
        self._feeders.clear()
        for sidecar in feeders:
            sidecar.dismiss()
        until = loop.clock() + LONGEST_END
        while any(sidecar.code is None for sidecar in feeders) and (left := until - loop.clock()) > 0:
            loop.turn(left)

    def _run(self, what: str, path: str, argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say) -> int:
        """A :data:`musterpoint.core.data.mover.Run` that goes on once the pipes are there."""
        begun: list[Any] = []
        sidecar: Sidecar | None = None

        def line(text: str) -> None:
            fact = fact_of(text) or {}
            if begun and "error" in fact:
                self._break(sidecar, path, f"{what} can't be read any more: {fact['error']}")
            begun.extend(key for key in fact if key == "done")
            on_line(text)

        def ended(code: int) -> None:
            if begun:
                self._break(sidecar, path, f"{what}: what feeds it has ended with code {code}")

        try:
            sidecar = self._runtime.sidecars.start(argv, environ, line, ended)
        except CannotStart as error:
            raise error.error from None
        try:
            self._wait(lambda: bool(begun) or sidecar.code is not None)
        except BaseException:
            sidecar.dismiss()
            raise
        self._feeders[path] = sidecar
        return sidecar.code or 0

    def _break(self, sidecar: Sidecar | None, path: str, why: str) -> None:
        if self._broken is None and self._feeders.get(path) is sidecar:
            self._broken = FetchError(why)
            if self._on_broken is not None:
                self._on_broken(self._broken)

    def listen(self, on_broken: Callable[[FetchError], None] | None) -> None:
        """From now on ``on_broken`` hears it, also what has happened before; None: nobody does."""
        self._on_broken = on_broken
        if self._broken is not None and on_broken is not None:
            self._runtime.loop.call_later(0, lambda error=self._broken: on_broken(error))  # type: ignore[misc]
