"""Each host's own code: what it writes beside the program stays with it, and never changes the user's files.

Files are copied, by the file system's own copy-on-write where it has that. A directory with much in it is an overlay
mount where this process may make one: the host then reads the user's files and writes to a directory of its own. The
mounts are made by the host's first process, in a mount namespace of its own, so none is ever seen outside of it.

When the job is over, what the hosts didn't change is removed from their copies; the rest is kept.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from typing import Callable, Iterator, NamedTuple, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.base.posix import fcntl
from musterpoint.base.settings import CODE_COPY, CODE_COPY_OF
from musterpoint.core.code.project import LOCAL_JOBS, REQUIREMENTS
from musterpoint.local.job_request import LocalJob
from musterpoint.local.tree import Layout

LEFT_OUT = frozenset({".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", "node_modules", LOCAL_JOBS})
"""Directories that no program reads as its code or data. Virtual environments and caches go by what is in them."""
MARKS = ("pyvenv.cfg", "conda-meta", "CACHEDIR.TAG")
"""What a virtual environment or a directory that may be deleted at any time (bford.info/cachedir) has in it."""
MANY, MUCH = 500, 32 << 20
"""Files, or bytes, from which on a directory is mounted rather than copied."""
WORTH_SAYING = 1 << 30
"""Bytes to copy per host from which on a line says what takes so long."""
LEAST = 256 << 10
"""Bytes that could be copied in the time that a file takes, however small."""
SHOWN = 4
"""Names in the line about what was written."""
_CLONE = 0x40049409
"""FICLONE of linux/fs.h: a copy that shares its blocks with the original until one of them is written to."""

_MOUNTS = (
    'set -e; while [ "$1" != -- ]; do cd "$1"; mount -t overlay overlay '
    '-o redirect_dir=on,lowerdir=lower,upperdir=upper,workdir=work "$2"; shift 2; done; shift; cd /; exec "$@"'
)
_IN_ITS_OWN = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNTS, "sh")


class Copies(NamedTuple):
    """One host's code.

    ``folder``: where it is on this machine. ``mounts``: directories of ours with the layers of each overlay, and the
    paths below ``folder`` on which they go. ``files``: what was copied: path below ``folder`` → size and time.
    """

    folder: str
    mounts: list[tuple[str, str]]
    files: dict[str, tuple[int, int]]


class PrivateCode:
    """The code of all hosts of ``job``. Used as :meth:`make`, then :meth:`command` and :meth:`environment` for each
    host, and at last :meth:`settle`. Containers have the code read-only, and what they write lies beside its mounts.
    """

    def __init__(self, job: LocalJob, layout: Layout, say: Callable[[str], None]) -> None:
        self._job, self._layout, self._say = job, layout, say
        self._made: dict[str, Copies] = {}
        self._can_mount: bool | None = None
        self._bytes = 0

    def make(self) -> None:
        """Replaces the links to the user's code, with which the platform has prepared the hosts, by their own code.

        Raises:
            UsageError: there is no room for it.
        """
        if self._job.container is not None or not os.path.isdir(self._job.source_dir):
            return
        self._mount_points = _mount_points()
        for host in self._job.hosts:
            try:
                self._make(host)
            except OSError as error:
                raise UsageError(self._why(error)) from None

    def _make(self, host: str) -> None:
        link = os.path.join(self._layout.tree(host), "code")
        if os.path.islink(link):  # the whole directory
            os.unlink(link)
            os.mkdir(link)
            copies = self._made[host] = Copies(link, [], {})
            self._bring(host, copies, self._job.source_dir, "")
            return
        folder = os.path.join(self._layout.host(host), "wd")  # the host's own, with a link to each entry
        if not os.path.isdir(folder):
            return
        copies = self._made[host] = Copies(folder, [], {})
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if os.path.islink(path) and os.readlink(path) == os.path.join(self._job.source_dir, name):
                os.unlink(path)
                self._bring_entry(host, copies, name)

    def _bring(self, host: str, copies: Copies, source: str, below: str) -> None:
        """Brings the directory ``source`` to the path ``below`` the host's code, where there is an empty one."""
        if self._is_much(source) and self._mountable(source):
            layers = os.path.join(self._layout.host(host), "layers", str(len(copies.mounts)))
            for name in ("upper", "work"):
                os.makedirs(os.path.join(layers, name))
            os.symlink(source, os.path.join(layers, "lower"))
            os.chmod(os.path.join(layers, "upper"), stat.S_IMODE(os.stat(source).st_mode))
            copies.mounts.append((layers, below))
            return
        for name in sorted(os.listdir(source)):
            self._bring_entry(host, copies, os.path.join(below, name))

    def _bring_entry(self, host: str, copies: Copies, below: str) -> None:
        source, target = os.path.join(self._job.source_dir, below), os.path.join(copies.folder, below)
        mode = os.lstat(source).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(_end_of_link(source, self._job.source_dir), target)
        elif stat.S_ISDIR(mode):
            if not self._is_left_out(source):
                os.mkdir(target)
                self._bring(host, copies, source, below)
                shutil.copystat(source, target)
        elif stat.S_ISREG(mode):
            self._copy(source, target)
            found = os.stat(target)
            copies.files[below] = (found.st_size, found.st_mtime_ns)

    def _copy(self, source: str, target: str) -> None:
        with open(source, "rb") as read, open(target, "wb") as write:
            if not _clone(read.fileno(), write.fileno()):
                before, self._bytes = self._bytes, self._bytes + os.fstat(read.fileno()).st_size + LEAST
                if before < WORTH_SAYING <= self._bytes:
                    self._say(f"copying {self._job.source_dir} for each host; {self._quicker}")
                shutil.copyfileobj(read, write, 1 << 20)
        shutil.copystat(source, target)

    def _is_left_out(self, folder: str) -> bool:
        return (
            os.path.basename(folder) in LEFT_OUT
            or os.path.realpath(folder) == os.path.realpath(self._layout.output)
            or any(os.path.exists(os.path.join(folder, mark)) for mark in MARKS)
        )

    def _is_much(self, folder: str) -> bool:
        """Whether there are many files below ``folder``, or large ones; no more of them are looked at than needed."""
        files = size = 0
        for entry in _below(folder):
            files, size = files + 1, size + entry.stat(follow_symlinks=False).st_size
            if files > MANY or size > MUCH:
                return True
        return False

    def _mountable(self, folder: str) -> bool:
        """Whether ``folder`` can be the lower layer of an overlay: that has neither our output nor mounts in it."""
        inside = os.path.join(os.path.realpath(folder), "")
        if os.path.realpath(self._layout.output).startswith(inside):
            return False
        if any(mount.startswith(inside) for mount in self._mount_points):
            return False
        if self._can_mount is None:
            self._can_mount = can_mount(self._layout.hosts)
        return self._can_mount

    @property
    def _quicker(self) -> str:
        if self._can_mount:
            return "with an --output elsewhere than in that directory it would be there at once"
        return "a --source-dir with the code alone, and data as --channel NAME=PATH, is there at once"

    def _why(self, error: OSError) -> str:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return (
                f"each host gets a copy of {self._job.source_dir}, and no space is left for it in "
                f"{self._layout.output}; {self._quicker}"
            )
        file = error.filename or "a file"
        return f"{self._job.source_dir} can't be copied to {self._layout.output}: {file}: {error.strerror}"

    def command(self, host: str, tree: str, argv: Sequence[str]) -> list[str]:
        """``argv`` behind the mounts that ``host`` needs; ``tree`` is where the host has its ``/opt/ml``."""
        copies = self._made.get(host)
        if copies is None or not copies.mounts:
            return list(argv)
        where = self._seen(host, tree)
        pairs = [word for layers, below in copies.mounts for word in (layers, os.path.join(where, below))]
        return [*_IN_ITS_OWN, *pairs, "--", *argv]

    def environment(self, host: str, tree: str) -> dict[str, str]:
        """The variables by which Python names the user's own files on ``host``."""
        if host not in self._made:
            return {}
        return {CODE_COPY: self._seen(host, tree), CODE_COPY_OF: self._job.source_dir}

    def _seen(self, host: str, tree: str) -> str:
        """The path of the code as ``host`` sees it."""
        folder = self._made[host].folder
        inside = os.path.join(self._layout.tree(host), "")
        return os.path.join(tree, folder[len(inside) :]) if folder.startswith(inside) else folder

    def settle(self) -> str:
        """Removes what the hosts have left as it was; a sentence about the rest, empty where there is none."""
        written: dict[str, list[str]] = {}
        for host, copies in self._made.items():
            try:
                for name in _changed(copies, self._job.source_dir):
                    written.setdefault(name, []).append(host)
            except OSError as error:
                self._say(f"warning: {copies.folder}: what didn't change can't be removed: {error.strerror}")
        folders = {copies.folder for copies in self._made.values()}
        for host in self._job.hosts if self._job.container is not None else ():
            folder = os.path.join(self._layout.tree(host), "code")
            folders.add(folder)
            for name in _beside_mounts(folder, self._job.source_dir):
                written.setdefault(name, []).append(host)
        self._made = {}
        return _sentence(written, folders, self._job, self._layout)


