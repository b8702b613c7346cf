"""The mark of code that musterpoint brought to the code directory: where it came from, and which files are of it.

A container may run one job after another. Code with a mark is replaced when the next job's source is another one; code
without a mark is the image's or the user's own.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Iterator

from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import open_regular
from musterpoint.core.code.project import MARK, MARK_PART
from musterpoint.core.code.source import Source

_LARGEST = 256 << 20
_BLOCK = 1 << 20


class Mark(NamedTuple):
    """``place``: of the source. ``digest``: of its content (empty: it was being replaced). ``files``: the paths of what
    was brought, relative to the code directory.
    """

    place: str
    digest: str
    files: tuple[str, ...]


def read_mark(code: str) -> Mark | None:
    """The mark of the directory ``code``; None where it has none that can be read."""
    try:
        with open(os.path.join(code, MARK), "rb", opener=open_regular) as file:
            found: Any = json.loads(file.read(_LARGEST))
        place, digest, files = found["place"], found["digest"], found["files"]
        if all(isinstance(text, str) for text in (place, digest, *files)):
            return Mark(place, digest, tuple(files))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


def write(code: str, mark: Mark) -> None:
    """Writes ``mark`` into ``code`` in one step."""
    draft = os.path.join(code, MARK_PART)
    with open(draft, "w", encoding="ascii") as file:
        json.dump(mark._asdict(), file)
    os.replace(draft, os.path.join(code, MARK))


def files_in(tree: str) -> tuple[str, ...]:
    """All files and links below ``tree``, by their paths there."""
    return tuple(
        os.path.relpath(path, tree) for path in _files(tree) if os.path.basename(path) not in (MARK, MARK_PART)
    )


def _files(tree: str) -> Iterator[str]:
    for folder, folders, files in os.walk(tree):
        for name in files:
            yield os.path.join(folder, name)
        for name in folders:
            if os.path.islink(os.path.join(folder, name)):
                yield os.path.join(folder, name)


def digest_of(path: str, poll: Callable[[], None]) -> str:
    """What tells the content at ``path``, a file or a directory, from another. ``poll`` is called between pieces of
    work and may raise.
    """
    import hashlib

    found = hashlib.sha256()
    for file in sorted(_files(path)) if os.path.isdir(path) else (path,):
        poll()
        found.update(os.fsencode(f"\0{os.path.relpath(file, path)}\0"))
        if os.path.islink(file):
            found.update(os.fsencode(os.readlink(file)))
        elif os.path.isfile(file):
            with open(file, "rb") as content:
                while block := content.read(_BLOCK):
                    poll()
                    found.update(block)
    return found.hexdigest()


def is_of(mark: Mark, source: Source, may_download: bool) -> bool:
    """Whether what is there came from ``source`` as it is now. An object of S3 must be read to know that: without
    ``may_download`` it is taken for the same.
    """
    if mark.place != source.place or not mark.digest:
        return False
    if source.kind == "s3":
        return not may_download
    return mark.digest == digest_of(source.place, lambda: None)


def in_the_way(code: str, tree: str, mark: Mark) -> str:
    """The first path in ``code`` that isn't of ``mark`` and keeps what is in ``tree`` from taking its place: a file
    where a directory is to be, or the other way round; empty: there is none.
    """
    ours = set(mark.files)
    for folder, folders, files in os.walk(tree):
        below = os.path.relpath(folder, tree)
        for name in (*folders, *files):
            path = os.path.normpath(os.path.join(below, name))
            there, new = os.path.join(code, path), os.path.join(folder, name)
            if not os.path.lexists(there) or _is_folder(there) == _is_folder(new):
                continue
            if not _is_folder(there):
                if path not in ours:
                    return path
            else:
                others = [os.path.join(path, name) for name in files_in(there)]
                if left := [name for name in others if name not in ours]:
                    return left[0]
    return ""


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def remove(code: str, mark: Mark) -> None:
    """Removes from ``code`` the files of ``mark``, what pip has built of them, and directories that are empty then.
    Others stay.
    """
    import shutil
    import sysconfig

    root = os.path.realpath(code)
    by_setuptools = ("build/lib", f"build/bdist.{sysconfig.get_platform()}")  # beside a package that it builds in place
    for built in (*by_setuptools, *(name for name in os.listdir(code) if name.endswith(".egg-info"))):
        path = os.path.join(root, built)
        if os.path.realpath(path) == path:  # no link of the program's leads elsewhere
            shutil.rmtree(path, ignore_errors=True)
    folders = {os.path.join(code, "build")}
    for name in mark.files:
        folder = os.path.join(code, os.path.dirname(name))
        try:
            inside = os.path.join(os.path.realpath(folder), "").startswith(os.path.join(root, ""))
            if os.path.isabs(name) or not inside:
                continue  # the program has changed the mark, or put a link there
            os.unlink(os.path.join(code, name))
        except (OSError, ValueError):
            continue
        while os.path.realpath(folder) != root:
            folders.add(folder)
            folder = os.path.dirname(folder)
    for folder in sorted(folders, key=len, reverse=True):
        try:
            os.rmdir(folder)
        except OSError:
            pass  # something else is in it
