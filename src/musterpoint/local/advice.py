"""What a person can do about a failure that comes from how local hosts are made; pure but for the logs it reads."""

from __future__ import annotations

import os
import re

from musterpoint.core.job.fields import shown
from musterpoint.local.job_request import LocalJob
from musterpoint.local.tree import Layout

_NO_WAY_OUT = re.compile(
    r"Temporary failure in name resolution|Name or service not known|Could not resolve host|NameResolutionError"
    r"|Failed to resolve '|getaddrinfo failed|unable to resolve host address|Network is unreachable"
)
_NO_FILE = re.compile(
    r"No such file or directory: '(?P<path>[^'\n]+)'|(?P<other>[^\s:'\"]+): No such file or directory"
)
_TAIL = 64 << 10
"""Bytes at the end of a host's log to look at."""


def advice(reason: str, job: LocalJob, layout: Layout, isolated: bool, cwd: str) -> list[str]:
    """Sentences for a job that failed with ``reason``. ``isolated``: its hosts have no way out of this machine;
    ``cwd``: where the command was typed.
    """
    said = []
    if isolated:
        text = "\n".join((reason, *(_tail(layout.log(host)) for host in job.hosts)))
        found = _NO_WAY_OUT.search(text)
        if found:
            said.append(_way_out(found[0], job))
    missing = _NO_FILE.search(reason)
    if missing:
        path = missing["path"] or missing["other"]
        said += _of_another_host(path, job, layout) or _elsewhere(path, job, cwd)
    return said


def _of_another_host(path: str, job: LocalJob, layout: Layout) -> list[str]:
    """A sentence where some hosts have the file beside their code, and others don't."""
    for folder in ("/opt/ml/code/", os.path.join(job.source_dir, "")):
        path = path.removeprefix(folder)
    if os.path.isabs(path) or os.pardir in path.split(os.sep) or "\0" in path:
        return []
    has = [host for host in job.hosts if os.path.lexists(os.path.join(layout.tree(host), "code", path))]
    if not has or len(has) == len(job.hosts):
        return []
    return [
        f"{shown(path)} is beside the code of {', '.join(has)} only, which wrote it: hosts share no directory, neither "
        "here nor on the platform. Write it on every host, or read it from a place that all of them reach"
    ]


def _way_out(words: str, job: LocalJob) -> str:
    if job.container is not None:
        return (
            f"{words!r}: with --network-isolation the hosts have no way out; leave it out, or bring it as a --channel"
        )
    return (
        f"{words!r}: the hosts of --backend netns have no way out of this machine. Add --internet on, or bring what is "
        "downloaded as --channel NAME=PATH; --backend process has this machine's own network"
    )


def elsewhere(job: LocalJob, cwd: str) -> list[str]:
    """Sentences about relative paths that are arguments or hyperparameters, and exist here but not for the program."""
    said = []
    before = ""
    for word in job.arguments:
        flag, equals, value = word.partition("=")
        path = value if flag.startswith("-") and equals else word
        if "/" in path or os.path.splitext(path)[1] or equals or (before.startswith("-") and "=" not in before):
            said += _elsewhere(path, job, cwd)
        before = word
    for value in job.hyperparameters.values():
        if isinstance(value, str):
            said += _elsewhere(value, job, cwd)
    return list(dict.fromkeys(said))


def _elsewhere(path: str, job: LocalJob, cwd: str) -> list[str]:
    if not path or path.startswith("-") or os.path.isabs(path) or "\0" in path or "://" in path:
        return []
    inside = os.path.normpath(path).partition(os.sep)[0] != os.pardir
    if inside and os.path.exists(os.path.join(job.source_dir, path)):
        return []  # the copy has it, too
    here = next((folder for folder in (cwd, job.source_dir) if os.path.exists(os.path.join(folder, path))), "")
    if not here:
        return []
    whole = os.path.normpath(os.path.join(here, path))
    return [
        f"{shown(path)} is {whole} here, but the program runs in its host's copy of {job.source_dir}, where it isn't: "
        f"give the whole path, or --channel NAME={whole} and read the variable SM_CHANNEL_NAME"
    ]


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
