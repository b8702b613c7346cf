"""Launches of ours that the job's program starts: each is lent what it needs, and tells how it ended.

A launch is an entry point of its own: it meets its hosts itself and watches its ranks. At the control socket it says
``launch PID`` and gets what this job lends, as JSON; then ``event JSON`` for the timeline, and at its end ``ended
JSON``. Its connection lives as long as it does. A launch that comes to nothing says ``ended JSON`` alone.
"""

from __future__ import annotations

import json
from typing import Any, Sequence

from musterpoint.base.failure import Failure
from musterpoint.base.untrusted import checked, printable, read_json
from musterpoint.core.processes.control_socket import Connection
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.hidden_work import HiddenWork
from musterpoint.core.supervise.rank_ends import written
from musterpoint.core.supervise.rank_table import Rank, Ranks

BEGIN, EVENT, ENDED = "launch ", "event ", "ended "
_MOST_WARNINGS, _LONGEST_WARNING = 16, 2000


class Launches:
    """The launches of one attempt, counted: the same number on all hosts is the same launch."""

    def __init__(self, context: SupervisorContext, ranks: Ranks, hidden: HiddenWork) -> None:
        self._context, self._ranks, self._hidden = context, ranks, hidden
        self._begun = 0
        self._running: dict[Connection, tuple[int, Rank | None]] = {}

    def take(self, connection: Connection, line: str) -> bool:
        """Takes the connection of a launch by its first line; False: it is none, or the job lends nothing.

        Raises:
            ValueError: a launch says no such thing.
        """
        if line.startswith(ENDED):
            self._tells(connection, line)
            return True
        pid = line.removeprefix(BEGIN).strip()
        if self._context.lend is None or not pid.isdecimal() or len(pid) > 10:
            return False
        lent = self._context.lend(self._begun + 1, tuple(running for running, _ in self._running.values()))
        if "refused" not in lent:
            self._begun += 1
            rank = self._ranks.above(int(pid))
            if rank is not None:
                for stream in self._context.pump.streams_of(rank.number):
                    stream.has_launch()
                if not rank.launches.running:
                    rank.launches.ended.clear()  # something runs after those
                rank.launches.running.add(int(pid))
            self._running[connection] = int(pid), rank
            self._context.record("launch-began", rank=rank and rank.number, pid=int(pid), launch=self._begun)
        connection.route_to(lambda _words, said: self._tells(connection, said), lambda: self._over(connection))
        connection.send(json.dumps(lent, separators=(",", ":")))
        return True

    def _tells(self, connection: Connection, line: str) -> None:
        if line.startswith(EVENT):
            name, facts = checked(read_json(line.removeprefix(EVENT)))
            self._context.record(printable(str(name), 64), **{str(fact): value for fact, value in facts.items()})
            return
        if not line.startswith(ENDED):
            raise ValueError(f"{line[:20]!r} is nothing that a launch says")
        value = read_json(line.removeprefix(ENDED))
        if not isinstance(value, dict) or not isinstance(value.get("warnings"), list):
            raise ValueError("expected an object with failure and warnings")
        if isinstance(told := value.get("failure"), dict) and not told.get("host"):
            told["host"] = self._context.host  # it ended before it knew where it runs
        failure = None if told is None else Failure.from_wire(told)
        self._context.record("launch-ended", code=failure.code if failure else 0)
        rank = self._ranks.above(int(value["pid"]))
        if rank is not None:
            rank.launches.ended.append(failure and failure._replace(reason=self._context.mask(failure.reason)))
            rank.launches.written = written(rank, self._context.pump)
        texts = [printable(str(text), _LONGEST_WARNING) for text in value["warnings"][:_MOST_WARNINGS]]
        self._hidden.told_by_launches += texts
        connection.send("heard")

    def _over(self, connection: Connection) -> None:
        pid, rank = self._running.pop(connection, (0, None))
        if rank is None:
            return
        rank.launches.running.discard(pid)
        if rank.launches.owed and not rank.launches.running and self._ranks.is_expected(rank):
            self._ranks.tell(rank, rank.launches.owed)


def encode_end(pid: int, failure: Failure | None, warnings: Sequence[str] = ()) -> str:
    """The line by which the launch ``pid`` tells how it ended. ``failure``: None where it went well or was stopped."""
    told: dict[str, Any] = {"pid": pid, "failure": failure and failure.to_wire(), "warnings": [*warnings]}
    return ENDED + json.dumps(told, separators=(",", ":"))
