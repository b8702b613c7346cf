"""Brings the user's code to the code directory: all of it, or nothing."""

from __future__ import annotations

import errno
import os
import shutil
from typing import Any, Mapping

from musterpoint.base.errors import FetchError
from musterpoint.core.code.archive import is_archive, said_of, unpack
from musterpoint.core.code.aws import download
from musterpoint.core.code.mark import Mark, digest_of, files_in, in_the_way, remove, write
from musterpoint.core.code.project import LOCAL_JOBS, PART
from musterpoint.core.code.source import Source
from musterpoint.core.code.tools import Tools

PACKED = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.lzma", ".tar.zst", ".zip", ".7z")
"""A file with such a name that is no archive is damaged, empty, or an error page."""


def fetch(
    source: Source,
    code: str,
    region: str,
    environ: Mapping[str, str],
    interpreter: str,
    tools: Tools,
    before: Mark | None = None,
) -> None:
    """Brings ``source`` to the directory ``code``, which is empty, isn't there, or has what ``before`` is the mark of.

    ``interpreter`` is the user's Python, which reads S3 where ours has no boto3. What was brought before is replaced
    if it differs; other files stay.

    Raises:
        FetchError: it can't be fetched, or is refused. ``code`` is then as it was.
        StoppedEarly: this host was told to stop. ``code`` is then as it was.
    """
    tools.begin(f"fetching {source.place}")
    try:
        with Stage(code) as stage:
            if source.kind == "directory":
                digest = digest_of(source.place, tools.poll)
                _copy(source.place, stage, tools)
            else:
                digest = _bring_file(source, stage, region, environ, interpreter, tools)
            mark = Mark(source.place, digest, files_in(stage.tree))
            if before is None or (mark.place, mark.digest) != (before.place, before.digest):
                stage.take_place(mark, before)
                if before is not None:
                    other = before.place if before.place != source.place else "an earlier one"
                    tools.say(f"{code} has the code of {source.place} now, in the place of {other}")
    except (OSError, shutil.Error) as error:
        raise FetchError(f"the code can't be brought from {source.place} to {code}: {_why(error)}") from None
    tools.record("code-fetched", source=source.place, seconds=tools.seconds)


class Stage:
    """A directory beside ``code`` (inside, where ``code`` is a mount) that becomes ``code`` in one step."""

    def __init__(self, code: str) -> None:
        self.code = code
        self._folder = ""

    def __enter__(self) -> Stage:
        os.makedirs(self.code, exist_ok=True)
        beside, inside = os.path.join(os.path.dirname(os.path.realpath(self.code)), PART), os.path.join(self.code, PART)
        for folder in (inside, beside):
            shutil.rmtree(folder, ignore_errors=True)
        self._folder = inside
        if not os.path.ismount(self.code):
            try:
                os.mkdir(beside, 0o700)
                self._folder = beside
            except OSError:
                pass  # no permission
        os.makedirs(self.tree, exist_ok=True)
        return self

    @property
    def tree(self) -> str:
        """The directory that will become the code directory."""
        return os.path.join(self._folder, "tree")

    def path(self, name: str) -> str:
        """A file beside the tree, in the same file system."""
        return os.path.join(self._folder, name)

    @property
    def folders(self) -> tuple[str, str]:
        """Directories that a copy must leave out: they may lie inside its source."""
        return os.path.realpath(self.code), os.path.realpath(self._folder)

    def take_place(self, mark: Mark, before: Mark | None) -> None:
        """Makes the tree the code directory's, with ``mark``, in the place of what ``before`` is the mark of."""
        os.chmod(self.tree, 0o755)
        if before is None and self._folder != os.path.join(self.code, PART):
            write(self.tree, mark)
            try:
                os.rename(self.tree, os.path.realpath(self.code))  # over an empty directory: one step
                return
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.EXDEV):
                    raise  # else it is a mount from the same file system
        if before is not None and (path := in_the_way(self.code, self.tree, before)):
            raise FetchError(
                f"{os.path.join(self.code, path)} is in the way of the code from {mark.place}: an earlier job left it; "
                "remove it"
            )
        write(self.code, mark._replace(digest="", files=(*mark.files, *(before.files if before else ()))))
        if before is not None:
            remove(self.code, before)
        _merge(self.tree, self.code)
        write(self.code, mark)

    def __exit__(self, *_: Any) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _merge(tree: str, folder: str) -> None:
    """Moves what is in ``tree`` to ``folder``, into directories that are there."""
    for name in os.listdir(tree):
        path, place = os.path.join(tree, name), os.path.join(folder, name)
        if os.path.isdir(path) and not os.path.islink(path) and os.path.isdir(place) and not os.path.islink(place):
            _merge(path, place)
        else:
            shutil.move(path, place)  # beside a mount from the same file system it must be copied


def _bring_file(
    source: Source, stage: Stage, region: str, environ: Mapping[str, str], interpreter: str, tools: Tools
) -> str:
    """Unpacks an archive; any other file is itself the code. Returns its digest."""
    path, name = source.place, os.path.basename(source.place)
    if source.kind == "s3":
        path = download(source.place, stage.path("fetched"), region, environ, interpreter, tools)
    if is_archive(path):
        found = unpack(path, stage.tree, source.place, tools.poll)
        tools.say(f"unpacked {source.place}: {found.members:,} members, {found.size / 1024**2:.1f} MiB")
        if said := said_of(found, source.place):
            tools.say(f"warning: {said}")
    elif name.endswith(PACKED):
        raise FetchError(
            f"{source.place} can't be unpacked: it is no archive ({os.path.getsize(path):,} bytes) that can be read "
            "here; expected a .tar, .tar.gz, .tar.bz2, .tar.xz or .zip"
        )
    else:
        shutil.copy2(path, os.path.join(stage.tree, name))
    return digest_of(path, tools.poll)


def _copy(source: str, stage: Stage, tools: Tools) -> None:
    """Copies a directory without the output of local jobs. Links out of it lead to the same places from the copy."""
    root = os.path.realpath(source)
    kept_out = stage.folders

    def left_out(folder: str, names: list[str]) -> list[str]:
        here = os.path.realpath(folder)
        paths = {name: os.path.join(here, name) for name in names}
        return [
            name
            for name, path in paths.items()
            if name == LOCAL_JOBS or any(kept == path or kept.startswith(path + os.sep) for kept in kept_out)
        ]

    shutil.copytree(source, stage.tree, symlinks=True, ignore=left_out, dirs_exist_ok=True, copy_function=tools.copy)
    for folder, folders, files in os.walk(stage.tree):
        for name in (*folders, *files):
            link = os.path.join(folder, name)
            if os.path.islink(link):
                original = os.path.join(root, os.path.relpath(link, stage.tree))
                end = os.path.realpath(original)
                if not os.path.isabs(os.readlink(link)) and not end.startswith(os.path.join(root, "")):
                    os.unlink(link)
                    os.symlink(end, link)


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "no space is left on this host's disk"
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list) and error.args[0]:
        _source, _target, why = error.args[0][0]
        return f"{why}" + (f" (and {len(error.args[0]) - 1} more)" if len(error.args[0]) > 1 else "")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)
