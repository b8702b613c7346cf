"""Sends a directory to a store, as files or as one archive."""

import os
from typing import Any

from musterpoint.base import temporary
from musterpoint.base.errors import FetchError
from musterpoint.base.records import NamedTuple
from musterpoint.core.data.channels import Size
from musterpoint.core.data.mover import Access, Run, Say, move, run_here


class Sent(NamedTuple):
    """What went up, and how long it took (s)."""

    size: Size
    seconds: float


def send(
    directory: str,
    uri: str,
    access: Access,
    archive: str = "",
    seconds: float | None = None,
    say: Say = print,
    run: Run = run_here,
) -> Sent:
    """Sends all files below ``directory`` to ``uri``; with ``archive``, such as ``model.tar.gz``, as one archive of
    that name. ``seconds``: how long it may take (None: as long as it needs).

    Raises:
        FetchError: not everything got there.
    """
    scratch = temporary.place_of(access.environ) if archive else ""
    if archive and not scratch:
        raise FetchError(temporary.missing(f"packing {directory} for {uri}", access.environ))
    request = {"directory": directory, "uri": uri, "archive": archive, "seconds": seconds, "scratch": scratch}
    return _sent(f"upload of {directory}", request, access, say, run)


def send_file(path: str, uri: str, access: Access, say: Say = print, run: Run = run_here) -> Sent:
    """Sends the file ``path`` to the place ``uri``, below which it keeps its name.

    Raises:
        FetchError: it didn't get there.
    """
    directory, name = os.path.split(path)
    request = {"directory": directory, "uri": uri, "names": [name], "archive": "", "seconds": None}
    return _sent(f"upload of {path}", request, access, say, run)


def _sent(what: str, request: dict[str, Any], access: Access, say: Say, run: Run) -> Sent:
    done = move(what, {"names": [], **request, "action": "send"}, access, say, run)
    return Sent(Size(done["files"], done["bytes"]), done["seconds"])
