"""Finds in the ranks' output what log rules ask for: ``log_matcher.py RULES``.

RULES is a file with a JSON array of rules (:class:`musterpoint.core.job.log_rules.LogRule` as objects). The output
comes through stdin, in frames: :data:`HEADER` (monotonic time, stream, rank, bytes), then the bytes; :data:`GAP` in
place of the number of bytes says that some are missing there. Each finding is a line of JSON on stdout.

Run by musterpoint's own Python from its text: a pattern may take for ever on a line, and Python matches under its one
lock, so that in the supervisor it would stop everything. Ends with its stdin.
"""

from __future__ import annotations

import json
import math
import os
import re
import select
import signal
import struct
import sys
import time
from typing import Any, Callable, Iterator

HEADER = struct.Struct("=dIiI")
GAP = 0xFFFFFFFF
LONGEST_LINE = 8192
"""Bytes of a line that are searched; what follows is skipped up to the line's end."""
MOST_SHOWN = 300
"""Characters of a line that a finding quotes."""
SLOWEST = 5.0
"""Seconds of processor time that a rule gets for one frame; one that takes longer is turned off."""
LOOK_UP = 5.0
"""Seconds between two looks at the clock, by which a time without any (a frozen machine) is noticed."""
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "gt": lambda value, bound: value > bound,
    "gteq": lambda value, bound: value >= bound,
    "lt": lambda value, bound: value < bound,
    "lteq": lambda value, bound: value <= bound,
    "eq": lambda value, bound: value == bound,
}

Finding = dict[str, Any]
Emit = Callable[[Finding], None]


class TooSlow(Exception):
    """A rule took longer than :data:`SLOWEST`."""


class Seen:
    """What one rank, or all together, have printed for a rule. ``at``: when the last match came; None: never."""

    def __init__(self) -> None:
        self.at: float | None = None
        self.line = ""
        self.overdue = False
        self.off = False


class Rule:
    """One rule at work. ``emit`` gets what it finds."""

    def __init__(self, number: int, given: dict[str, Any], began: float, emit: Emit) -> None:
        self._number, self._emit, self._began = number, emit, began
        self._match = re.compile(given["pattern"]).match
        self._stop = re.compile(given["stop"]).match if given["stop"] else None
        self._start, self._recurring = given["start"], given["recurring"]
        self._operator, self._threshold = OPERATORS.get(given["operator"]), given["threshold"]
        self._points, self._fault = given["points"], given["fault"]
        self._each = given["ranks"] != "any"
        self._of = frozenset(given["ranks"]) if isinstance(given["ranks"], list) else None
        self._seen: dict[int, Seen] = {}
        self._bad: dict[int, int] = {}
        self._said: set[int] = set()
        self._late = self.is_off = False

    def _key(self, rank: int) -> int:
        return rank if self._each else -1

    def _find(self, kind: str, rank: int | None, line: str = "", **more: Any) -> None:
        self._emit({"rule": self._number, "kind": kind, "rank": rank, "line": line[:MOST_SHOWN], **more})

    def feed(self, rank: int, lines: list[str], now: float) -> None:
        """Searches whole lines of a rank, which came at ``now``."""
        if self.is_off or (self._of is not None and rank not in self._of):
            return
        key = self._key(rank)
        seen = self._seen.setdefault(key, Seen())
        match, stop = self._match, self._stop
        for line in lines:
            if seen.off:
                return
            found = match(line)
            if found is not None:
                self._matched(found, seen, rank, line, now)
            if stop is not None and stop(line):
                seen.off = True
                self._find("off", rank if self._each else None)

    def _matched(self, found: re.Match[str], seen: Seen, rank: int, line: str, now: float) -> None:
        first = seen.at is None
        seen.at, seen.line = now, line
        if first or seen.overdue:
            seen.overdue = False
            self._find("fresh", rank if self._each else None)
        if self._fault and rank not in self._said:
            self._said.add(rank)
            self._find("fault", rank, line)
        if self._operator is not None and found.re.groups:
            self._measured(found[1], rank, line)

    def _measured(self, text: str | None, rank: int, line: str) -> None:
        """Counts the bad numbers of a rank in a row. One that is no number any more (nan) is bad by every rule."""
        try:
            value = float(text or "")
        except ValueError:
            return
        assert self._operator is not None
        if not math.isnan(value) and not self._operator(value, self._threshold):
            self._bad[rank] = 0
            self._said.discard(rank)
            return
        self._bad[rank] = self._bad.get(rank, 0) + 1
        if self._bad[rank] >= self._points and rank not in self._said:
            self._said.add(rank)
            self._find("metric", rank, line, value=str(text)[:40])

    def due(self) -> float:
        """When :meth:`check` may find something."""
        if self.is_off:
            return math.inf
        times = [self._began + self._start] if self._start is not None and not self._late else []
        if self._recurring is not None:
            waiting = (seen for seen in self._seen.values() if not seen.overdue and not seen.off)
            times += [seen.at + self._recurring for seen in waiting if seen.at is not None]
        return min(times, default=math.inf)

    def check(self, now: float) -> None:
        """Finds which lines haven't come by ``now``."""
        if self.is_off:
            return
        if self._start is not None and not self._late and now >= self._began + self._start:
            self._late = True
            came = [rank for rank, seen in self._seen.items() if seen.at is not None or seen.off]
            if self._each or not came:
                self._find("late", None, came=came)
        for key, seen in self._seen.items() if self._recurring is not None else ():
            if seen.at is not None and not seen.overdue and not seen.off and now >= seen.at + self._recurring:
                seen.overdue = True
                self._find("overdue", key if self._each else None, seen.line)

    def forgive(self, seconds: float) -> None:
        """For so long nothing ran here, perhaps the ranks neither."""
        self._began += seconds
        for seen in self._seen.values():
            seen.at = None if seen.at is None else seen.at + seconds

    def missed(self, now: float) -> None:
        """Some output could not be searched: the line that is waited for may have been in it."""
        self._began = now
        for seen in self._seen.values():
            seen.at = None if seen.at is None else now

    def turn_off(self) -> None:
        self.is_off = True
        self._find("slow", None)


