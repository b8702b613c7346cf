"""One failure, its reason, and counts of the failures beside it, as they travel between hosts and into the reports."""

import re
from typing import Any, Callable, Iterable, Literal

from musterpoint.base import exit_codes
from musterpoint.base.errors import CheckError, FetchError, MusterError, RollCallError
from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import check_types, clip, is_host_name, printable

Cause = Literal["user", "muster", "platform", "host"]
"""Where the failure comes from: the user's program, us, the platform (a stop), or a lost host."""
Kind = Literal["user", "oom", "peer", "infra"]
"""The class in ``outcome.json``; ``peer`` is a symptom of another host's failure."""

MOST_REASON = 900
"""Bytes of UTF-8 in a reason: SageMaker shows 1,024 characters and adds words of its own."""
ERROR_SHARE = 480
"""Bytes of a reason that the error gets at least, if there are other parts."""


class Failure(NamedTuple):
    """One failure as it travels between hosts and into the reports (JSON: an object of these keys).

    ``code`` is what the control plane gets (1–255), ``at`` is seconds since the epoch on the host that failed.
    ``second_hand``: only the user's own launcher reports it; the rank itself printed no error. ``inside``: the function
    of the program (or the line) in which the rank failed, where its output says that. ``ended``: the ranks of its host
    that had ended with 0 by then, where it is a symptom. ``ending``: the rank has raised, and is still on its way out:
    this is the cause of what others report meanwhile. ``lost_connection``: an exception that says no more than that a
    connection ended, perhaps because another rank did; or a file is too short, so it is no symptom by itself.
    """

    host: str
    code: int
    cause: Cause
    kind: Kind
    reason: str
    rank: int | None = None
    local_rank: int | None = None
    signal: int | None = None
    at: float = 0.0
    second_hand: bool = False
    inside: str = ""
    ended: tuple[int, ...] = ()
    ending: bool = False
    lost_connection: bool = False
    role: str = ""

    @property
    def is_symptom(self) -> bool:
        """Whether another failure may have caused this one."""
        return self.kind == "peer" or self.second_hand

    def gives_way_to(self, later: "Failure") -> bool:
        """Whether ``later``, which is reported after this one, may have caused it.

        A rank that raises tells of it before its connections end; one that is killed, or just ends, may be seen last.
        """
        if later.is_symptom:
            return False
        return self.is_symptom or (self.lost_connection and not later.lost_connection and not later.inside)

    def is_same_as(self, other: "Failure") -> bool:
        """Whether both are the same failure, as it was reported and as the leader announced it: masking, cutting and
        :func:`after_others` change some of it.
        """
        return self._bare == other._bare

    def says_what(self, other: "Failure") -> bool:
        """Whether both reasons begin with the same line, except for numbers and the host."""
        return _words_of(self) == _words_of(other)

    @property
    def _bare(self) -> "Failure":
        return self._replace(reason="", kind="user", inside="", ended=(), ending=False, lost_connection=False)

    def to_wire(self) -> dict[str, Any]:
        """What :meth:`from_wire` reads."""
        return self._asdict()

    @classmethod
    def from_wire(cls, value: Any) -> "Failure":
        """Builds it from decoded JSON; unknown keys are dropped, a reason is cut and made printable.

        Unknown causes and kinds (of other versions) are kept.

        Raises:
            ValueError: a key is missing, has a wrong type or is out of its range.
        """
        if not isinstance(value, dict):
            raise ValueError(f"a failure is a JSON object, not {type(value).__name__}")
        try:
            failure = cls(**{key: value[key] for key in cls._fields if key in value})
            failure = failure._replace(ended=tuple(failure.ended))
        except TypeError as error:
            raise ValueError(f"a failure lacks a key: {error}") from None
        check_types(failure, _FAILURE_TYPES, "a failure's ")
        for key, most in _MOST.items():
            found = getattr(failure, key)
            if found is not None and not (key == "code") <= found <= most:
                raise ValueError(f"a failure's {key} is {found!r:.40}, not at most {most}")
        if len(failure.ended) > MOST_ENDED or any(type(rank) is not int for rank in failure.ended):
            raise ValueError(f"a failure's ended ranks are no list of at most {MOST_ENDED} numbers")
        if not is_host_name(failure.host):
            raise ValueError(f"a failure's host is {failure.host!r:.40}, which is no name")
        for word in (failure.cause, failure.kind):
            if not (word.isascii() and word.isalpha() and len(word) <= _LONGEST_WORD):
                raise ValueError(f"a failure's cause or kind is {word!r:.40}, which is no word")
        inside, role = printable(failure.inside, LONGEST_INSIDE), printable(failure.role, LONGEST_INSIDE)
        reason = printable(failure.reason, MOST_REASON, lines=True)
        return failure._replace(reason=reason, inside=inside, role=role)


