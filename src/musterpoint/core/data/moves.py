"""What is moved of a job's data: channels here, directories to their places, whole checkpoints back; and how fast."""

import os
from typing import Any, Literal

from musterpoint.base import temporary
from musterpoint.base.below import below
from musterpoint.base.errors import FetchError
from musterpoint.base.records import NamedTuple
from musterpoint.core.data.mover_process import ANSWER, Access, NotMoved, Run, Say, limited, mib, move, run_here
from musterpoint.core.data.places import ALONE, Channel, Share

LONGEST_LIST = 120.0
"""Seconds that a channel's files may take to be listed."""
Which = Literal["all", "own", "leader"]


class Size(NamedTuple):
    """Files and bytes."""

    files: int
    bytes: int

    @property
    def sentence(self) -> str:
        return f"{self.files:,} file{'' if self.files == 1 else 's'}, {mib(self.bytes)}"


class Moved(NamedTuple):
    """Files and bytes of a transfer, how many of both were there already, and how long the rest took (s)."""

    files: int
    bytes: int
    kept_files: int
    kept_bytes: int
    seconds: float

    @property
    def size(self) -> Size:
        return Size(self.files, self.bytes)

    @property
    def kept(self) -> Size:
        return Size(self.kept_files, self.kept_bytes)


class Target(NamedTuple):
    """A place for checkpoints: its URI or path, the job whose they are, and how many are kept there.

    ``marks``: globs of files that mark a whole checkpoint; empty: the known kinds' own marks. ``owner``: the number of
    this start of the job there; 0: the place isn't claimed yet.
    """

    uri: str
    job: str
    keep: int = 3
    marks: tuple[str, ...] = ()
    owner: int = 0


class Newest(NamedTuple):
    """The newest whole checkpoint of a place: its manifest's number, its job, the hosts that wrote it, the checkpoints
    in it, and its files and bytes.
    """

    number: int
    job: str
    hosts: int
    names: tuple[str, ...]
    files: int
    bytes: int


class Restored(NamedTuple):
    """What :func:`restore` brought. ``number`` is 0 where the place had no checkpoint. ``moved``: how many files that
    were in the directory, and no part of it, were moved out of the way. ``owner``: the number of this start of the job,
    which the place is from now on; 0: another host has made it so.
    """

    number: int
    names: tuple[str, ...]
    files: int
    bytes: int
    moved: int
    seconds: float
    owner: int = 0

    @property
    def sentence(self) -> str:
        names = ", ".join(self.names[:3]) + (", ..." if len(self.names) > 3 else "")
        return f"{names} ({self.files:,} files, {mib(self.bytes)}) is here after {self.seconds:.1f} s"


class Speed(NamedTuple):
    """Bytes per second to and from a place; None: not measured. ``newest``: bytes of the newest checkpoint there."""

    write: float | None
    read: float | None
    newest: int = 0


def bring(
    channel: Channel, directory: str, access: Access, share: Share = ALONE, say: Say = print, run: Run = run_here
) -> Moved:
    """Brings the host at ``share`` its files of ``channel`` to ``directory``, whole: each is checked by its size and
    version. What an earlier run brought and hasn't changed stays.

    Raises:
        FetchError: it can't be brought, or this host's disk is too small.
    """
    request = {**_listed(channel, share), "action": "fetch", "directory": directory}
    return Moved(**move(f"channel {channel.name}", request, access, say, run))


def bring_object(uri: str, directory: str, access: Access, say: Say = print, run: Run = run_here) -> str:
    """Brings the one object at ``uri`` (``s3://BUCKET/KEY``) to ``directory``; returns its path there.

    Raises:
        FetchError: it can't be brought, or this host's disk is too small.
    """
    place, slash, name = uri.rpartition("/")
    request = {**_listed(Channel("", place + slash), ALONE), "names": [name], "action": "fetch"}
    move(f"fetching {uri}", {**request, "directory": directory}, access, say, run)
    return below(directory, name)


