"""A job's files from S3 and to it, moved by what moves every job's data. Who finds no server waits for one."""

from __future__ import annotations

import os
import socket
import threading
from typing import Callable, Mapping, TypeVar

from musterpoint.base.errors import FetchError
from musterpoint.core.data import channels, uploads
from musterpoint.core.data.mover import Access, NotMoved, Say, run_here
from musterpoint.core.data.places import ALONE, Channel, Share
from musterpoint.serve.settings import Settings

Result = TypeVar("Result")
LONGEST_ABSENCE = 3600.0
"""Seconds that a job waits for a server that is gone."""
_MOST_BROKEN = 2
"""Times that a transfer may fail while a server answers: it may just have come back."""
_NOT_TAKEN = ("AWS_", "S3_ENDPOINT_URL")
"""Begin the names of variables by which whoever has started the server reaches AWS."""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class TransferError(Exception):
    """S3 refused it; the text says what and why."""


class Transfers:
    """One job's transfers. ``given_up`` is asked while they run: an exception from it ends them."""

    def __init__(self, settings: Settings, given_up: Callable[[], None]) -> None:
        self._settings = self._known = settings
        self._given_up = given_up
        self._back = threading.Event()

    def server_is_back(self, settings: Settings) -> None:
        """A server has been started anew; to be called from any thread."""
        self._settings = settings
        self._back.set()

    def bring(self, channel: Channel, folder: str, share: Share = ALONE) -> None:
        """Brings the files of a channel to ``folder``; after a cut it goes on where it was."""
        self._patiently(lambda access: channels.bring(channel, folder, access, share, run=self._run))

    def bring_if_any(self, channel: Channel, folder: str) -> None:
        """The same; that there is nothing yet is no error."""

        def ask(access: Access) -> None:
            try:
                channels.bring(channel, folder, access, run=self._run)
            except NotMoved as error:
                if not error.missing:
                    raise

        self._patiently(ask)

    def upload(self, path: str, uri: str) -> None:
        """Sends a file to the place ``uri``, below which it keeps its name."""
        self._patiently(lambda access: uploads.send_file(path, uri, access, run=self._run))

    def upload_tree(self, folder: str, uri: str) -> None:
        """Sends every file below ``folder``."""
        if any(names for _, _, names in os.walk(folder)):
            self._patiently(lambda access: uploads.send(folder, uri, access, run=self._run))

    def _run(self, argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say) -> int:
        def hear(line: str) -> None:
            self._given_up()
            on_line(line)

        return run_here(argv, environ, hear)

    def _patiently(self, action: Callable[[Access], Result]) -> Result:
        broken = 0
        while True:
            self._given_up()
            self._back.clear()
            try:
                return action(access_of(self._known, url_of(self._known)))
            except FetchError as error:
                broken += 1
                passing = isinstance(error, NotMoved) and error.passing
                if broken >= _MOST_BROKEN or not passing:
                    raise TransferError(str(error)) from None
            if self._known == self._settings and not is_answering(self._settings):
                if not self._back.wait(LONGEST_ABSENCE):
                    raise TransferError(f"no muster serve has been there for {LONGEST_ABSENCE:g} s")
                broken = 0
            self._known = self._settings


def access_of(settings: Settings, url: str) -> Access:
    """How the server's own account reaches S3 at ``url``, on this machine: not through a proxy, and not as whoever has
    started the server reaches AWS.
    """
    own = {name: value for name, value in os.environ.items() if not _is_of_others(name)}
    return Access({**own, **settings.variables}, region=settings.region, endpoint=url)


def _is_of_others(name: str) -> bool:
    return name.startswith(_NOT_TAKEN) or name.lower() in _PROXIES


def url_of(settings: Settings) -> str:
    """The server's URL with its address: S3's clients put a bucket's name before a host's."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        found = socket.getaddrinfo(settings.host or "127.0.0.1", settings.port, family, socket.SOCK_STREAM)
    except OSError:
        return settings.url
    return settings._replace(host=str(found[0][4][0])).url


def is_answering(settings: Settings) -> bool:
    """Whether the server takes connections: if it does, an error isn't for its absence."""
    try:
        socket.create_connection((settings.host or "127.0.0.1", settings.port), 5.0).close()
    except OSError:
        return False
    return True