def failure_of_error(error: BaseException, host: str, mask: Callable[[str], str] = str, at: float = 0.0) -> Failure:
    """A failure of our own: the text of a :class:`MusterError`, or for a bug the traceback's end and code 70."""
    if isinstance(error, MusterError):
        kind: Kind = "infra" if isinstance(error, (RollCallError, FetchError, CheckError)) else "user"
        # a roll call or a check that failed is the same failure on every host
        where = f"\non {host}" if host and not isinstance(error, (RollCallError, CheckError)) else ""
        return Failure(host, error.code, "muster", kind, fit([f"muster: {mask(str(error))}{where}"]), at=at)
    import traceback

    frames = "".join(traceback.format_tb(error.__traceback__)[-3:]).rstrip()
    lead = f"muster: internal error, please report it: {''.join(traceback.format_exception_only(error)).strip()}"
    where = f"on {host}, " if host else ""
    reason = fit([mask(lead), f"{where}exit code {exit_codes.INTERNAL}", mask(frames)])
    return Failure(host, exit_codes.INTERNAL, "muster", "infra", reason, at=at)


def after_others(failure: Failure, ended: Iterable[int], world: int) -> Failure:
    """``failure``, a symptom of which nobody reported the cause, with the ranks ``ended`` that had ended with 0.

    Where those were all other ranks of the ``world``, there is no other cause: it is the program's own mistake.
    """
    before = sorted({*ended, *failure.ended} - {failure.rank})
    if not before or failure.rank is None:
        return failure
    where = f"in {failure.inside}" if failure.inside else "running"
    said = f"{numbers(before)} had ended with 0; rank {failure.rank} was still {where}"
    lines = failure.reason.split("\n")
    who = next((at for at, line in enumerate(lines) if line.startswith(f"rank {failure.rank} (local rank ")), 0)
    parts = ["\n".join(lines[:who]), lines[who], said, *lines[who + 1 :]]
    kind: Kind = "user" if len(before) >= world - 1 else failure.kind
    return failure._replace(reason=fit(parts), kind=kind, ended=())


def numbers(ranks: Iterable[int]) -> str:
    """``rank 3``, or ``ranks 0–2, 5``."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = [str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}–{b}" for a, b in runs[:_MOST_LISTED]]
    text = ", ".join(shown) + (", …" if len(runs) > _MOST_LISTED else "")
    return ("rank " if len(runs) == 1 and runs[0][0] == runs[0][1] else "ranks ") + text


def lost_host(host: str, why: str, at: float = 0.0, apart_from: str = "", role: str = "") -> Failure:
    """The failure for a lost host; arguments as in :class:`PeerLost`. ``role``: the host's, in a job of several."""
    reason = f"muster: host {host}{f' ({role})' if role else ''} was lost: {why}"
    if apart_from:
        reason = f"muster: hosts {' and '.join(sorted((host, apart_from)))} lost each other: {why}"
    return Failure(host=host, code=exit_codes.HOST_LOST, cause="host", kind="infra", reason=reason, at=at, role=role)