def measure(channel: Channel, access: Access, share: Share = ALONE, answer: float = LONGEST_LIST) -> Size:
    """How much the host at ``share`` would get of ``channel``, which is asked for ``answer`` seconds at most.

    Raises:
        FetchError: it can't be listed.
    """
    request = {**_listed(channel, share), "action": "measure"}
    return Size(**move(f"channel {channel.name}", request, access, lambda _: None, limited(answer)))


def _listed(channel: Channel, share: Share) -> dict[str, Any]:
    return {**channel._asdict(), **share._asdict(), "names": []}


def has_files(directory: str) -> bool:
    """Whether there is anything to send."""
    return any(files for _folder, _folders, files in os.walk(directory))


def send(
    directory: str,
    uri: str,
    access: Access,
    archive: str = "",
    seconds: float | None = None,
    say: Say = print,
    run: Run = run_here,
) -> Moved:
    """Sends all files below ``directory`` to ``uri``; with ``archive``, such as ``model.tar.gz``, as one archive of
    that name. No link on the way to ``directory`` is followed: it is a real path. ``seconds``: how long it may take
    (None: as long as it needs).

    Raises:
        FetchError: not everything got there.
    """
    scratch = temporary.place_of(access.environ) if archive else ""
    if archive and not scratch:
        raise FetchError(temporary.missing(f"packing {directory} for {uri}", access.environ))
    request = {"directory": directory, "uri": uri, "archive": archive, "seconds": seconds, "scratch": scratch}
    return _sent(f"upload of {directory}", request, access, say, run)


def send_file(path: str, uri: str, access: Access, say: Say = print, run: Run = run_here) -> Moved:
    """Sends the file ``path`` to the place ``uri``, below which it keeps its name.

    Raises:
        FetchError: it didn't get there.
    """
    directory, name = os.path.split(path)
    request = {"directory": os.path.realpath(directory), "uri": uri, "names": [name], "archive": "", "seconds": None}
    return _sent(f"upload of {path}", request, access, say, run)


def _sent(what: str, request: dict[str, Any], access: Access, say: Say, run: Run) -> Moved:
    whole = {"names": [], **request, "action": "send"}
    try:
        return Moved(**move(what, whole, access, say, run))
    except NotMoved as error:
        if not error.killed:
            raise
        say(f"{error}; it is started again")
    return Moved(**move(what, whole, access, say, run))


def newest(target: Target, access: Access, run: Run = run_here) -> Newest | None:
    """The newest whole checkpoint; None where there is none.

    Raises:
        FetchError: the place can't be read.
    """
    found = move(f"checkpoints {target.uri}", {"action": "newest", "uri": target.uri}, access, lambda _: None, run)
    return Newest(**{**found, "names": tuple(found["names"])}) if found else None


def restore(
    target: Target,
    directory: str,
    access: Access,
    share: Share = ALONE,
    which: Which = "own",
    number: int | None = None,
    claims: str = "",
    say: Say = print,
    run: Run = run_here,
) -> Restored:
    """Brings the newest whole checkpoint to ``directory``, byte for byte, for the host at ``share``; with ``number``
    that one, or none of the place's for 0. What else is in the directory is moved away, but for what was there before
    the job's first start. ``claims``: the name of the host for which the place becomes this start's; empty: it doesn't.

    Raises:
        FetchError: it can't be brought, or is another job's.
    """
    request: dict[str, Any] = {"action": "restore", "uri": target.uri, "job": target.job, "directory": directory}
    request.update(share._asdict(), which=which, number=number, claims=claims)
    done = move(f"checkpoints {target.uri}", request, access, say, run)
    return Restored(**{**done, "names": tuple(done["names"])})


def speed(uri: str, access: Access, writes: bool = True, checkpoints: bool = False, answer: float = ANSWER) -> Speed:
    """How fast this host writes to ``uri`` and reads from it; the files that this takes are removed again.

    Raises:
        FetchError: it can't be read or written, or doesn't answer.
    """
    request = {"action": "probe", "uri": uri, "writes": writes, "checkpoints": checkpoints}
    return Speed(**move(uri, request, access, lambda _: None, limited(answer)))
