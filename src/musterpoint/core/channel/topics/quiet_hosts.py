"""Which hosts print nothing, and where their ranks are, as the leader collects it; no I/O.

When every host that still runs ranks is quiet, or a log rule's line is missing, all are asked to look at their ranks at
the same time.
"""

from typing import Annotated, Iterable, Union

from musterpoint.base.position import Position
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.fields import Length, WireError
from musterpoint.core.channel.peers import AllLooked, LookAsked, MissingLine, RuleReport, Stalled
from musterpoint.core.channel.rule_states import RuleStates
from musterpoint.core.channel.topic import LeaderHalf, Topic, WorkerHalf

_MOST_RANKS = 65536


class Quiet(NamedTuple):
    """No rank of a worker has printed anything for the stall timeout; false: one prints again."""

    on: bool


class Looked(NamedTuple):
    """Where a worker's ranks are, after :class:`LookAsked`; None: one has printed something meanwhile."""

    positions: Annotated[tuple[Position, ...], Length(0, _MOST_RANKS)] | None


class QuietHosts:
    """What a host says of ranks that print nothing."""

    def quiet(self, on: bool) -> None:
        """No rank here has printed anything for the stall timeout; false: one prints again.

        :class:`LookAsked` comes when all hosts that run ranks are quiet.
        """
        raise NotImplementedError

    def looked(self, positions: tuple[Position, ...] | None) -> None:
        """Answers :class:`LookAsked`; None: a rank here has printed something meanwhile."""
        raise NotImplementedError

    def rule_state(self, report: RuleReport) -> None:
        """What is known here of a log rule's lines; :class:`LookAsked` comes to all hosts if one is missing."""
        raise NotImplementedError

    def stalled(self, sentence: str) -> None:
        """Tells all hosts that the job stands still; only who gets :class:`AllLooked` may."""
        raise NotImplementedError


QuietDecision = Union[LookAsked, AllLooked]


class WhoIsQuiet:
    """``hosts``: those whose ranks are waited for. Who is quiet, and who has answered, is always one of them, so that
    comparing how many they are is enough.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._running = set(hosts)
        self._quiet: set[str] = set()
        self._found: dict[str, tuple[Position, ...] | None] | None = None
        self._rules = RuleStates(self._running)
        self._because = ""
        self._waiting: list[str] = []

    def quiet(self, host: str, on: bool) -> list[QuietDecision]:
        """``host`` has printed nothing for the stall timeout, or (``on`` is false) prints again."""
        if host in self._running:
            (self._quiet.add if on else self._quiet.discard)(host)
        return self._next()

    def looked(self, host: str, positions: tuple[Position, ...] | None) -> list[QuietDecision]:
        """``host`` answers a :class:`LookAsked`; an answer to none is dropped.

        Its silence begins anew with its answer. It may be quiet again before the last host has answered.
        """
        self._quiet.discard(host)
        if self._found is not None and host in self._running:
            self._found[host] = positions
        return self._next()

    def rule_state(self, host: str, report: RuleReport) -> list[QuietDecision]:
        """``host`` reports about the lines of a log rule.

        Raises:
            WireError: there can't be so many rules.
        """
        return self._missing(self._rules.report(host, report))

    def _missing(self, found: list[MissingLine]) -> list[QuietDecision]:
        self._waiting += [each.rule for each in found if each.rule not in self._waiting]
        return self._next()

    def awaited(self) -> set[str]:
        """Who was asked to look and has not answered."""
        return set() if self._found is None else self._running - self._found.keys()

    def left(self, host: str) -> list[QuietDecision]:
        """``host`` runs no ranks any more."""
        self._running.discard(host)
        self._quiet.discard(host)
        if self._found is not None:
            self._found.pop(host, None)
        return self._missing(self._rules.left(host))

    def _next(self) -> list[QuietDecision]:
        if self._found is None:
            return self._ask()
        if len(self._found) < len(self._running):
            return []
        found, self._found = list(self._found.values()), None
        rule, self._because = self._because, ""
        if not found:
            return []
        positions = None if None in found else tuple(one for each in found for one in each or ())
        return [AllLooked(positions, self._rules.missing(rule) if rule else None), *self._ask()]

    def _ask(self) -> list[QuietDecision]:
        """Asks for a look, if there is a reason for one."""
        while self._waiting and self._running:
            rule = self._waiting.pop(0)
            if self._rules.missing(rule) is not None:
                self._because, self._found = rule, {}
                return [LookAsked(rule)]
        if not self._running or len(self._quiet) < len(self._running):
            return []
        self._found = {}
        return [LookAsked()]


class LeadersQuietHosts(LeaderHalf, QuietHosts):
    """Collects who is quiet, and asks all hosts to look at their ranks."""

    def begin(self) -> None:
        self._quiet = WhoIsQuiet(self._side.group)

    def quiet(self, on: bool) -> None:
        self._decided(self._quiet.quiet(self._side.me, on))

    def looked(self, positions: tuple[Position, ...] | None) -> None:
        self._decided(self._quiet.looked(self._side.me, positions))

    def rule_state(self, report: RuleReport) -> None:
        self._decided(self._quiet.rule_state(self._side.me, report))

    def stalled(self, sentence: str) -> None:
        self._side.broadcast(Stalled(sentence))
        self._side.emit(Stalled(sentence))

    def hear(self, host: str, message: Union[Quiet, Looked, RuleReport]) -> None:
        if isinstance(message, Quiet):
            self._decided(self._quiet.quiet(host, message.on))
        elif isinstance(message, Looked):
            self._decided(self._quiet.looked(host, message.positions))
        elif not message.rule:
            raise WireError("the state of a log rule without a name")
        else:
            self._decided(self._quiet.rule_state(host, message))

    def awaits(self) -> set[str]:
        return self._quiet.awaited()

    def left(self, host: str) -> None:
        self._decided(self._quiet.left(host))

    def _decided(self, decisions: list[QuietDecision]) -> None:
        for decision in decisions:
            if isinstance(decision, LookAsked):
                self._side.broadcast(decision)
            self._side.emit(decision)


class WorkersQuietHosts(WorkerHalf, QuietHosts):
    """A host without a leader looks for itself."""

    def begin(self) -> None:
        self._is_quiet = False

    def quiet(self, on: bool) -> None:
        self._is_quiet = on
        if not self._side.is_alone:
            self._side.post(Quiet(on))
        elif on:
            self._side.emit(LookAsked())

    def looked(self, positions: tuple[Position, ...] | None) -> None:
        self._is_quiet = False
        if self._side.is_alone:
            self._side.emit(AllLooked(positions))
        else:
            self._side.post(Looked(positions))

    def rule_state(self, report: RuleReport) -> None:
        self._side.post(report)

    def stalled(self, sentence: str) -> None:
        self._side.emit(Stalled(sentence))

    def hear(self, message: Union[LookAsked, Stalled], size: int) -> None:
        self._side.emit(message)

    def alone(self) -> None:
        if self._is_quiet:
            self._side.emit(LookAsked())


TOPIC: Topic[QuietHosts] = Topic(
    "quiet-hosts", (Quiet, Looked, RuleReport), (LookAsked, Stalled), LeadersQuietHosts, WorkersQuietHosts
)