_LONGEST_WORD = 24
LONGEST_INSIDE = 80
MOST_ENDED = 1024
_MOST_LISTED = 8
_MOST = {"code": 255, "rank": 2**32, "local_rank": 65535, "signal": 127, "at": 10**12}
_TEXT = (str,)
_OPTIONAL = (int, type(None))
_FAILURE_TYPES: dict[str, tuple[type, ...]] = {
    "host": _TEXT,
    "code": (int,),
    "cause": _TEXT,
    "kind": _TEXT,
    "reason": _TEXT,
    "rank": _OPTIONAL,
    "local_rank": _OPTIONAL,
    "signal": _OPTIONAL,
    "at": (int, float),
    "second_hand": (bool,),
    "inside": _TEXT,
    "ended": (tuple,),
    "ending": (bool,),
    "lost_connection": (bool,),
    "role": _TEXT,
}


class Secondary(NamedTuple):
    """How many ranks failed beside the first: with the ``same`` error, because a peer was ``lost``, or ``other``."""

    same: int = 0
    lost: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        return sum(self)

    def plus(self, more: "Secondary") -> "Secondary":
        return Secondary(*map(int.__add__, self, more))

    @classmethod
    def of(cls, failures: Iterable[Failure], first: Failure) -> "Secondary":
        """Counts ``failures`` except ``first``, which may be among them, perhaps in its rank's later words."""
        tally = cls()
        for failure in failures:
            same_rank = failure.rank is not None and (failure.host, failure.rank) == (first.host, first.rank)
            if not same_rank and not failure.is_same_as(first):
                tally = tally.plus(
                    _ALIKE if _same_words(failure, first) else _LOST if failure.kind == "peer" else _OTHER
                )
        return tally


_SUGGESTION = re.compile(r"\. Did you (?:mean|forget to import):? .*\?$")
"""Python prints it behind an exception's own words (``print_exception`` in CPython's ``pythonrun.c``)."""
NO_FAILURES, _ALIKE, _LOST, _OTHER = Secondary(), Secondary(1), Secondary(0, 1), Secondary(0, 0, 1)


def _same_words(one: Failure, other: Failure) -> bool:
    """Whether two failures have the same first line and code, except for numbers and the host."""
    return one.code == other.code and one.says_what(other)


def _words_of(failure: Failure) -> str:
    said = failure.reason.replace(f" on {failure.host}", "").partition("\n")[0]
    return re.sub(r"\d+", "0", _SUGGESTION.sub("", said))


def fit(parts: Iterable[str], limit: int = MOST_REASON, last_first: bool = False) -> str:
    """``parts`` as lines within ``limit`` bytes. The first is cut to its share if there are others; then the end.

    ``last_first``: the last part is kept whole and the text before it is cut.
    """
    parts = [part for part in parts if part]
    whole = "\n".join(parts)
    if len(whole.encode("utf-8", "replace")) <= limit:
        return whole
    if last_first:
        kept = "\n" + parts[-1]
        return clip("\n".join(parts[:-1]), limit - len(kept.encode())) + kept
    rest = len("\n".join(parts[1:]).encode("utf-8", "replace")) + 1
    first = clip(parts[0], limit if len(parts) == 1 else max(ERROR_SHARE, limit - rest))
    return clip("\n".join([first, *parts[1:]]), limit)


def with_secondary(failure: Failure, others: Secondary, end: str = "") -> str:
    """``failure``'s reason with the counts of the others, and with the sentence ``end``."""
    last = "\n".join(filter(None, (_counted(others), end)))
    return fit([failure.reason, last], last_first=True) if last else failure.reason


def _counted(others: Secondary) -> str:
    if not others.total:
        return ""
    what = {"the same way": others.same, "after it (peer lost)": others.lost, "with another error": others.other}
    kinds = [(how, count) for how, count in what.items() if count]
    who = "1 other rank" if others.total == 1 else f"{others.total} other ranks"
    said = kinds[0][0] if len(kinds) == 1 else ", ".join(f"{count} {how}" for how, count in kinds)
    return f"{who} failed{' ' if len(kinds) == 1 else ': '}{said}"
