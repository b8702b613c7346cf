"""Looks host names up in threads of their own, since the system's look-up blocks; repeats look-ups.

``getaddrinfo`` facts (glibc): NXDOMAIN is -2 at once; SERVFAIL, REFUSED or no server -3 at once; dropped answers -3
after 10 s; only the AAAA answer dropped costs 15 s unless each family is asked for itself. All of them mean "not yet".
"""

from __future__ import annotations

import _thread
import socket
from collections import deque
from functools import partial
from typing import Callable, Mapping

from musterpoint.base.loop import Loop
from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import open_regular
from musterpoint.core.channel.link import Context

FAMILIES = (int(socket.AF_INET), int(socket.AF_INET6))
_MOST_LOOKUPS = 16
_MOST_SIX = 8
_GRACE = 0.3
_MANY = 200


class Answer(NamedTuple):
    """What a look-up gave. ``trouble``: why there are no addresses; ``vanished``: no such name exists."""

    addresses: tuple[str, ...] = ()
    trouble: str = ""
    vanished: bool = False


def resolve(name: str, family: int) -> Answer:
    """One family's addresses of ``name``; blocks for as long as the resolver does."""
    try:
        found = socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in _NO_SUCH_NAME:
            return Answer((), "the name does not resolve (no such name)", True)
        return Answer((), f"the name does not resolve ({(error.strerror or str(error)).lower()})")
    except (OSError, UnicodeError) as error:
        return Answer((), f"the name does not resolve ({error})")
    return Answer(tuple(dict.fromkeys(str(entry[4][0]) for entry in found)))


_NO_SUCH_NAME = {getattr(socket, "EAI_NONAME", -2), getattr(socket, "EAI_NODATA", -5)}


def read_hosts(path: str) -> dict[str, tuple[str, ...]]:
    """The names of a hosts file, lower-case, with their addresses. ``OSError`` if it can't be read."""
    names: dict[str, tuple[str, ...]] = {}
    with open(path, encoding="utf-8", errors="replace", opener=open_regular) as lines:
        for line in lines:
            address, *aliases = line.partition("#")[0].split() or [""]
            for alias in aliases:
                names[alias.lower()] = (*names.get(alias.lower(), ()), address)
    return names


