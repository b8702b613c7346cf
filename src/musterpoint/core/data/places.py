"""Places of data: a URI or a path, and what is said of it behind semicolons."""

import os
import re
from typing import Callable

from musterpoint.base.errors import UsageError, similar
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import REMOVED

WORDS = ("sharded", "manifest")
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_LOCAL = re.compile(r"(file|local)://", re.IGNORECASE)
"""fsspec's names for this host's files."""


class Channel(NamedTuple):
    """One input: its name, and where it is, a URI or an absolute path.

    ``sharded``: each host gets its share of the files, as ShardedByS3Key. ``manifest``: ``uri`` is a list of files, as
    SageMaker's ManifestFile. ``prefix``: all whose names begin with the URI count, as for SageMaker's S3Prefix.
    """

    name: str
    uri: str
    sharded: bool = False
    manifest: bool = False
    prefix: bool = False


class Share(NamedTuple):
    """The host at ``place`` of ``hosts``."""

    place: int = 0
    hosts: int = 1


ALONE = Share()


def read_channel(text: str, cwd: str, exists: Callable[[str], bool] = os.path.exists) -> Channel:
    """The channel of ``NAME=URI[;sharded][;manifest]``. An existing path with semicolons is a path.

    Raises:
        UsageError: it has another form.
    """
    name, equals, rest = text.partition("=")
    if not equals or not NAME.fullmatch(name) or name in (".", "..") or not rest:
        raise UsageError(f"--channel={text}: expected NAME=URI with a name of A-Z a-z 0-9 . _ -")
    uri, words = rest, list[str]()
    if ";" in rest and not (is_path(rest) and exists(os.path.join(cwd, rest))):
        uri, *words = rest.split(";")
    for word in words:
        if gone := REMOVED.get(f";{word.lower()}"):
            raise UsageError(f"--channel={text}: ;{word} is gone: {gone}")
        if word not in WORDS:
            near = similar(word, WORDS, 0.6)
            meant = f" (did you mean {near}?)" if near else ""
            raise UsageError(f"--channel={text}: {word!r} is none of {', '.join(WORDS)}{meant}")
    place = place_of(uri, cwd, f"--channel={text}")
    return Channel(name, place, *(word in words for word in WORDS))


def is_path(place: str) -> bool:
    """Whether ``place`` is a path of this host or of a mount, not a URI."""
    return not _URI.match(place)


def place_of(text: str, cwd: str, where: str) -> str:
    """A URI as it is; a path, also that of ``file://``, absolute.

    Raises:
        UsageError: it is empty, or a URI without a place.
    """
    if (local := _LOCAL.match(text)) is not None:
        text = "/" + text[local.end() :].lstrip("/")
    if is_path(text) and text:
        return os.path.abspath(os.path.join(cwd, text))
    _scheme, _, place = text.partition("://")
    if not place.strip("/"):
        raise UsageError(f"{where}: expected s3://BUCKET/PREFIX, another URI that fsspec reads, or a directory")
    return text


def below(place: str, name: str) -> str:
    """The place ``name`` below ``place``."""
    return f"{place.rstrip('/')}/{name}"
