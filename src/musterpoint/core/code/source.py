"""Finds where the user's code comes from."""

import os
from typing import Any, Literal

from musterpoint.base.errors import FetchError
from musterpoint.base.records import NamedTuple
from musterpoint.core.code.project import CHANNEL, holds_something
from musterpoint.core.job.model import Job
from musterpoint.core.job.sagemaker_files import TRAINING_JOB

ARCHIVE = "sourcedir.tar.gz"
"""SDK v2's name for the packed code."""


class Source(NamedTuple):
    """Code that isn't in the code directory yet.

    ``place`` is an ``s3://`` URI, or the absolute path of a file or directory.
    """

    kind: Literal["s3", "file", "directory"]
    place: str


def find_source(job: Job) -> Source | None:
    """The code to bring to the code directory, which is empty; None where there is none.

    The source that the job names comes first, then the channel ``code``. Without a network the channel comes before S3.

    Raises:
        FetchError: what the job names isn't on this host, or is of no known kind.
    """
    code, named = job.paths.code, job.entry_point.source
    brought = _channel(job)
    if not named or named == code:
        return brought
    if named.startswith("s3://"):
        return brought if brought and is_isolated(job) else Source("s3", named)
    place = _path(named)
    if os.path.isdir(place):
        return Source("directory", place)
    if os.path.isfile(place):
        return Source("file", place)
    either = "" if holds_something(code) else f"; {code} has no code in it either"
    raise FetchError(f"the job's source {named} isn't on this host{either}")


def is_isolated(job: Job) -> bool:
    """Whether the platform says that the job has no network (``EnableNetworkIsolation``)."""
    config: Any = job.files.get(TRAINING_JOB)
    return isinstance(config, dict) and config.get("EnableNetworkIsolation") is True


def has_no_network(job: Job) -> bool:
    """Whether no package index can be reached: the platform or SDK v2's settings say so, or there is no route."""
    sent = bool(job.paths.input_data) and job.entry_point.source == os.path.join(job.paths.input_data, CHANNEL, ARCHIVE)
    return is_isolated(job) or sent or not has_route()


def _channel(job: Job) -> Source | None:
    """The channel ``code`` if the SDK filled it: the user's own channel may have the same name."""
    if not job.paths.input_data:
        return None
    folder = os.path.join(job.paths.input_data, CHANNEL)
    archive = os.path.join(folder, ARCHIVE)
    if os.path.isfile(archive):
        return Source("file", archive)
    program = job.entry_point.program
    sent = bool(program) and not os.path.isabs(program) and os.path.exists(os.path.join(folder, program))
    return Source("directory", folder) if sent else None


def _path(named: str) -> str:
    """A path, or the path of a ``file://`` URI."""
    if named.startswith("file://"):
        host, slash, rest = named.removeprefix("file://").partition("/")
        if host not in ("", "localhost") or not slash:
            raise FetchError(f"the job's source {named} is a file of another machine; expected file:///PATH")
        from urllib.parse import unquote

        return unquote("/" + rest)
    if "://" in named:
        raise FetchError(
            f"the job's source {named} is of no known kind: expected s3://BUCKET/KEY, a directory, an archive "
            "(.tar.gz, .tar, .zip) or one file"
        )
    return os.path.abspath(named)


def has_route(proc: str = "/proc") -> bool:
    """Whether the kernel has a route to any other host; True where that is unknown (not Linux)."""
    four = _lines(os.path.join(proc, "net/route"))
    if four is None:
        return True
    # the interface is the first column of route, and the last of ipv6_route
    six = _lines(os.path.join(proc, "net/ipv6_route")) or []
    return any(line[:1] not in (["Iface"], ["lo"]) for line in four) or any(line[-1:] != ["lo"] for line in six)


def _lines(path: str) -> list[list[str]] | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return [line.split() for line in file if line.strip()]
    except OSError:
        return None
