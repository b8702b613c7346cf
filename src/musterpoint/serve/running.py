"""The data directory of a server. One file in it leads others to the server, and is locked while that lives."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import stat
from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.local.tree import write_text
from musterpoint.serve.settings import ACCOUNT, Settings

FILE = "server.json"
"""Has a client's variables, once the server answers; empty before."""
READY = "# ready: "
"""Begins the line that says that the server answers."""
_SDK_DEFAULTS = """SchemaVersion: "1.0"
SageMaker:
  PythonSDK:
    Modules:
      TelemetryOptOut: true
      Session:
        DefaultS3Bucket: sagemaker-{region}-{account}
"""
"""Without a default bucket SageMaker's SDKs ask STS for the account, at AWS's own address whatever AWS_ENDPOINT_URL
says, and telemetry goes there, too. A user's own file comes after this one, and wins.
"""


def take(data: str) -> int:
    """Takes the directory ``data`` for a server of this process; returns its lock's descriptor.

    Raises:
        UsageError: another server has it, others may look into it, or it can't be written.
    """
    try:
        return _take(data)
    except OSError as error:
        what = f": {error.filename}" if error.filename not in (None, data) else ""
        raise UsageError(f"--data={data} can't be used{what}: {error.strerror}; give another directory") from None


def _take(data: str) -> int:
    os.makedirs(data, mode=0o700, exist_ok=True)
    facts = os.stat(data)
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        raise UsageError(
            f"--data={data}: others may look into it (mode {stat.S_IMODE(facts.st_mode):o}, owner {facts.st_uid}), and "
            "the jobs' files and keys will lie there: chmod 700 it, or give another"
        )
    held = os.open(os.path.join(data, FILE), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(held).st_mode):
        os.close(held)
        raise UsageError(f"--data={data}: {FILE} in it is no file of a muster serve; give another directory")
    while not _locked(held, fcntl.LOCK_EX):
        if not _locked(held, fcntl.LOCK_SH):  # else it is one that asks whether a server lives, for a moment
            os.close(held)
            raise UsageError(f"--data={data}: another muster serve uses this directory; end it, or give another")
    os.truncate(held, 0)
    write_text(os.path.join(data, ".gitignore"), "*\n")
    return held


def read_running(data: str) -> Mapping[str, str]:
    """The variables for clients of the server that runs with ``data``.

    Raises:
        UsageError: no server answers there.
    """
    try:
        asked = os.open(os.path.join(data, FILE), os.O_RDONLY | os.O_NONBLOCK)  # a pipe would never open
    except FileNotFoundError:
        raise UsageError(f"--data={data}: no muster serve has been started with this directory") from None
    except OSError as error:
        raise UsageError(f"--data={data}: {FILE} in it can't be read: {error.strerror}") from None
    with open(asked, encoding="utf-8") as file:
        if _locked(asked, fcntl.LOCK_SH):
            start = f"muster serve --data {shlex.quote(data)}"
            raise UsageError(f"--data={data}: the muster serve of this directory has ended; start it again: {start}")
        text = file.read()
    with contextlib.suppress(ValueError):
        found: dict[str, str] = json.loads(text)
        return found
    raise UsageError(f"--data={data}: the server is starting; ask again once it has said that it is ready")


def _locked(held: int, how: int) -> bool:
    try:
        fcntl.flock(held, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def exports(variables: Mapping[str, str]) -> str:
    """The variables as lines of a shell."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def read_exports(text: str) -> dict[str, str]:
    """The variables that :func:`exports` wrote."""
    lines = (line.removeprefix("export ").partition("=") for line in text.splitlines() if line.startswith("export "))
    return {name: shlex.split(value)[0] for name, _, value in lines}


def say_ready(settings: Settings, held: int) -> None:
    """Prints a client's variables, and writes them into the ``held`` file, for this user only."""
    write_text(settings.sdk_file, _SDK_DEFAULTS.format(region=settings.region, account=ACCOUNT))
    os.pwrite(held, json.dumps(settings.exported).encode(), 0)
    print(exports(settings.exported), end="", flush=True)
    print(f"# page: {settings.page}", flush=True)
    how = {"process": "processes of this machine", "netns": "network namespaces", "docker": "containers"}
    print(
        f"{READY}{settings.url}, jobs' hosts are {how[settings.backend]}; their files are in {settings.data}",
        flush=True,
    )