class Names:
    """Looks names up, at most 16 at a time. ``fixed`` are known addresses by lower-case name. ``begin`` calls a
    function with its arguments in a thread of its own.
    """

    def __init__(
        self,
        loop: Loop,
        fixed: Mapping[str, tuple[str, ...]],
        lookup: Callable[[str, int], Answer] = resolve,
        begin: Callable[[Callable[[str, int], None], tuple[str, int]], object] = _thread.start_new_thread,
    ) -> None:
        self._loop = loop
        self._fixed = fixed
        self._lookup = lookup
        self._begin = begin
        self._known: dict[tuple[str, int], Answer] = {}
        self._waiting: dict[tuple[str, int], list[Callable[[], None]]] = {}
        self._queues: dict[int, deque[str]] = {family: deque() for family in FAMILIES}
        self._running = dict.fromkeys(FAMILIES, 0)

    def look_up(self, name: str, then: Callable[[Answer], None]) -> None:
        """Calls ``then`` once, perhaps before it returns. IPv6 is tried only where IPv4 gives nothing or is slow.

        A later answer of the other family is part of the next look-up's answer.
        """
        if name.lower() in self._fixed:
            then(self.last_answer(name))
            return
        four, six = FAMILIES
        finished = False

        def decide(last: bool) -> None:
            nonlocal finished
            answer = self.last_answer(name)
            if not finished and (answer.addresses or last):
                finished = True
                then(answer)

        def first() -> None:
            if not finished and not self._known[name, four].addresses:
                self._request(name, six, partial(decide, True))
            else:
                decide(False)

        def impatient() -> None:
            if not finished and (name, four) in self._waiting:
                self._request(name, six, partial(decide, False))

        self._request(name, four, first)
        self._loop.call_later(_GRACE, impatient)

    def look_up_both(self, name: str, then: Callable[[Answer], None]) -> None:
        """Looks up both families; calls ``then`` once with all addresses, at most 0.3 s after the first."""
        if name.lower() in self._fixed:
            then(self.last_answer(name))
            return
        finished = False

        def finish() -> None:
            nonlocal finished
            if not finished:
                finished = True
                then(self.last_answer(name))

        def answered() -> None:
            if not any((name, family) in self._waiting for family in FAMILIES):
                finish()
            elif self.last_answer(name).addresses:
                self._loop.call_later(_GRACE, finish)

        for family in FAMILIES:
            self._request(name, family, answered)

    def last_answer(self, name: str) -> Answer:
        """What the last look-ups of both families gave."""
        if name.lower() in self._fixed:
            return Answer(self._fixed[name.lower()])
        answers = [self._known[name, family] for family in FAMILIES if (name, family) in self._known]
        addresses = tuple(address for answer in answers for address in answer.addresses)
        if addresses or not answers:
            return Answer(addresses, "" if addresses else "the name was not answered yet")
        vague = [answer for answer in answers if not answer.vanished]
        return vague[0] if vague else answers[0]

    def _request(self, name: str, family: int, then: Callable[[], None]) -> None:
        waiting = self._waiting.setdefault((name, family), [])
        waiting.append(then)
        if len(waiting) == 1:
            self._queues[family].append(name)
            self._start()

    def _start(self) -> None:
        self._loop.prepare_posts()
        four, six = FAMILIES
        while sum(self._running.values()) < _MOST_LOOKUPS:
            if self._queues[four]:
                family = four
            elif self._queues[six] and self._running[six] < _MOST_SIX:
                family = six
            else:
                return
            name = self._queues[family].popleft()
            self._running[family] += 1
            try:
                self._begin(self._run, (name, family))
            except RuntimeError:
                self._loop.call_later(1.0, partial(self._done, name, family, Answer((), "no thread for a look-up")))

    def _run(self, name: str, family: int) -> None:
        answer = self._lookup(name, family)
        try:
            self._loop.post(partial(self._done, name, family, answer))
        except (OSError, ValueError):
            pass  # the loop was closed before the resolver answered

    def _done(self, name: str, family: int, answer: Answer) -> None:
        self._known[name, family] = answer
        self._running[family] -= 1
        waiting = self._waiting.pop((name, family), [])
        self._start()
        for then in waiting:
            then()


class Follower:
    """Repeats look-ups with growing pauses until a name is dropped; ``on_answer`` gets every answer."""

    def __init__(self, context: Context, names: Names, on_answer: Callable[[str, Answer], None]) -> None:
        self._loop, self._timeouts = context.loop, context.timeouts
        self._names = names
        self._on_answer = on_answer
        self._tries: dict[str, int] = {}
        self._record = context.log.record
        self._known: set[str] = set()

    def follow(self, name: str) -> None:
        """Starts to look ``name`` up repeatedly; does nothing if that has started."""
        if name not in self._tries:
            self._tries[name] = 0
            self._ask(name)

    def drop(self, name: str) -> None:
        self._tries.pop(name, None)

    def _ask(self, name: str) -> None:
        if name in self._tries:
            self._names.look_up(name, partial(self._answered, name))

    def _answered(self, name: str, answer: Answer) -> None:
        tries = self._tries.get(name)
        if tries is None:
            return
        self._tries[name] = tries + 1
        if answer.addresses and name not in self._known:
            self._known.add(name)
            self._record("name-resolved", host=name, address=answer.addresses[0], tries=tries + 1)
        # thousands of names that don't resolve yet must not hammer the resolver
        crowd = max(1.0, len(self._tries) / _MANY)
        pause = min(self._timeouts.retry * 2 ** min(tries, 10), self._timeouts.retry_most) * crowd
        self._loop.call_later(pause, partial(self._ask, name))
        self._on_answer(name, answer)
