"""The protocol between the channel and the supervisor: this host calls methods, other hosts' reports come as events.

The supervisor sees other hosts only through this module. Three classes implement :class:`Peers`: the leader's end of
the channel, a worker's end, and the channel of a lone host.
"""

from typing import TYPE_CHECKING, Callable, Literal, NamedTuple, Protocol, Union

from musterpoint.base.failure import NO_FAILURES, Failure, Secondary
from musterpoint.base.loop import Loop

if TYPE_CHECKING:
    from musterpoint.base.position import Position
    from musterpoint.core.channel.attempts import AllReady, NextAttempt, NoRestart, Ready


class JobFailed(NamedTuple):
    """The leader found the root cause, ``failure``: every host ends with its code and reason.

    ``secondary`` counts the other failures known by then.
    """

    failure: Failure
    secondary: Secondary = Secondary()


class StopAll(NamedTuple):
    """A stop was asked for on ``host`` (SIGTERM there): every host stops, with checkpoints."""

    host: str
    signal: int


class PeerLost(NamedTuple):
    """``host`` is lost without a bye; ``why`` says how that was found. ``script`` jobs only warn.

    ``apart_from``: the host that reports it, where that host or the network may have failed instead.
    """

    host: str
    why: str
    apart_from: str = ""


class PeerSilent(NamedTuple):
    """``host`` has been silent for ``seconds``; the worker dials again, the leader waits."""

    host: str
    seconds: float


class PeerBack(NamedTuple):
    """A silent or cut-off ``host`` is back; its session was resumed."""

    host: str


class Arrived(NamedTuple):
    """Every host of the roster has called :meth:`Peers.arrive` with this ``point``."""

    point: str


class AllDone(NamedTuple):
    """Every host is done. ``failures`` counts the failures beside the first one, on all hosts.

    ``stopped``: a stop was asked for before, here or elsewhere; one that comes later changes nothing.
    """

    failures: Secondary = Secondary()
    stopped: bool = False


class StartAsked(NamedTuple):
    """The leader asks this host to start an MPI daemon. ``words`` are the arguments that its mpirun gave to the
    remote shell; ``number`` identifies the request in the answers. Only workers get this.
    """

    number: int
    words: tuple[str, ...]


class Started(NamedTuple):
    """``host`` runs the daemon of request ``number``. Only the leader gets this."""

    host: str
    number: int


class StartEnded(NamedTuple):
    """The daemon of request ``number`` ended on ``host``, or was refused there. Only the leader gets this.

    ``status`` is as ``os.waitstatus_to_exitcode`` gives it; ``said`` is the end of what it wrote, or the refusal.
    """

    host: str
    number: int
    status: int
    said: str = ""


RuleState = Literal["fresh", "late", "overdue", "off"]
"""``fresh``: a line came in time. ``late``: none came within the time from the start. ``overdue``: the next one didn't
come in time. ``off``: a line turned the rule off.
"""
RULE_STATES: tuple[RuleState, ...] = ("fresh", "late", "overdue", "off")


class RuleReport(NamedTuple):
    """What a host knows of a log rule's lines. ``ranks``: whose state it is; empty: that of the host as a whole.

    ``line``: the last one that matched.
    """

    rule: str
    state: RuleState
    ranks: tuple[int, ...] = ()
    line: str = ""

    @property
    def is_missing(self) -> bool:
        return self.state in ("late", "overdue")


class MissingLine(NamedTuple):
    """A log rule's line is missing: that of ``ranks``, or (empty) of any rank. ``line``: the last one that came."""

    rule: str
    state: RuleState
    ranks: tuple[int, ...] = ()
    line: str = ""


class LookAsked(NamedTuple):
    """Look where this host's ranks are: no rank of any host has printed anything for the stall timeout.

    ``rule``: the log rule whose line is missing instead; ranks may go on printing others.
    """

    rule: str = ""


class AllLooked(NamedTuple):
    """Every host has looked. ``positions`` are those of all ranks; None: a host has printed something meanwhile.

    ``missing``: the line because of which all were asked to look, if it hasn't come since. Only the leader gets this.
    """

    positions: "tuple[Position, ...] | None"
    missing: MissingLine | None = None


MOST_NAMED = 4
"""Hosts that are named where somebody asks who is still running."""


class StillRunning(NamedTuple):
    """The answer to :meth:`Peers.ask_running`: ``hosts`` (at most :data:`MOST_NAMED`) aren't done, and ``more`` beside
    them.
    """

    hosts: tuple[str, ...]
    more: int = 0


class Stalled(NamedTuple):
    """The leader found that the job stands still; ``sentence`` says which ranks wait where."""

    sentence: str


PeerEvent = Union[
    JobFailed,
    StopAll,
    PeerLost,
    PeerSilent,
    PeerBack,
    Arrived,
    AllDone,
    StartAsked,
    Started,
    StartEnded,
    LookAsked,
    AllLooked,
    Stalled,
    StillRunning,
    "AllReady",
    "NextAttempt",
    "NoRestart",
]


class Report(NamedTuple):
    """``text``: what a host reported in a consultation. ``at``: when that came, by the leader's clock (Unix time)."""

    text: str
    at: float


Decide = Callable[[dict[str, Report]], str]
"""Makes the leader's answer from the reports of all hosts that are still here, by name."""
OnAnswer = Callable[[Union[str, None]], None]
"""Gets the answer; None: the leader is lost, so there will be none."""


