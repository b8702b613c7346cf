"""Keeps checkpoints beside the ranks: the keeper is a sidecar, and hosts agree on what is whole through the channel."""

import json
import os
import time
from typing import Any, Iterable, Mapping

from musterpoint.base.records import NamedTuple
from musterpoint.base.stop_budget import UPLOAD_RESERVE
from musterpoint.core.channel.peers import Peers
from musterpoint.core.channel.topics.whole_checkpoints import (
    TOPIC,
    HostGone,
    MarkedWhole,
    NoMoreMarks,
    NoMoreParts,
    PartKept,
    Told,
    Word,
)
from musterpoint.core.data.mover_process import Access, access_of, mib
from musterpoint.core.data.moves import Target
from musterpoint.core.data.places import Share
from musterpoint.core.processes.beside import Beside, Task
from musterpoint.core.supervise.state import Outcome
from musterpoint.core.supervise.watcher import Watched, WatchedJob, Watcher
from musterpoint.embedded.programs.registry import KEEPER

LONGEST_LOOK = 10.0
"""Seconds that the keeper has, between two attempts, to look at what the last one left."""
COARSE = 100_000_000
"""Nanoseconds by which a file's time may be behind the clock."""
STOP_FILE = ".muster-stop"
"""Beside the checkpoints while the job stops: when ranks are killed, by the machine's monotonic clock."""


class ToKeep(NamedTuple):
    """The checkpoints that are kept: those in ``directory``, at ``target``.

    ``share``: this host's of the group's. ``is_shared``: the directory is the first host's, which keeps them.
    """

    peers: Peers
    target: Target
    directory: str
    share: Share
    access: Access
    is_shared: bool


class Kept(NamedTuple):
    """What ``outcome.json`` says of checkpoints. ``problem``: why not everything got there; empty: it did."""

    uri: str
    newest: str
    number: int
    kept: int
    bytes: int
    problem: str


