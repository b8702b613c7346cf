"""What the hosts left, brought together as the platform does when a job is over."""

from __future__ import annotations

import errno
import filecmp
import json
import os
import tarfile
from typing import Any, Iterator, NamedTuple

from musterpoint.job.fields import LARGEST_FILE
from musterpoint.local.tree import Layout
from musterpoint.report.files import put
from musterpoint.report.output_directory import TIMELINE, OutputDirectory
from musterpoint.untrusted import regular_itself

ARTIFACTS = {"model.tar.gz": "model", "output.tar.gz": "output/data"}
"""Archive: the directory of each host's tree that goes into it."""


class Left(NamedTuple):
    """What one host left in its tree: its outcome (None: it wrote none) and the text of its failure file."""

    outcome: dict[str, Any] | None = None
    failure: str = ""


def read(layout: Layout, host: str) -> Left:
    output = os.path.join(layout.tree(host), "output")
    outcome = _json(os.path.join(output, "outcome.json"))
    try:
        with open(os.path.join(output, "failure"), encoding="utf-8", errors="replace", opener=regular_itself) as file:
            failure = file.read(4096)
    except OSError:
        failure = ""
    return Left(outcome if isinstance(outcome, dict) else None, failure)


def archive(layout: Layout, hosts: tuple[str, ...]) -> list[str]:
    """Writes the archives of :data:`ARTIFACTS`, hosts merged; a sentence for each file that clashed or is left out."""
    warnings = []
    for name, directory in ARTIFACTS.items():
        path = layout.artifact(name)
        kept: dict[str, tuple[str, str]] = {}
        try:
            with tarfile.open(path + ".part", "w:gz", compresslevel=1) as tar:
                for host in hosts:
                    for member, file in _files(os.path.join(layout.tree(host), directory)):
                        if member not in kept:
                            kept[member] = (host, file)
                            warnings += _add(tar, name, host, member, file)
                        elif not _same(kept[member][1], file):
                            one = kept[member][0]
                            warnings.append(
                                f"{name}: {one} and {host} both left {member}, and not the same; kept {one}'s"
                            )
            os.replace(path + ".part", path)
        except OSError as error:
            where = os.path.join(layout.hosts, "*", "opt", "ml", directory)
            warnings.append(f"{name} can't be written: {error.strerror}; what would be in it lies in {where}")
            _forget(path + ".part")
    return warnings


def _add(tar: tarfile.TarFile, name: str, host: str, member: str, file: str) -> list[str]:
    """Puts ``file`` into the archive; a sentence where it can't be read. An OSError: the archive can't be written."""
    try:
        tar.add(file, member, recursive=False)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return [f"{name}: {member} of {host} is left out: {error.strerror}"]
    return []


def _forget(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def timeline(layout: Layout, hosts: tuple[str, ...], own: list[dict[str, Any]], room: OutputDirectory) -> list[str]:
    """Writes ``timeline.json`` into ``room``: what every host and the control plane (``own``) went through, in order.

    Returns what could not be written, as a sentence.
    """
    moments = list(own)
    for host in hosts:
        read = _json(os.path.join(layout.tree(host), "output", "timeline.json"))
        moments.extend(moment for moment in read if isinstance(moment, dict)) if isinstance(read, list) else None
    moments.sort(key=lambda moment: moment["at"] if isinstance(moment.get("at"), (int, float)) else 0.0)
    text = ",\n".join(json.dumps(moment) for moment in moments)
    problem = put(room, TIMELINE, f"[\n{text}\n]\n".encode())
    return [problem] if problem else []


def _files(directory: str) -> Iterator[tuple[str, str]]:
    """Every directory, file and link below ``directory``: its name in the archive, and where it lies."""
    for parent, directories, files in os.walk(directory):
        directories.sort()
        for name in sorted(directories + files):
            path = os.path.join(parent, name)
            if os.path.isdir(path) or os.path.isfile(path) or os.path.islink(path):
                yield os.path.relpath(path, directory), path


def _same(one: str, other: str) -> bool:
    if os.path.isdir(one) and os.path.isdir(other):
        return True
    try:
        return os.path.isfile(one) and os.path.isfile(other) and filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def _json(path: str) -> Any:
    """The file's JSON value; None if there is none."""
    try:
        with open(path, encoding="utf-8", opener=regular_itself) as file:
            return json.loads(file.read(LARGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return None
