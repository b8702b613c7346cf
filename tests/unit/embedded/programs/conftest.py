"""The supervisor's side of a control socket, for programs that come to it; programs of packages that stand in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Callable

from musterpoint.base.loop import Loop
from musterpoint.core.processes.control_socket import Connection, ControlSocket
from musterpoint.embedded.programs.registry import Texts

from ...turning import turn_until


class Listening:
    """A loop with a control socket, and the texts of our programs."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.control_socket = ControlSocket(self.loop, self.on_connection)
        self.texts = Texts()
        self.said: list[object] = []

    def on_connection(self, connection: Connection) -> None:
        raise NotImplementedError

    def until(self, done: Callable[[], bool]) -> None:
        turn_until(self.loop, done, self.said)

    def close(self) -> None:
        self.control_socket.close()
        self.texts.close()
        self.loop.close()


def program_of(root: Path, site: Path, name: str) -> list[str]:
    """The words that run a program of ours with the packages of the folder ``site``, behind all others."""
    run = (
        f"import runpy, sys; sys.path.append({str(site)!r}); sys.argv[:1] = [];"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    return [sys.executable, "-c", run, str(root / "src/musterpoint/embedded/programs" / name)]
