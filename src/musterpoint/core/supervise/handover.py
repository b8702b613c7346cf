"""How a nested launcher (ours, run as the job's program) hands its plan over to the supervisor above it.

The inner one (``python launcher.py`` as entry point of ``train``) finds the outer one's control socket in
``MUSTER_OUTER``, gets the roster, plans with it, hands the plan and its environment over, and waits for the code. So
there is one roll call, one channel, one stop budget and one failure file. One that can't plan reports why, then ends
with a code of ours.
"""

from __future__ import annotations

import json
import socket
from typing import Any, Mapping

from musterpoint.base.exit_codes import FETCH, INTERNAL, LAUNCHER, ROLLCALL, USAGE
from musterpoint.base.failure import Failure
from musterpoint.base.settings import OUTER, SOCKET_TOKEN
from musterpoint.core.launch.plan import LaunchPlan
from musterpoint.core.processes.control_socket import address_of
from musterpoint.core.rollcall.roster import Roster

HELLO = "inner 1"
FAILED = "failed "
"""Begins the line in which a launcher without a plan reports its failure."""
RAISED = "raised "
"""Begins the line in which a rank tells of the exception that ends it."""
PLANNED = "MUSTER_PLANNED"
"""Names of the variables that its plan set (comma-separated)."""


OWN_CODES = frozenset({USAGE, ROLLCALL, INTERNAL, FETCH, LAUNCHER})


def encode(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def encode_roster(roster: Roster) -> str:
    """``roster`` with this host's name, as :meth:`Outer.offer` reads it."""
    return encode({**roster.to_wire(), "me": roster.me})


def plan_from(line: str) -> tuple[LaunchPlan, dict[str, str]]:
    """A handed-over plan and the environment its processes start from.

    Raises:
        ValueError: the line is something else.
    """
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict) or not isinstance(value.get("environ"), dict):
        raise ValueError("expected an object with plan and environ")
    environ = {str(name): str(text) for name, text in value["environ"].items()}
    return LaunchPlan.from_wire(value.get("plan")), environ


def failure_from(line: str) -> Failure:
    """The failure that a launcher reports.

    Raises:
        ValueError: the line is something else, or the code is none that a launcher of ours ends with.
    """
    try:
        failure = Failure.from_wire(json.loads(line.removeprefix(FAILED)))
    except RecursionError:
        raise ValueError("expected a failure") from None
    if failure.code not in OWN_CODES:
        raise ValueError(f"expected a code of musterpoint's own, got {failure.code}")
    return failure


class Outer:
    """The inner launcher's end. ``None`` from :meth:`find` where there is no supervisor above us."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._file = sock.makefile("rb")

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> Outer | None:
        address = environ.get(OUTER, "")
        if not address:
            return None
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(address_of(address))
        except OSError:
            sock.close()
            return None  # a variable left over from a job that is gone
        try:
            sock.sendall(environ.get(SOCKET_TOKEN, "").encode("utf-8", "surrogateescape") + b"\n")
        except OSError:
            pass  # the job above us takes no more connections: offer() gives None
        return cls(sock)

    def offer(self) -> Roster | None:
        """The outer one's roster; None if it takes no plan (any more)."""
        line = self._ask(HELLO)
        value = json.loads(line) if line else None
        return Roster.from_wire(value, value["me"]) if isinstance(value, dict) else None

    def hand_over(self, plan: LaunchPlan, environ: Mapping[str, str]) -> int | None:
        """Hands the plan over and waits for its end. None when the outer one went away without a code."""
        line = self._ask(encode({"plan": plan.to_wire(), "environ": dict(environ)})).split()
        return int(line[1]) if len(line) == 2 and line[0] == b"code" and line[1].isdigit() else None

    def report(self, failure: Failure) -> None:
        """Reports why no plan comes. Returns when that was received: only then may this process end."""
        self._ask(FAILED + encode(failure._asdict()))

    def _ask(self, text: str) -> bytes:
        """Sends a line and returns the answer; empty where the outer one is gone."""
        try:
            self._socket.sendall(text.encode() + b"\n")
            return self._file.readline()
        except OSError:
            return b""

    def close(self) -> None:
        self._file.close()
        self._socket.close()
