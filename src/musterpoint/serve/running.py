"""How others find a running server: a file in its data directory, and the lines that it prints."""

from __future__ import annotations

import json
import os
import shlex
from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.serve import sdk_defaults
from musterpoint.serve.settings import Settings

FILE = "server.json"
READY = "# ready: "
"""How the line begins that says that the server answers."""


def write(settings: Settings) -> None:
    """Writes where the server is, and with which credentials, for this user only."""
    path = os.path.join(settings.data, FILE)
    with open(os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(settings.exported, file, indent=1)
    os.replace(path + ".part", path)


def read(data: str) -> Mapping[str, str]:
    """What a client of the server of ``data`` has to export.

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
    print(exports(settings.exported), end="", flush=True)
    print(f"# page: {settings.page}", flush=True)
    how = {"process": "processes of this machine", "netns": "network namespaces", "docker": "containers"}
    print(
        f"{READY}{settings.url}, jobs' hosts are {how[settings.backend]}; everything is in {settings.data}", flush=True
    )