class Matcher:
    """All rules, fed with the bytes of all streams. ``limit``: wraps what a rule does with a frame."""

    def __init__(self, rules: list[dict[str, Any]], began: float, emit: Emit) -> None:
        self._rules = [Rule(number, given, began, emit) for number, given in enumerate(rules)]
        self._emit = emit
        self._parts: dict[int, bytes] = {}

    def feed(self, now: float, stream: int, rank: int, data: bytes) -> None:
        """Bytes of a rank's stream, which came at ``now``."""
        self.check(now)
        lines = self._lines(stream, data)
        if not lines:
            return
        for rule in self._rules:
            try:
                with_limit(lambda rule=rule: rule.feed(rank, lines, now))  # type: ignore[misc]
            except TooSlow:
                rule.turn_off()

    def _lines(self, stream: int, data: bytes) -> list[str]:
        """The lines that end in ``data``; a carriage return ends one, too, as progress bars write no other end."""
        end = max(data.rfind(b"\n"), data.rfind(b"\r"))
        before = self._parts.get(stream, b"")
        if end < 0:
            self._parts[stream] = before + data[: LONGEST_LINE - len(before)]
            return []
        self._parts[stream] = data[end + 1 : end + 1 + LONGEST_LINE]
        text = (before + data[:end]).decode("utf-8", "replace").replace("\r", "\n")
        return [line[:LONGEST_LINE] for line in text.split("\n") if line]

    def missed(self, now: float) -> None:
        """Bytes of some streams are missing here."""
        self._parts.clear()
        for rule in self._rules:
            rule.missed(now)
        self._emit({"kind": "gap"})

    def due(self) -> float:
        return min((rule.due() for rule in self._rules), default=math.inf)

    def check(self, now: float) -> None:
        if self.due() <= now:
            for rule in self._rules:
                rule.check(now)

    def forgive(self, seconds: float) -> None:
        for rule in self._rules:
            rule.forgive(seconds)


def with_limit(call: Callable[[], None]) -> None:
    """``call``, ended by :class:`TooSlow` after :data:`SLOWEST` seconds of processor time, also inside a match."""
    signal.setitimer(signal.ITIMER_VIRTUAL, SLOWEST)
    try:
        call()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def too_slow(_signo: int, _frame: Any) -> None:
    raise TooSlow


def frames(buffer: bytearray) -> Iterator[tuple[float, int, int, bytes | None]]:
    """The whole frames in ``buffer``, which are taken out of it; None for bytes that are missing."""
    at = 0
    while len(buffer) - at >= HEADER.size:
        now, stream, rank, size = HEADER.unpack_from(buffer, at)
        begin = at + HEADER.size
        if size != GAP and len(buffer) - begin < size:
            break
        at = begin if size == GAP else begin + size
        yield now, stream, rank, None if size == GAP else bytes(buffer[begin:at])
    del buffer[:at]


def main() -> None:
    signal.signal(signal.SIGVTALRM, too_slow)
    with open(sys.argv[1], encoding="utf-8") as file:
        rules = json.load(file)
    matcher = Matcher(rules, time.monotonic(), lambda found: print(json.dumps(found), flush=True))
    buffer = bytearray()
    before = time.monotonic()
    while True:
        wait = max(0.0, min(matcher.due() - time.monotonic(), LOOK_UP))
        ready = select.select([0], [], [], wait)[0]
        now = time.monotonic()
        if now - before > wait + LOOK_UP:
            matcher.forgive(now - before - wait)
        before = now
        if not ready:
            matcher.check(now)
            continue
        data = os.read(0, 1 << 20)
        if not data:
            return
        buffer += data
        for at, stream, rank, output in frames(buffer):
            if output is None:
                matcher.missed(at)
            else:
                matcher.feed(at, stream, rank, output)
        before = time.monotonic()


if __name__ == "__main__":
    main()
