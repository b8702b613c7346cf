"""Brings channels to directories, or says how much they have."""

import os
from typing import Any

from musterpoint.base.records import NamedTuple
from musterpoint.core.data.mover import Access, Run, Say, mib, move, run_here
from musterpoint.core.data.places import ALONE, Channel, Share
from musterpoint.core.data.probes import answers

LONGEST_LIST = 120.0
"""Seconds that a channel's files may take to be listed."""


class Size(NamedTuple):
    """Files and bytes."""

    files: int
    bytes: int

    @property
    def sentence(self) -> str:
        return f"{self.files:,} file{'' if self.files == 1 else 's'}, {mib(self.bytes)}"


class Brought(NamedTuple):
    """What a channel has on this host, how much of it was here already, and how long the rest took (s)."""

    size: Size
    kept: Size
    seconds: float


def bring(
    channel: Channel, directory: str, access: Access, share: Share = ALONE, say: Say = print, run: Run = run_here
) -> Brought:
    """Brings the host at ``share`` its files of ``channel`` to ``directory``, whole: each is checked by its size and
    version. What an earlier run brought and hasn't changed stays.

    Raises:
        FetchError: it can't be brought, or this host's disk is too small.
    """
    request = {**_request(channel, share), "action": "fetch", "directory": directory}
    done = move(f"channel {channel.name}", request, access, say, run)
    kept = Size(done["kept_files"], done["kept_bytes"])
    return Brought(Size(done["files"], done["bytes"]), kept, done["seconds"])


def bring_object(uri: str, directory: str, access: Access, say: Say = print, run: Run = run_here) -> str:
    """Brings the one object at ``uri`` (``s3://BUCKET/KEY``) to ``directory``; returns its path there.

    Raises:
        FetchError: it can't be brought, or this host's disk is too small.
    """
    place, slash, name = uri.rpartition("/")
    request = {**_request(Channel("", place + slash), ALONE), "names": [name], "action": "fetch"}
    move(f"fetching {uri}", {**request, "directory": directory}, access, say, run)
    return os.path.join(directory, name)


def measure(channel: Channel, access: Access, share: Share = ALONE, answer: float = LONGEST_LIST) -> Size:
    """How much the host at ``share`` would get of ``channel``, which is asked for ``answer`` seconds at most.

    Raises:
        FetchError: it can't be listed.
    """
    request = {**_request(channel, share), "action": "measure"}
    done = answers(f"channel {channel.name}", request, access, answer)
    return Size(done["files"], done["bytes"])


def _request(channel: Channel, share: Share) -> dict[str, Any]:
    return {
        "uri": channel.uri,
        "names": [],
        "manifest": channel.manifest,
        "prefix": channel.prefix,
        "sharded": channel.sharded,
        "place": share.place,
        "hosts": share.hosts,
    }
