"""Looks once at ranks that still run, before they end for another one's failure.

It does so where a symptom's cause isn't known, and shortly before the grace of signalled ranks is over. A library that
runs out of patience names a rank that waited; the one that it waited for can be seen until all end.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Mapping

from musterpoint.base import executables
from musterpoint.base.failure import numbers
from musterpoint.core.channel.topics.raised_ranks import LATE, MOST_LATE, TOPIC
from musterpoint.core.diagnosis import standstill
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.supervise.watcher import Watched, Watcher
from musterpoint.embedded.programs.registry import SAMPLER, Texts

if TYPE_CHECKING:
    from musterpoint.core.processes.sidecars import Sidecar

LOOK_SECONDS = 0.8
"""For all ranks here: less than the leader waits."""
MOST_LINES = 8


def py_spy_of(environ: Mapping[str, str]) -> str:
    """Finds py-spy on the job's PATH or beside our Python; ``-``: there is none."""
    own = {"PATH": os.path.dirname(sys.executable)}
    return executables.find_command("py-spy", environ) or executables.find_command("py-spy", own) or "-"


class Latecomers(Watcher):
    """Answers the leader's question, also where nobody is late."""

    def __init__(self, watched: Watched) -> None:
        self._watched, processes = watched, watched.processes
        launches = {rank.number for rank in processes.ranks.up.values() if rank.launches.running}
        ranks = {rank: pid for rank, pid in processes.ranks.live.items() if rank not in launches}
        self._texts, self._over = Texts(), False
        self._sidecar: Sidecar | None = None
        self._result, environ = self._texts.hold("stacks", ""), processes.environ
        request = {"seconds": 0, "ranks": ranks, "py_spy": py_spy_of(environ), "result": self._result, "silent": {}}
        if ranks:
            words = self._texts.own_command(SAMPLER, request)
            try:
                self._sidecar = watched.context.sidecars.start(words, environ, lambda _line: None, self._read)
            except (CannotStart, OSError):
                pass
        self._timer = watched.context.loop.call_later(LOOK_SECONDS if self._sidecar is not None else 0.0, self._end)

    def _read(self, _code: int) -> None:
        self._end()
        self._texts.close()

    def _end(self) -> None:
        """The stacks have been read, or there is no more time."""
        if not self._over:
            self._looked(self._found())
            self.close()

    def _found(self) -> dict[int, Any]:
        """Reads what was found of each rank; nothing where time was too short."""
        try:
            with open(self._result, encoding="utf-8") as file:
                return {int(rank): facts for rank, facts in json.load(file).items()}
        except (OSError, ValueError):
            return {}

    def _alike(self, found: Mapping[int, Any], words_of: Callable[[Any], str]) -> list[tuple[str, list[int]]]:
        """Groups the ranks of which the same is said, behind those words."""
        groups: dict[str, list[int]] = {}
        for rank, facts in sorted(found.items()):
            groups.setdefault(self._watched.context.mask(words_of(facts)), []).append(rank)
        return [each for each in groups.items() if each[0]]

    def _looked(self, found: Mapping[int, Any]) -> None:
        context, processes = self._watched.context, self._watched.processes
        sentences = []
        for words, ranks in self._alike({} if processes.independent else found, standstill.latecomer):
            first = processes.ranks.of_number(ranks[0])
            who = f"rank {ranks[0]} (local rank {first and first.key}) on {context.host} was"
            who = who if len(ranks) == 1 else f"{numbers(ranks)} on {context.host} were"
            sentences.append(f"{who}{LATE}: {words}")
            for rank in ranks:
                context.record("rank-late", rank=rank, where=words)
        self._watched.peers.topic(TOPIC).late(tuple(sentences[:MOST_LATE]))

    def close(self) -> None:
        self._over = True
        self._timer.cancel()
        if self._sidecar is None:
            self._texts.close()
        else:
            self._sidecar.dismiss()  # until it has ended, it may write there


class Overdue(Latecomers):
    """Says where ranks stood that had to be killed, once they were."""

    _last: Mapping[int, Any] | None = None

    def _looked(self, found: Mapping[int, Any]) -> None:
        self._last = found

    def killed(self) -> None:
        self._end()
        live, seconds = self._watched.processes.ranks.live, f"{self._watched.seconds:.3g} s"
        found = {rank: facts for rank, facts in (self._last or {}).items() if rank in live}
        for words, ranks in self._alike(found, standstill.whereabouts)[:MOST_LINES]:
            whose = "its" if len(ranks) == 1 else "their"
            self._watched.context.say(f"{numbers(ranks)} didn't end in {whose} {seconds}: killed {words}")


def watch(watched: Watched) -> Latecomers:
    """Looks at this host's ranks, for the leader or before they are killed."""
    return Overdue(watched) if watched.seconds else Latecomers(watched)
