"""Whole checkpoints at a place of a store: which is the newest, and bringing it to a directory."""

from typing import Any, Literal

from musterpoint.base.records import NamedTuple
from musterpoint.core.data.mover import Access, Run, Say, mib, move, run_here
from musterpoint.core.data.places import ALONE, Share

Which = Literal["all", "own", "leader"]


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
    """The newest whole checkpoint of a place: its manifest's number, whose it is, how many hosts wrote it, the
    checkpoints in it, and its files and bytes.
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


def newest(target: Target, access: Access, run: Run = run_here) -> Newest | None:
    """The newest whole checkpoint; None where there is none.

    Raises:
        FetchError: the place can't be read.
    """
    found = move(f"checkpoints {target.uri}", {"action": "newest", "uri": target.uri}, access, lambda _: None, run)
    if not found.pop("found"):
        return None
    return Newest(**{**found, "names": tuple(found["names"])})


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
    request.update(place=share.place, hosts=share.hosts, which=which, number=number, claims=claims)
    done = move(f"checkpoints {target.uri}", request, access, say, run)
    done.pop("found")
    return Restored(**{**done, "names": tuple(done["names"])})
