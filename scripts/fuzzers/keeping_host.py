"""One host of a job that keeps checkpoints, without ranks: what keeps them, and a channel to the other host.

Started by :mod:`fuzzers.checkpoints_of_hosts`. ``sys.argv[1]`` is JSON: place, directory, uri, keep, from and to
(descriptors of pipes from and to the other host), operations (of the first keeper before it is killed; 0: it isn't),
below, jumps (seconds by which the clock is off at first, and by which it jumps for the keeper). Lines on stdin are what
happens: ``begin``, ``kill`` (its keeper), ``attempt N``, ``finish`` (a rank was killed), ``finish stopped`` (each ended
with 0) or ``finish clean`` (and the job went well, too). Facts go to stdout.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fuzzers.checkpoints import dying
from musterpoint.base.failure import Failure
from musterpoint.base.lines import Lines
from musterpoint.base.loop import Loop
from musterpoint.core.channel import codec, wire
from musterpoint.core.channel.topics.whole_checkpoints import TOPIC
from musterpoint.core.data.mover_process import Access
from musterpoint.core.data.moves import Target
from musterpoint.core.data.places import Share
from musterpoint.core.processes.sidecars import Sidecars
from musterpoint.core.supervise.state import Outcome
from musterpoint.core.supervise.watchers.kept_checkpoints import Keeping, ToKeep

HOSTS = ("a", "b")
FAILED = Failure("a", 1, "user", "user", "ValueError")
ENDS = {"clean": Outcome(0), "stopped": Outcome(1, FAILED), "": Outcome(1, FAILED, cut_off=True)}
TYPES = {each.__name__: each for each in (*TOPIC.from_workers, *TOPIC.from_leader)}


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


class Side:
    """The channel to the other host, as a topic's half sees it."""

    leader, group, loss = HOSTS[0], frozenset(HOSTS), "it was killed"

    def __init__(self, me: str, link: int) -> None:
        self.me, self._link = me, link
        self.is_alone, self.away = False, frozenset[str]()

    def check(self, message: Any) -> None:
        codec.check_bounds(message, wire.LEADER_LIMIT)

    def post(self, message: Any) -> None:
        try:
            os.write(self._link, json.dumps([type(message).__name__, message]).encode() + b"\n")
        except OSError:
            pass  # the other host has just been killed

    broadcast = post


class Killing(Sidecars):
    """The first keeper is killed before one of its operations."""

    def __init__(self, loop: Loop, operations: int, below: str, jumps: int) -> None:
        super().__init__(loop)
        self._operations, self._below, self._jumps = operations, Path(below), jumps

    def start(self, argv: Any, *more: Any) -> Any:
        operations, self._operations = self._operations, 0
        return super().start(dying(argv, operations, self._below, self._jumps), *more)


def main(asked: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop, place = Loop(), asked["place"]
    for descriptor in (asked["from"], asked["to"]):
        os.set_inheritable(descriptor, False)
    me, other = HOSTS[place], HOSTS[1 - place]
    side: Any = Side(me, asked["to"])
    half: Any = (TOPIC.worker if place else TOPIC.leader)(side)

    def heard(line: str) -> None:
        name, fields = json.loads(line)
        message = TYPES[name](*fields)
        half.hear(message, len(line)) if place else half.hear(other, message)
        say(heard=name)

    def alone() -> None:
        side.is_alone, side.away = True, frozenset((other,))
        half.alone() if place else half.gone(other, side.loss)

    seen: Any = SimpleNamespace(
        loop=loop,
        sidecars=Killing(loop, asked["operations"], asked["below"], asked.get("jumps", 0)),
        say=lambda words: say(said=words),
        record=lambda what, **more: say(event=what, number=more.get("number", 0)),
        signals=SimpleNamespace(route_to=lambda _: None),
        grace=30.0,
        left=lambda _: None,
    )
    now = time.time_ns
    time.time_ns = lambda: now() + asked.get("jumps", 0) * 10**9
    target, access = Target(asked["uri"], "j", asked["keep"]), Access(os.environ)
    peers: Any = SimpleNamespace(topic=lambda _: half)
    seen.found = {"checkpoints": ToKeep(peers, target, asked["directory"], Share(place, 2), access, False)}
    keeping = Keeping(seen)
    words: list[str] = []

    def word(line: str) -> None:
        if line == "kill":  # also while it finishes
            for pid in seen.sidecars.pids:
                os.kill(pid, signal.SIGKILL)
            say(did=line)
        else:
            words.append(line)

    acts: dict[str, Callable[[str], object]] = {
        "begin": lambda _: keeping.begin((2, place, 1), HOSTS, 0),
        "attempt": lambda number: keeping.again(int(number)),
        "finish": lambda how: say(kept=keeping.ends(ENDS[how])["checkpoints"]),
    }
    Lines(loop, asked["from"], heard, alone)
    Lines(loop, os.dup(0), word, lambda: os._exit(0))
    while True:
        loop.turn()
        while words:
            what, _, how = words.pop(0).partition(" ")
            acts[what](how)
            say(did=what)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
