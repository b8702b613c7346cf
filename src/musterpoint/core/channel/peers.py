"""The protocol between the channel and the supervisor: this host calls methods, other hosts' reports come as events.

The supervisor sees other hosts only through this module and the topics. Three classes implement :class:`Peers`: the
leader's end of the channel, a worker's end, and the channel of a lone host.
"""

from typing import TYPE_CHECKING, Annotated, Any, Callable, Protocol, Union

from musterpoint.base.failure import MOST_REASON, NO_FAILURES, Failure, Secondary
from musterpoint.base.loop import Loop
from musterpoint.base.readers import MOST_HOSTS
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.bounds import Argument, HostName, Length, Range, Text
from musterpoint.core.channel.topic import Api, Topic

if TYPE_CHECKING:
    from musterpoint.base.position import Position


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


class GroupEnded(NamedTuple):
    """The ranks of all hosts of ``group`` have ended. A host that is lost or has left counts, too."""

    group: Annotated[str, Text(64)]


class AllDone(NamedTuple):
    """Every host is done. ``failures`` counts the failures beside the first one, on all hosts.

    ``stopped``: a stop was asked for before, here or elsewhere; one that comes later changes nothing.
    """

    failures: Secondary = Secondary()
    stopped: bool = False


START_NUMBER = Range(0, 2**53)
_LONGEST_WORD = 16 * 1024 * 1024


class StartAsked(NamedTuple):
    """The leader asks this host to start an MPI daemon. ``words`` are the arguments that its mpirun gave to the
    remote shell; ``number`` identifies the request in the answers. Only workers get this.
    """

    number: Annotated[int, START_NUMBER]
    words: Annotated[tuple[Annotated[str, Argument(_LONGEST_WORD)], ...], Length(1, 4096)]


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


class LookAsked(NamedTuple):
    """Look where this host's ranks are: no rank of any host has printed anything for the stall timeout."""


class AllLooked(NamedTuple):
    """Every host has looked. ``positions`` are those of all ranks; None: a host has printed something meanwhile.

    Only the leader gets this. ``world``: the group whose hosts they are; empty: the only one.
    """

    positions: "tuple[Position, ...] | None"
    world: str = ""


MOST_NAMED = 4
"""Hosts that are named where somebody asks who is still running."""


class StillRunning(NamedTuple):
    """``hosts`` (at most :data:`MOST_NAMED`) aren't done, and ``more`` beside them."""

    hosts: Annotated[tuple[HostName, ...], Length(0, MOST_NAMED)]
    more: Annotated[int, Range(0, MOST_HOSTS)] = 0


class Stalled(NamedTuple):
    """The leader found that the job stands still; ``sentence`` says which ranks wait where."""

    sentence: Annotated[str, Text(MOST_REASON, shown=True)]


RoleName = Annotated[str, Text(64, shown=True)]


class WorldEnded(NamedTuple):
    """The ranks of the role ``world`` have ended on all its hosts; those of other roles may run."""

    world: RoleName


class RoleReady(NamedTuple):
    """``role`` is ready, on all its hosts."""

    role: RoleName


class NotReady(NamedTuple):
    """``role`` isn't ready, ``seconds`` after it could begin. ``roles``: every role of the job. Only the leader gets
    this.
    """

    role: str
    seconds: float
    roles: "tuple[RoleState, ...]"


class RoleState(NamedTuple):
    """``missing``: the hosts of ``role`` that aren't ready; ``waits``: for which roles it waits itself."""

    role: str
    missing: tuple[str, ...]
    waits: tuple[str, ...]


class TopicEvent(Protocol):
    """Any other named tuple that a topic emits."""

    def _asdict(self) -> dict[str, Any]: ...


PeerEvent = Union[
    JobFailed,
    StopAll,
    PeerLost,
    PeerSilent,
    PeerBack,
    GroupEnded,
    AllDone,
    StartAsked,
    Started,
    StartEnded,
    LookAsked,
    AllLooked,
    Stalled,
    StillRunning,
    TopicEvent,
]


class Report(NamedTuple):
    """``said``: a host's message in a consultation. ``at``: when that came, by the leader's clock (Unix time)."""

    said: Any
    at: float


Decide = Callable[[dict[str, Report]], Any]
"""Makes the leader's answer, a message, from the reports of all hosts that are still here, by name."""
OnAnswer = Callable[[Any], None]
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

    def done(self, code: int, failures: Secondary = NO_FAILURES) -> None:
        """Reports that this host's ranks ended, with ``code``.

        :class:`GroupEnded` comes when those of a group's hosts have, :class:`AllDone` when those of all hosts have.
        ``failures`` counts the ranks that failed here, beside the job's first failure.
        """

    def topic(self, topic: Topic[Api]) -> Api:
        """This host's half of a topic, such as :data:`musterpoint.core.channel.topics.consultations.TOPIC`."""

    def has_events(self, *kinds: type) -> bool:
        """Whether events wait for a listener; with ``kinds``: one of those."""

    def close(self) -> None:
        """Says ``bye`` and gives every descriptor back."""


class EventQueue:
    """Delivers events from the loop."""

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

    def has_events(self, *kinds: type) -> bool:
        return any(not kinds or isinstance(event, kinds) for event in self._waiting)

    def call_later(self, seconds: float, call: Callable[[], None]) -> object:
        return self._loop.call_later(seconds, call)

    def emit(self, event: PeerEvent) -> None:
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
