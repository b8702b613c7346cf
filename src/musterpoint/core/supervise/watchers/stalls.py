"""Finds jobs that stand still: no rank of any host prints anything, and none does anything (``--stall-timeout``).

Without the option it only says, once, where ranks stand that have printed nothing for long and used no processor.

Silence alone ends nothing. When all hosts are quiet, each looks twice at its ranks: their stacks, and whether they used
the processor, read or wrote meanwhile. The leader judges.
"""

from __future__ import annotations

import base64
import json
import os
import time
from typing import TYPE_CHECKING, Any

from musterpoint.base import exit_codes
from musterpoint.base.failure import MOST_REASON, Failure, fit
from musterpoint.base.loop import Timer
from musterpoint.base.position import Position
from musterpoint.base.untrusted import clip
from musterpoint.core.channel.peers import AllLooked, LookAsked, Stalled
from musterpoint.core.channel.topics import quiet_hosts
from musterpoint.core.diagnosis import standstill
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.supervise.events import Broken
from musterpoint.core.supervise.watcher import UNASKED_SECONDS, Watched, Watcher
from musterpoint.core.supervise.watchers.flight_dumps import keep_record
from musterpoint.core.supervise.watchers.latecomers import py_spy_of
from musterpoint.embedded.programs.registry import SAMPLER, Texts

if TYPE_CHECKING:
    from musterpoint.core.processes.sidecars import Sidecar

WINDOW_SECONDS = 10.0
"""Between the two looks at the ranks; less where the stall timeout is shorter."""
IDLE_SECONDS = 60.0
"""For which no rank may have used a processor before ranks are looked at that nobody asked to be watched."""
LOOK_SECONDS = 600.0
"""For a look at all ranks of a host: py-spy takes seconds for each, and a process may be stuck in the kernel."""
STACKS = "stacks.txt"


