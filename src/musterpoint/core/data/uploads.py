"""Sends a directory to a store, as files or as one archive."""

import tempfile
from typing import NamedTuple

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
    request = {
        "action": "send",
        "directory": directory,
        "uri": uri,
        "archive": archive,
        "seconds": seconds,
        "scratch": tempfile.gettempdir(),
    }
    done = move(f"upload of {directory}", request, access, say, run)
    return Sent(Size(done["files"], done["bytes"]), done["seconds"])
