"""The protocol in which the roll call's channel and the supervisor meet: events in, words out.

The supervisor knows only this module of the other hosts; :mod:`musterpoint.rollcall` implements it three times (the
leader's end, a worker's end, and a host that is alone).
"""

from typing import Any, Callable, NamedTuple, Protocol, Union

from musterpoint import exit_codes


class Failure(NamedTuple):
    """One failure as it travels between hosts and into the reports (JSON: an object of these keys).

    ``kind`` is the class in ``outcome.json``: ``user``, ``oom``, ``peer`` (a symptom of another host's failure),
    ``infra``. ``cause`` is ``user``, ``muster``, ``platform`` or ``host``. ``code`` is what the control plane gets
    (1–255), ``at`` is seconds since the epoch on the host that failed.
    """

    host: str
    code: int
    cause: str
    kind: str
    reason: str
    rank: int | None = None
    local_rank: int | None = None
    signal: int | None = None
    at: float = 0.0

    @classmethod
    def from_wire(cls, value: Any) -> "Failure":
        """Builds it from decoded JSON; unknown keys are dropped, a reason is cut and made printable.

        Raises:
            ValueError: a key is missing, has a wrong type or is out of its range.
        """
        from musterpoint.field_types import check_types
        from musterpoint.printable import is_host_name, printable

        if not isinstance(value, dict):
            raise ValueError(f"a failure is a JSON object, not {type(value).__name__}")
        try:
            failure = cls(**{key: value[key] for key in cls._fields if key in value})
        except TypeError as error:
            raise ValueError(f"a failure lacks a key: {error}") from None
        check_types(failure, _FAILURE_TYPES, "a failure's ")
        for key, most in _MOST.items():
            found = getattr(failure, key)
            if found is not None and not (key == "code") <= found <= most:
                raise ValueError(f"a failure's {key} is {found!r:.40}, not at most {most}")
        if not is_host_name(failure.host):
            raise ValueError(f"a failure's host is {failure.host!r:.40}, which is no name")
        for word in (failure.cause, failure.kind):
            if not (word.isascii() and word.isalpha() and len(word) <= _LONGEST_WORD):
                raise ValueError(f"a failure's cause or kind is {word!r:.40}, which is no word")
        return failure._replace(reason=printable(failure.reason, MOST_REASON, lines=True))


def lost_host(host: str, why: str, at: float = 0.0) -> Failure:
    """The failure that a host lost without a word stands for."""
    reason = f"muster: host {host} was lost: {why}"
    return Failure(host=host, code=exit_codes.HOST_LOST, cause="host", kind="infra", reason=reason, at=at)


MOST_REASON = 900
"""Bytes of a reason that is taken from another host."""
_LONGEST_WORD = 24
_MOST = {"code": 255, "rank": 2**32, "local_rank": 65535, "signal": 127, "at": 10**12}
_TEXT = (str,)
_OPTIONAL = (int, type(None))
_FAILURE_TYPES: dict[str, tuple[type, ...]] = {
    "host": _TEXT, "code": (int,), "cause": _TEXT, "kind": _TEXT, "reason": _TEXT,
    "rank": _OPTIONAL, "local_rank": _OPTIONAL, "signal": _OPTIONAL, "at": (int, float),
}  # fmt: skip


class JobFailed(NamedTuple):
    """The leader's verdict: this is the job's first failure. Every host ends with its code and reason.

    ``secondary`` counts the other failures known when the verdict fell.
    """

    failure: Failure
    secondary: int = 0


class StopAll(NamedTuple):
    """A stop was asked for on ``host`` (SIGTERM there): every host stops, with checkpoints."""

    host: str
    signal: int


class PeerLost(NamedTuple):
    """``host`` is lost without a word; ``why`` says how that was seen. Only a warning to ``script`` jobs."""

    host: str
    why: str


class PeerSilent(NamedTuple):
    """``host`` has been silent for ``seconds``; it is being dialled again (or its call awaited)."""

    host: str
    seconds: float


class PeerBack(NamedTuple):
    """A silent or cut-off ``host`` is heard again; its session was resumed."""

    host: str


class Arrived(NamedTuple):
    """Every host of the roster has called :meth:`Peers.arrive` with this ``point``."""

    point: str


class AllDone(NamedTuple):
    """Every host has said ``done``: leave. ``failures`` counts the ranks that failed, on all hosts together."""

    failures: int = 0


class StartAsked(NamedTuple):
    """The leader asks this host to start an MPI daemon. ``words`` are what its mpirun handed to the remote shell,
    one text per argument; ``number`` names the request in the answers. Only workers get this.
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


PeerEvent = Union[
    JobFailed, StopAll, PeerLost, PeerSilent, PeerBack, Arrived, AllDone, StartAsked, Started, StartEnded
]  # fmt: skip


class Peers(Protocol):
    """This host's end of the open channel. All methods return at once; events come in the loop's thread."""

    def listen(self, on_event: Callable[[PeerEvent], None]) -> None:
        """Delivers every event from now on (and those that waited) to ``on_event``."""

    def failed(self, failure: Failure) -> None:
        """Says that something failed here. The verdict comes back as :class:`JobFailed`, on a lone host too."""

    def stopping(self, signal: int) -> None:
        """Says that this host was told to stop; the others get :class:`StopAll`."""

    def arrive(self, point: str) -> None:
        """Says that this host has reached ``point``; :class:`Arrived` comes when all have."""

    def done(self, code: int, failures: int = 0) -> None:
        """Says that this host's ranks ended, with ``code``; :class:`AllDone` comes when all have.

        ``failures`` counts the ranks that failed here.
        """

    def start(self, host: str, number: int, words: tuple[str, ...]) -> None:
        """Asks ``host`` to start an MPI daemon (:class:`StartAsked` there). The leader's to say: a worker or a lone
        host that tries raises ``RuntimeError``. :class:`StartEnded` comes at once if ``host`` is lost or left.

        ``ValueError``: no other host has this name, ``number`` is in use there until its end, or there are no words,
        more than 4,096, or one with a zero byte.
        """

    def started(self, number: int) -> None:
        """Says that the daemon of request ``number`` runs here; only workers have a say (``RuntimeError`` elsewhere).

        Says nothing once the leader is lost.
        """

    def start_ended(self, number: int, status: int, said: str = "") -> None:
        """Says that the daemon of request ``number`` ended here, or that it was refused; once for each request.

        ``status`` is -64 to 255 (``ValueError``); of ``said`` the last 8 KiB are sent.
        """

    def close(self) -> None:
        """Says ``bye`` and gives every descriptor back."""