class Peers(Protocol):
    """This host's end of the open channel. All methods return at once; events come in the loop's thread."""

    def listen(self, on_event: Callable[[PeerEvent], None]) -> None:
        """Sends all events, earlier ones included, to ``on_event``."""

    def hold(self) -> None:
        """Keeps all events from now on until somebody listens again."""

    def failed(self, failure: Failure) -> None:
        """Reports that something failed here. The root cause comes back as :class:`JobFailed`, on a lone host too."""

    def stopping(self, signal: int) -> None:
        """Reports that this host was told to stop; the others get :class:`StopAll`."""

    def arrive(self, point: str) -> None:
        """Reports that this host is at the barrier ``point``; :class:`Arrived` comes when all are."""

    def done(self, code: int, failures: Secondary = NO_FAILURES) -> None:
        """Reports that this host's ranks ended, with ``code``; :class:`AllDone` comes when all have.

        ``failures`` counts the ranks that failed here, beside the job's first failure.
        """

    def start(self, host: str, number: int, words: tuple[str, ...]) -> None:
        """Asks ``host`` to start an MPI daemon (:class:`StartAsked` there). Only the leader may: on a worker or a lone
        host this raises ``RuntimeError``. :class:`StartEnded` comes at once if ``host`` is lost or left.

        ``ValueError``: no other host has this name, ``number`` is in use there until its end, or there are no words,
        more than 4,096, or one with a zero byte.
        """

    def started(self, number: int) -> None:
        """Reports that the daemon of request ``number`` runs here; only workers may (``RuntimeError`` elsewhere).

        Does nothing once the leader is lost.
        """

    def start_ended(self, number: int, status: int, said: str = "") -> None:
        """Reports that the daemon of request ``number`` ended here, or that it was refused; once for each request.

        ``status`` is -64 to 255 (``ValueError``); of ``said`` the last 8 KiB are sent.
        """

    def quiet(self, on: bool) -> None:
        """Reports that no rank here has printed anything for the stall timeout; false: one prints again.

        :class:`LookAsked` comes when all hosts that run ranks are quiet.
        """

    def looked(self, positions: "tuple[Position, ...] | None") -> None:
        """Answers :class:`LookAsked`; None: a rank here has printed something meanwhile."""

    def rule_state(self, report: RuleReport) -> None:
        """Reports what is known here of a log rule's lines; :class:`LookAsked` comes to all hosts if one is missing."""

    def ask_running(self) -> None:
        """Asks which hosts aren't done; :class:`StillRunning` comes, but not on a lone host."""

    def stalled(self, sentence: str) -> None:
        """Tells all hosts that the job stands still; only who gets :class:`AllLooked` may."""

    def ready(self, ready: "Ready") -> None:
        """Reports that nothing of this attempt is left here, after its :meth:`done`; :class:`NextAttempt` or
        :class:`NoRestart` comes. The leader decides which when it gets :class:`AllReady`.
        """

    def restart(self, attempt: "NextAttempt") -> bool:
        """Begins the next attempt on all hosts; only who gets :class:`AllReady` may. False: a stop came before it."""

    def end_attempts(self, end: "NoRestart") -> None:
        """Tells all hosts that there is no other attempt; only who gets :class:`AllReady` may."""

    def consult(self, point: str, text: str, decide: Decide, on_answer: OnAnswer, seconds: float) -> None:
        """Reports ``text`` at ``point``, which every host does once; ``on_answer`` gets what the leader's ``decide``
        makes of all reports, None where the leader is lost. Hosts that have reported nothing ``seconds`` after the
        leader are not waited for; those that left or are lost neither.

        ``ValueError``: the texts are longer than :mod:`musterpoint.core.channel.consultations` allows.
        """

    def has_events(self) -> bool:
        """Whether events wait for a listener."""

    def close(self) -> None:
        """Says ``bye`` and gives every descriptor back."""


class EventQueue:
    """Delivers events from the loop; refuses the methods of :class:`Peers` that only some hosts may call."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: list[PeerEvent] = []
        self._on_event: Callable[[PeerEvent], None] | None = None

    def listen(self, on_event: Callable[[PeerEvent], None]) -> None:
        self._on_event = on_event
        if self._waiting:
            self._loop.call_later(0, self._deliver)

    def hold(self) -> None:
        self._on_event = None

    def has_events(self) -> bool:
        return bool(self._waiting)

    def start(self, host: str, number: int, words: tuple[str, ...]) -> None:
        raise RuntimeError(f"start request {number} for {host}: only the leader of several hosts asks for starts")

    def started(self, number: int) -> None:
        raise RuntimeError(f"start request {number}: only a worker is asked, so only a worker answers")

    def start_ended(self, number: int, status: int, said: str = "") -> None:
        self.started(number)

    def restart(self, attempt: "NextAttempt") -> bool:
        raise RuntimeError(f"attempt {attempt.number}: only the leader begins one")

    def end_attempts(self, end: "NoRestart") -> None:
        raise RuntimeError("no other attempt: only the leader says so")

    def _emit(self, event: PeerEvent) -> None:
        self._waiting.append(event)
        if self._on_event is not None and len(self._waiting) == 1:
            self._loop.call_later(0, self._deliver)

    def _deliver(self) -> None:
        waiting, self._waiting = self._waiting, []
        while waiting and self._on_event is not None:
            self._on_event(waiting.pop(0))
        self._waiting = waiting + self._waiting

    def _stop_listening(self) -> None:
        self._on_event = None
        self._waiting = []