class StallWatch(Watcher):
    """This host's part. The rules have the stall timeout, and whether a stall ends the job, which goes through
    ``watched.emit``.
    """

    def __init__(self, watched: Watched) -> None:
        context, rules = watched.context, watched.rules
        self._context, self._peers = context, watched.peers
        self._processes, self._roster = watched.processes, watched.roster
        self._seen = watched.roster
        self._asked = rules.stall_timeout is not None
        self._seconds = rules.stall_timeout or UNASKED_SECONDS
        self._ends, self._emit = self._asked and rules.stall_ends, watched.emit
        self._quiet = self._closed = False
        self._began = time.monotonic()
        self._since = self._began if self._asked else 0.0
        self._facts: dict[str, Any] = {}
        self._records: dict[str, bytes] = {}
        self._said = ""
        self._looked_at = float("inf")
        self._places: tuple[Position, ...] = ()
        self._looks = 0
        self._calls = standstill.LongCalls()
        self._sampler: Sidecar | None = None
        self._texts = Texts()
        self._timer = context.loop.call_later(self._seconds if self._asked else 0.0, self._check)
        self._look_timer: Timer | None = None

    @property
    def _silent_for(self) -> float:
        """Seconds since a rank here printed something, or since the last look: none while a launch of ours runs in the
        program, which watches its own ranks.
        """
        if any(rank.launches.running for rank in self._processes.ranks.up.values()):
            return 0.0
        return time.monotonic() - max(self._since, self._context.pump.last_output)

    def _check(self) -> None:
        """Reports the beginning or the end of silence, and comes again when that may change."""
        left = self._seconds - self._silent_for
        quiet = left <= 0 and not self._processes.is_ending
        if quiet != self._quiet:
            self._quiet = quiet
            self._peers.topic(quiet_hosts.TOPIC).quiet(quiet)
        wait = min(WINDOW_SECONDS, self._seconds) if quiet else max(left, 0.05)
        self._timer = self._context.loop.call_later(wait, self._check)

    def look(self) -> None:
        """Starts the program that looks at the ranks here; :meth:`_looked` gets what it finds."""
        ranks, printing = self._processes.ranks.live, self._silent_for < self._seconds
        if self._sampler is not None or self._processes.is_ending or printing:
            self._answer(None)
            return
        if not ranks:
            self._answer(())
            return
        began, result = time.monotonic(), self._texts.hold("stacks", "")
        environ = self._processes.environ
        request = {
            "seconds": min(WINDOW_SECONDS, self._seconds),
            "idle": 0.0 if self._asked else IDLE_SECONDS,
            "own": os.getpid(),
            "ranks": ranks,
            "py_spy": py_spy_of(environ),
            "gpus": self._texts.path("gpu_activity"),
            "result": result,
            "silent": {n: self._facts[str(n)]["silent"] for n in ranks if "silent" in self._facts.get(str(n), {})},
        }
        complaint: list[str] = []
        try:
            self._sampler = self._context.sidecars.start(
                self._texts.own_command(SAMPLER, request),
                environ,
                complaint.append,
                lambda code: self._looked(began, result, code, complaint),
            )
        except (CannotStart, OSError) as error:
            self._context.say(f"warning: the stacks of the ranks can't be read: {error}")
            self._answer(None)
        else:
            self._look_timer = self._context.loop.call_later(LOOK_SECONDS, self._sampler.dismiss)

    def _looked(self, began: float, result: str, code: int, complaint: list[str]) -> None:
        self._sampler = None
        if self._look_timer is not None:
            self._look_timer.cancel()
        if self._closed:
            return
        if self._context.pump.last_output > began or self._processes.is_ending:
            self._answer(None)
            return
        try:
            with open(result, encoding="utf-8") as file:
                self._facts = json.load(file)
            if not self._facts:  # something here has used a processor
                self._answer(None)
                return
        except (OSError, ValueError):
            said = f": {complaint[-1]}" if complaint else ""
            self._context.say(f"warning: what reads the stacks of the ranks has ended with {code}{said}")
            self._answer(None)
            return
        self._read_flight_records()
        self._calls.looked(self._facts)
        raised, aside = self._processes.raised.sentence, self._processes.raised.aside
        found = [
            standstill.with_raised(standstill.position(rank, facts, self._roster.world_size), raised(rank), aside(rank))
            for rank, facts in zip(map(int, self._facts), self._facts.values())
        ]
        if self._context.pump.last_output > self._looked_at:
            found = [standstill.got_on(one) for one in found]
        self._looked_at = time.monotonic()
        mask = self._context.mask
        self._answer(tuple(one._replace(words=mask(one.words), spot=mask(one.spot)) for one in found))

    def _answer(self, positions: tuple[Position, ...] | None) -> None:
        self._quiet = False
        self._since = time.monotonic()
        self._peers.topic(quiet_hosts.TOPIC).looked(positions)

    # on the leader

    def judge(self, event: AllLooked) -> None:
        """Every host has looked: says who gets on, or that the job stands still."""
        if not event.positions or self._processes.is_ending:
            self._places = ()
            return
        self._seen = self._roster.seen_by(event.world)
        positions = [*event.positions, *self._ended(event.positions)]
        idle = "" if self._asked else f", and none has used a processor for {IDLE_SECONDS:g} s"
        of_role = f" of {self._seen.seat.role}" if self._seen.seat.role else ""
        silence = f"no output of any rank{of_role} for {self._seconds:g} s{idle}"
        places = standstill.place_of(event.positions)
        self._places, self._looks = places, self._looks + 1 if places == self._places else 1
        if not standstill.stands_still(event.positions, self._looks):
            if not self._asked:
                return
            self._say_once(f"{silence}; {standstill.busy_sentence(event.positions)}, busy: the job goes on")
            return
        found = standstill.stall(positions)
        raised = min((one for one in event.positions if one.raised), default=None)
        printed = b"\n".join(map(self._processes.raised.printed, self._processes.ranks.live))
        sentence = "; ".join(filter(None, (found.sentence, standstill.why(printed))))
        self._stall(f"{silence}: {sentence}", found.suspect, raised)

    def _stall(self, sentence: str, suspect: int | None, raised: Position | None = None) -> None:
        """The job stands still: all hosts are told, and it ends or not. ``raised``: a rank that may be the cause."""
        sentence = clip(sentence, MOST_REASON)
        failure = self._failure(sentence, suspect if raised is None else raised.rank, raised)
        if not self._ends and sentence == self._said:
            return
        self._said = sentence
        whose = {} if failure.rank is None else {"of": failure.host, "rank": failure.rank}
        self._context.record("stalled", **whose, ends=self._ends, reason=sentence)
        self._peers.topic(quiet_hosts.TOPIC).stalled(self._what_follows(sentence))
        if self._ends:
            self._emit(Broken(failure))

    def _what_follows(self, sentence: str) -> str:
        """Adds what becomes of the job, for hosts that go by this one's options."""
        if self._ends:
            return sentence
        if self._asked:
            return f"the job stands still: {sentence}; it goes on (--on-stall dump)"
        return f"{sentence}; the job goes on: --stall-timeout SECONDS ends one that stands still"

    def _say_once(self, text: str) -> None:
        """Says what wasn't said at the look before this one."""
        if text != self._said:
            self._said = text
            self._context.say(text)

    def _ended(self, positions: tuple[Position, ...]) -> list[Position]:
        """The ranks that have ended already: well, or the job would be over."""
        missing = set(range(self._seen.world_size)) - {one.rank for one in positions}
        return [Position(rank, "stopped", "has ended with 0") for rank in sorted(missing)]

    def _failure(self, sentence: str, suspect: int | None, raised: Position | None) -> Failure:
        host, local = self._context.host, None
        first = 0
        for seat in self._seen.group:
            if suspect is not None and first <= suspect < first + seat.slots:
                host, local = seat.name, suspect - first
            first += seat.slots
        rank = suspect if local is not None else None
        role = self._seen.seat.role
        of_role = f" of {role}" if role else ""
        who = f"rank {suspect}{of_role} (local rank {local}) on {host}, " if local is not None else ""
        code = exit_codes.STALLED if raised is None else 1
        ends = f"{who}exit code {code}"
        if raised is None:
            silent = time.monotonic() - max(self._began, self._context.pump.last_output)
            after = f"found {silent:.0f} s after the last output here: all ranks were looked at twice"
            reason = fit([f"muster: stalled: {sentence}", f"{ends}, {after}"], last_first=True)
            return Failure(host, code, "muster", "infra", reason, rank, local, at=time.time(), role=role)
        words = fit([raised.raised, ends, sentence])
        return Failure(host, code, "user", "user", words, rank, local, at=time.time(), role=role)

    # on every host

    def stalled(self, event: Stalled) -> None:
        """Says that the job stands still, and keeps the stacks of the ranks here."""
        if not self._ends:
            self._context.say(event.sentence)
        if not self._asked:
            self._timer.cancel()  # once is enough
        if not self._facts:
            return
        self._keep_flight_records()
        text = self._context.mask(f"{event.sentence}\n\n{_text_of(self._facts)}")
        try:
            path = self._context.keep(STACKS, text)
        except OSError as error:
            self._context.say(f"warning: the stacks of the ranks here can't be kept: {error.strerror}")
        else:
            self._context.say(f"the stacks of the ranks here are in {path}" if path else text)

    def _read_flight_records(self) -> None:
        """Reads what torch's flight recorder has of the ranks here that could be asked."""
        self._records = {}
        for rank, facts in self._facts.items():
            if "flight" in facts:
                record = self._records[rank] = base64.b64decode(facts.pop("flight"))
                facts["last"], facts["call"] = standstill.last_collective(record), standstill.waits_in(record)

    def _keep_flight_records(self) -> None:
        for rank, record in self._records.items():
            keep_record(self._context, rank, record)
        self._records = {}

    def hear(self, event: LookAsked | AllLooked | Stalled) -> None:
        if isinstance(event, LookAsked):
            self.look()
        elif isinstance(event, AllLooked):
            self.judge(event)
        else:
            self.stalled(event)

    def close(self) -> None:
        self._closed = True
        self._timer.cancel()
        if self._look_timer is not None:
            self._look_timer.cancel()
        self._texts.close()


