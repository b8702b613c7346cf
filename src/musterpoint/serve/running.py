"""How others find a running server: two files in its data directory, and the lines that it prints.

One file has what a client needs, and stays when the server has ended: the next one takes the same port. The other one
is locked while a server lives, and says so once it answers.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.serve import sdk_defaults
from musterpoint.serve.settings import Settings

FILE, LOCK = "server.json", "server.lock"
ANSWERS = b"answers\n"
"""What the locked file has once the server answers."""
READY = "# ready: "
"""How the line begins that says that the server answers."""


def lock(data: str) -> int:
    """Takes the directory ``data`` for a server of this process; the descriptor that keeps it.

    Raises:
        UsageError: another one has it.
    """
    held = os.open(os.path.join(data, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    while not _locked(held, fcntl.LOCK_EX):
        if not _locked(held, fcntl.LOCK_SH):  # else it is one that asks whether a server lives, for a moment
            os.close(held)
            raise UsageError(f"--data={data}: another muster serve uses this directory; end it, or give another")
    os.truncate(held, 0)
    return held


def read_running(data: str) -> Mapping[str, str]:
    """What a client of the server that runs with ``data`` has to export.

    Raises:
        UsageError: no server answers there.
    """
    found = read(data)
    asked = os.open(os.path.join(data, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if _locked(asked, fcntl.LOCK_SH):
            start = f"muster serve --data {shlex.quote(data)}"
            raise UsageError(f"--data={data}: the muster serve of this directory has ended; start it again: {start}")
        if os.read(asked, len(ANSWERS)) != ANSWERS:
            raise UsageError(f"--data={data}: the server is starting; ask again once it has said that it is ready")
    finally:
        os.close(asked)
    return found


def _locked(held: int, how: int) -> bool:
    try:
        fcntl.flock(held, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write(settings: Settings) -> None:
    """Writes where the server is, and with which credentials, for this user only."""
    path = os.path.join(settings.data, FILE)
    with open(os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(settings.exported, file, indent=1)
    os.replace(path + ".part", path)


def read(data: str) -> Mapping[str, str]:
    """What a client of the last server of ``data`` has to export.

    Raises:
        UsageError: no server has been started there.
    """
    try:
        with open(os.path.join(data, FILE), encoding="utf-8") as file:
            found: dict[str, str] = json.load(file)
    except FileNotFoundError:
        raise UsageError(f"--data={data}: no muster serve has been started with this directory") from None
    return found


def former_port(data: str) -> int:
    """The port of the last server of this directory; 0: there was none."""
    try:
        return int(read(data)["AWS_ENDPOINT_URL"].rpartition(":")[2])
    except (UsageError, ValueError, KeyError):
        return 0


def exports(variables: Mapping[str, str]) -> str:
    """The variables as lines of a shell."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def read_exports(text: str) -> dict[str, str]:
    """What :func:`exports` wrote."""
    lines = (line.removeprefix("export ").partition("=") for line in text.splitlines() if line.startswith("export "))
    return {name: shlex.split(value)[0] for name, _, value in lines}


def say_ready(settings: Settings) -> None:
    """Prints, and writes, what a client needs."""
    write(settings)
    sdk_defaults.write(settings)
    with open(os.path.join(settings.data, LOCK), "r+b") as file:
        file.write(ANSWERS)
    print(exports(settings.exported), end="", flush=True)
    print(f"# page: {settings.page}", flush=True)
    how = {"process": "processes of this machine", "netns": "network namespaces", "docker": "containers"}
    print(
        f"{READY}{settings.url}, jobs' hosts are {how[settings.backend]}; everything is in {settings.data}", flush=True
    )