def can_mount(folder: str) -> bool:
    """Whether an overlay can be mounted here whose upper layer is below ``folder``; tried in a namespace of its own."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return False
    trial = os.path.join(folder, "overlay-trial")
    for name in ("lower", "upper", "work", "mounted"):
        os.makedirs(os.path.join(trial, name))
    try:
        command = [*_IN_ITS_OWN, trial, os.path.join(trial, "mounted"), "--", "true"]
        return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:  # there is no unshare
        return False
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def _clone(source: int, target: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        fcntl.ioctl(target, _CLONE, source)
    except OSError:
        return False
    return True


def _below(folder: str) -> Iterator[os.DirEntry[str]]:
    """All files below ``folder``, without those that are in no copy."""
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    yield entry
                elif entry.name not in LEFT_OUT:
                    waiting.append(entry.path)


def _end_of_link(link: str, root: str) -> str:
    """What the copy of ``link`` says: within ``root`` the same, and elsewhere the place that it leads to."""
    text = os.readlink(link)
    if os.path.isabs(text):
        return text
    end = os.path.normpath(os.path.join(os.path.dirname(link), text))
    return text if end.startswith(os.path.join(root, "")) else end


def _mount_points() -> list[str]:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            found = [line.split()[4] for line in file]
    except OSError:
        return []
    return [path.encode("latin-1", "replace").decode("unicode_escape") if "\\" in path else path for path in found]


def _changed(copies: Copies, source: str) -> list[str]:
    """Removes what is as it was from a host's code; the paths of all other files."""
    for layers, below in reversed(copies.mounts):
        _take_upper(os.path.join(layers, "upper"), os.path.join(copies.folder, below), os.path.join(source, below))
    if copies.mounts:
        shutil.rmtree(os.path.dirname(copies.mounts[0][0]), ignore_errors=True)
    kept = []
    for folder, folders, files in os.walk(copies.folder, topdown=False):
        for name in files:
            path = os.path.join(folder, name)
            below, found = os.path.relpath(path, copies.folder), os.lstat(path)
            same = copies.files.get(below) == (found.st_size, found.st_mtime_ns)
            if same or os.path.basename(folder) == "__pycache__" or _is_same_link(path, os.path.join(source, below)):
                os.unlink(path)
            else:
                kept.append(below)
        for name in folders:
            path = os.path.join(folder, name)
            if _is_same_link(path, os.path.join(source, os.path.relpath(path, copies.folder))):
                os.unlink(path)
            elif not os.path.islink(path) and not os.listdir(path):
                os.rmdir(path)
    return sorted(kept)