def _text_of(facts: dict[str, Any]) -> str:
    """The stacks of all ranks, for people."""
    parts = []
    for rank, found in facts.items():
        parts.append(f"rank {rank}: {'busy' if found.get('moving') else 'still'}, {_process(found)}")
        if found.get("gpus"):
            busy = ", ".join(f"{kernels} % kernels, {memory} % memory" for kernels, memory in found["gpus"])
            parts[-1] += f"  this host's GPUs, at most: {busy}\n"
        if found.get("last"):
            parts[-1] += f"  last collective: {found['last']}\n"
        parts += [f"rank {rank}, a process that it started: {_process(child)}" for child in found.get("children", ())]
    return "\n".join(parts)


def _process(facts: dict[str, Any]) -> str:
    state = f"state {facts.get('state') or '?'}, waits in {facts.get('wchan') or '-'}"
    if "threads" not in facts:
        return f"{state}; no stack: {facts.get('error', '')}\n"
    lines = [state]
    for thread in facts["threads"]:
        lines.append(f"  thread {thread['name'] or '-'}, innermost first:")
        lines += [f'    File "{file}", line {line}, in {name}' for name, file, line in thread["frames"]]
    return "\n".join(lines) + "\n"


def watch(watched: Watched) -> StallWatch:
    """Watches this host's part of an attempt."""
    return StallWatch(watched)