class _Others:
    """What the other hosts have told: a keeper that is started anew is told it again."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, str], str] = {}
        self._took: dict[str, list[int]] = {}
        self._words: dict[tuple[str, Any], None] = {}

    def add(self, word: str, about: Any) -> None:
        if word == "part":
            self._parts[about["place"], about["name"]] = about["key"]
        else:
            self._words[word, about] = None

    def settle(self, keys: Iterable[str], family: str, places: list[int]) -> None:
        """Parts are in a manifest, or older than what is in one; ``places`` had parts in it."""
        past = frozenset(keys)
        self._took[family] = places
        self._parts = {which: key for which, key in self._parts.items() if key not in past}

    @property
    def all(self) -> list[tuple[str, Any]]:
        parts = ({"place": place, "name": name, "key": key} for (place, name), key in self._parts.items())
        return [*(("took", each) for each in self._took.items()), *(("part", each) for each in parts), *self._words]


class Keeping(Watcher):
    """Nothing here raises or changes how the job ends."""

    def __init__(self, seen: WatchedJob) -> None:
        peers, target, directory, share, access, is_shared = seen.found["checkpoints"]
        self._seen, self._target, self._share = seen, target, share
        self._directory = os.path.realpath(directory)  # a link that comes when the ranks run isn't followed
        self._access, self._grace, self._is_shared = access, seen.grace, is_shared
        self._topic = peers.topic(TOPIC) if share.hosts > 1 else None
        name = f"what keeps checkpoints at {target.uri}"
        task = Task(KEEPER, name, target.uri, access, self._asked, self._hear, self._last)
        self._beside = Beside(task, seen.loop, seen.sidecars, seen.say, seen.grace)
        self._request: dict[str, Any] = {}
        self._hosts: tuple[str, ...] = ()
        self._clean = self._cut_off = False
        self._others = _Others()
        self._early: list[Told] = []
        self._next: int | None = None
        self._newest, self._number, self._problem, self._warned = "", 0, "", False

    def begins(self, watched: Watched) -> None:
        plan, roster = watched.processes.plan, watched.roster
        ranks = plan.world_size, plan.first_rank, plan.local_ranks
        hosts = tuple(seat.name for seat in roster.group)
        self._seen.loop.call_later(0, lambda: self.begin(ranks, hosts, roster.attempt))

    def begin(self, ranks: tuple[int, int, int], hosts: tuple[str, ...], attempt: int) -> None:
        """Begins, unless it has: ``ranks`` are all of the job, the first one here and how many are here; ``hosts`` are
        the group's, in rank order. To be called in the main thread.
        """
        if self._request or self._hosts:
            return
        self._hosts = hosts
        if self._is_shared:  # the first host keeps them
            self._topic_tell(NoMoreParts())
            return
        self._request = {
            **self._target._asdict(),
            **self._share._asdict(),
            **dict(zip(("ranks", "first", "own"), ranks, strict=True)),
            "names": hosts,
            "directory": self._directory,
            "access": access_of(self._access),
            "attempt": attempt,
            "run": os.urandom(8).hex(),
            "began": time.time_ns() - COARSE,
        }
        if self._topic is not None:
            self._topic.listen(self._on_told)
        early, self._early = self._early, []
        for told in early:
            self._on_told(told)
        self._beside.start()

    def again(self, attempt: int) -> None:
        """Every rank has ended, and another attempt begins with the files that are here. What was saved before it and
        after it makes no checkpoint together, so the keeper notes what there is.
        """
        if not self._beside.runs or self._share.hosts == 1:
            return
        self._next = attempt
        self._send("attempt", attempt)
        self._await_look()
        if self._next is not None:  # it hangs at the store
            self._beside.start()
            self._await_look()
        self._request["attempt"], self._next = attempt, None

    def _await_look(self) -> None:
        loop = self._seen.loop
        until = loop.clock() + LONGEST_LOOK
        while self._next is not None and self._beside.runs and (left := until - loop.clock()) > 0:
            loop.turn(left)

    def forget(self) -> None:
        """The attempt that begins takes another checkpoint than what is here; :meth:`begin` begins anew."""
        self._beside.dismiss()
        self._request, self._hosts = {}, ()
        self._others = _Others()
        if self._topic is not None:
            self._topic.forget()

    def stopping(self, seconds: float) -> None:
        """The ranks are told to stop, and have so many seconds: ``musterpoint.checkpoints.deadline`` reads it."""
        try:
            with open(os.path.join(self._directory, STOP_FILE), "w", encoding="utf-8") as file:
                file.write(f"{time.clock_gettime(time.CLOCK_MONOTONIC) + seconds!r}\n")
        except OSError:
            pass

    def ends(self, outcome: Outcome) -> Mapping[str, Any]:
        """Sends the last whole checkpoint. After a stop it gets the rest of the platform's grace, less
        :data:`~musterpoint.base.stop_budget.UPLOAD_RESERVE`.
        """
        # a stop is no failure where every rank here has saved what it had and ended with 0
        self._clean, seconds = not outcome.code or (outcome.failure is None and not outcome.cut_off), 0.0
        self._cut_off = outcome.cut_off and not self._clean
        if self._request:
            self._seen.signals.route_to(self._beside.on_signal)
            if self._topic is not None:
                self._topic.wait()
            seconds = self._beside.finish(self._seen.left(outcome))
        kept = self._kept()
        self._seen.record("checkpoints-over", seconds=round(seconds, 3), **kept._asdict())
        if kept.problem and not self._beside.why_not:
            self._seen.say(f"warning: checkpoints at {kept.uri}: {kept.problem}")
        if self._topic is not None:
            self._tell_end(kept.problem[:2000])
        self._beside.close()
        try:
            os.unlink(os.path.join(self._directory, STOP_FILE))
        except OSError:
            pass
        return {"checkpoints": kept._asdict()}

    def _kept(self) -> Kept:
        over = self._beside.over or {}
        problem = over.get("problem") or self._beside.why_not or self._problem
        if not self._beside.is_settled and self._request:
            problem = problem or "there was no more time"
        if over.get("left") and not problem:
            problem = f"{', '.join(over['left'][:3])} didn't get there: there was no more time"
        counts = over.get("checkpoints", 0), over.get("bytes", 0)
        return Kept(self._target.uri, self._newest, self._number, *counts, problem)

    # -- the keeper --

    def _asked(self) -> dict[str, Any]:
        told = self._others.all + ([("attempt", self._next)] if self._next is not None else [])
        return {**self._request, "told": told}

    def _last(self, seconds: float) -> str:
        return f"finish {json.dumps({'seconds': seconds, 'clean': self._clean})}"

    def _send(self, word: str, about: Any) -> None:
        self._beside.send(f"{word} {json.dumps(about)}")

    def _hear(self, fact: dict[str, Any]) -> None:
        if "problem" in fact:
            self._problem = fact["problem"]
            self._seen.say(f"warning: keeping checkpoints at {self._target.uri}: {fact['problem']}")
        elif "attempt" in fact:
            self._next = None if fact["attempt"] == self._next else self._next
        elif "marked" in fact:
            self._topic_tell(MarkedWhole(fact["marked"], fact["of"]))
        elif "part" in fact:
            self._topic_tell(PartKept(fact["part"]["name"], fact["part"]["key"]))
        elif "finished" in fact:
            self._tell_end()
        elif "whole" in fact:
            self._on_whole(fact)
        elif "uploaded" in fact:
            self._on_uploaded(fact)

    def _tell_end(self, problem: str = "") -> None:
        """Nothing more comes from this host."""
        self._topic_tell(NoMoreParts(problem, self._cut_off) if self._share.place else NoMoreMarks())

    def _topic_tell(self, message: Word) -> None:
        leads = not self._share.place
        if self._topic is None or leads != isinstance(message, (MarkedWhole, NoMoreMarks)):
            return
        try:
            self._topic.tell(message)
        except ValueError as error:  # a name that is no Unicode, or too long
            self._problem = f"the other hosts can't be told of {next(iter(message), '')!r}: {error}"

    def _on_whole(self, fact: Mapping[str, Any]) -> None:
        self._newest, self._number, self._problem = fact["whole"], fact["number"], ""
        self._others.settle(fact["past"], *fact["took"])
        self._seen.say(
            f"checkpoint {fact['number']} is whole at {self._target.uri}: {fact['whole']} ({mib(fact['bytes'])})"
        )
        self._seen.record("checkpoint-kept", name=fact["whole"], number=fact["number"], bytes=fact["bytes"])

    def _on_uploaded(self, fact: Mapping[str, Any]) -> None:
        seconds = fact["seconds"]
        self._seen.record("checkpoint-uploaded", name=fact["uploaded"], bytes=fact["bytes"], seconds=seconds)
        if not self._warned and seconds > self._grace - UPLOAD_RESERVE and not self._beside.is_finishing:
            self._warned = True
            self._seen.say(
                f"warning: {fact['uploaded']} took {seconds:.0f} s to get to {self._target.uri}, and a stop leaves "
                f"{self._grace:.0f} s: one that is saved in a stop won't get there, the one before is used then"
            )

    # -- the other hosts --

    def _on_told(self, told: Told) -> None:
        if not self._hosts:
            self._early.append(told)
        elif told.host in self._hosts:
            place, message = self._hosts.index(told.host), told.message
            if isinstance(message, PartKept):
                self._hand_on("part", {"place": place, "name": message.name, "key": message.key})
            elif isinstance(message, MarkedWhole):
                self._hand_on("marked", (message.name, message.attempt))
            else:
                lost = isinstance(message, HostGone) or (isinstance(message, NoMoreParts) and message.cut_off)
                self._hand_on("lost" if lost else "ended", place)

    def _hand_on(self, word: str, about: Any) -> None:
        self._others.add(word, about)
        self._send(word, about)


watch = Keeping