def _beside_mounts(folder: str, source: str) -> list[str]:
    """What a container has written to its code: all that isn't the empty place of a mount."""
    found = []
    for parent, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(parent, name)
            below = os.path.relpath(path, folder)
            if not os.path.lexists(os.path.join(source, below)) and (os.lstat(path).st_size or below != REQUIREMENTS):
                found.append(below)
    return sorted(found)


def _is_same_link(path: str, original: str) -> bool:
    return os.path.islink(path) and os.path.islink(original)


def _take_upper(upper: str, target: str, source: str) -> None:
    """Moves what a host wrote to an overlay to the place where that was mounted."""
    for name in os.listdir(upper):
        path, place, original = os.path.join(upper, name), os.path.join(target, name), os.path.join(source, name)
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode) and os.path.isdir(place):
            _take_upper(path, place, original)
        elif stat.S_ISCHR(found.st_mode) or (stat.S_ISREG(found.st_mode) and _is_as(original, found)):
            os.unlink(path)  # the mark of a file that was removed, or a file that was only opened
        elif stat.S_ISDIR(found.st_mode):
            os.mkdir(place)
            _take_upper(path, place, original)
        else:
            os.rename(path, place)


def _is_as(original: str, found: os.stat_result) -> bool:
    try:
        before = os.stat(original, follow_symlinks=False)
    except OSError:
        return False
    return (before.st_size, before.st_mtime_ns) == (found.st_size, found.st_mtime_ns)


def _sentence(written: dict[str, list[str]], folders: set[str], job: LocalJob, layout: Layout) -> str:
    if not written:
        return ""
    names = [
        f"{name} ({'every host' if len(on) == len(job.hosts) > 1 else ', '.join(on)})" for name, on in written.items()
    ]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    where = next(iter(folders))
    if len(folders) > 1:
        inside = os.path.relpath(where, layout.hosts).partition(os.sep)[2]
        where = os.path.join(layout.hosts, "*", inside)
    return f"written beside the code: {', '.join(names[:SHOWN])}{more}; kept in {where}, not in {job.source_dir}"
