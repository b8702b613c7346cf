"""Everything the server knows, in memory: one record per training job, and its tags.

A record has the request as it came, and the facts that have come up since, under the names they have in the answer of
Describe. Each change is one step for all threads, and whoever listens hears of it.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

from musterpoint.local.job_status import OVER, PRIMARY, is_over, transitions
from musterpoint.serve.errors import ApiError, invalid

_ORDERS = {"CreationTime": "created", "Name": "name", "Status": "status", "LastModifiedTime": "modified"}
_NOT_OURS = "Invalid NextToken: it isn't one that this server gave out"
PAGE = 10
"""Entries of a page where the request doesn't say."""


class Record(NamedTuple):
    """One training job.

    ``status``: TrainingJobStatus. ``created``, ``modified``, ``ended``: in seconds since the epoch; ``ended`` is None
    while it isn't over. ``request``: what it was made with. ``facts``: what else Describe answers, and under names that
    begin with ``_`` what only the server needs. ``number``: counts jobs in the order in which they were made.
    """

    name: str
    arn: str
    status: str
    created: float
    modified: float
    ended: float | None
    request: Mapping[str, Any]
    facts: Mapping[str, Any]
    number: int = 0

    @property
    def shown(self) -> dict[str, Any]:
        """The facts that the API answers."""
        return {name: value for name, value in self.facts.items() if not name.startswith("_")}

    def with_facts(self, **facts: Any) -> Record:
        return self._replace(facts={**self.facts, **facts})


class AlreadyThere(Exception):
    """A job has that name already."""

    def __init__(self, record: Record) -> None:
        super().__init__(record.name)
        self.record = record


class Listeners:
    """Calls that hear of what happens; they must not wait. ``say`` prints what one raised, and the others hear it."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._heard: list[Callable[..., None]] = []

    def add(self, heard: Callable[..., None]) -> Callable[[], None]:
        """Calls ``heard`` from now on, until the call that is returned."""
        self._heard.append(heard)
        return lambda: self._heard.remove(heard) if heard in self._heard else None

    def tell(self, *what: Any) -> None:
        for heard in list(self._heard):
            try:
                heard(*what)
            except Exception as error:
                self._say(f"a listener failed: {type(error).__name__}: {error}")


class State:
    """All records."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._records: dict[str, Record] = {}
        self._names: dict[str, str] = {}
        self._tags: dict[str, dict[str, str]] = {}
        self._listeners = Listeners(say)
        self._count = 0

    def listen(self, heard: Callable[[Record], None]) -> Callable[[], None]:
        """Calls ``heard`` with each changed record until the call that is returned. A job that has gone has an empty
        status. ``heard`` must not wait.
        """
        with self._changed:
            return self._listeners.add(heard)

    def _put(self, record: Record) -> Record:
        self._records[record.name] = record
        self._names[record.arn] = record.name
        self._tell(record)
        return record

    def _tell(self, record: Record) -> None:
        self._changed.notify_all()
        self._listeners.tell(record)

    def add(
        self,
        name: str,
        arn: str,
        status: str,
        request: Mapping[str, Any],
        facts: Mapping[str, Any],
        tags: Mapping[str, str] | None = None,
    ) -> Record:
        """Keeps a new job.

        Raises:
            AlreadyThere: one has that name, in whatever case.
        """
        now = time.time()
        with self._changed:
            if arn in self._names:
                raise AlreadyThere(self._records[self._names[arn]])
            self._count += 1
            self._tags[arn] = dict(tags or {})
            return self._put(Record(name, arn, status, now, now, None, request, facts, self._count))

    def find(self, name: str) -> Record | None:
        return self._records.get(name)

    def change(self, name: str, change: Callable[[Record], Record | None]) -> Record | None:
        """Replaces a job by the result of ``change``; None from it: the job stays as it was.

        The job afterwards is returned; None: there is none.
        """
        with self._changed:
            before = self.find(name)
            after = None if before is None else change(before)
            return before if after is None else self._put(after._replace(modified=time.time()))

    def wait(self, name: str, reached: Callable[[Record], bool], timeout: float) -> Record:
        """The job once ``reached`` holds of it.

        Raises:
            ApiError: that takes longer than ``timeout`` seconds, or it has been deleted.
        """
        until = time.monotonic() + timeout
        with self._changed:
            while True:
                found = self.find(name)
                if found is None:
                    raise invalid(f"{name} has been deleted")
                if reached(found):
                    return found
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    raise ApiError(
                        "Timeout", f"{name} is still {found.facts.get('SecondaryStatus', found.status)}", 408
                    )

    def wake(self) -> None:
        """Has every :meth:`wait` look again."""
        with self._changed:
            self._changed.notify_all()

    def remove(self, name: str) -> None:
        """Forgets a job and its tags."""
        with self._changed:
            there = self._records.pop(name, None)
            if there is not None:
                del self._names[there.arn], self._tags[there.arn]
                self._tell(there._replace(status=""))

    def clear(self) -> None:
        """Forgets everything."""
        with self._changed:
            for each in (self._records, self._names, self._tags):
                each.clear()
            self._changed.notify_all()

    def select(self, where: Callable[[Record], bool] = lambda _: True) -> list[Record]:
        """The jobs for which ``where`` holds, the oldest first."""
        with self._changed:
            found = [record for record in self._records.values() if where(record)]
        return sorted(found, key=lambda record: record.number)

    def by_arn(self, arn: str) -> Record | None:
        with self._changed:
            return self._records.get(self._names.get(arn, ""))

    def tags(self, arn: str) -> dict[str, str]:
        return dict(sorted(self._tags.get(arn, {}).items()))

    def tag(self, arn: str, tags: Mapping[str, str]) -> None:
        with self._changed:
            self._tags.setdefault(arn, {}).update(tags)

    def untag(self, arn: str, keys: Sequence[str]) -> None:
        with self._changed:
            for key in keys:
                self._tags.get(arn, {}).pop(key, None)


class Listed(NamedTuple):
    """One page, and the token of the next; empty: it was the last."""

    records: Sequence[Any]
    next_token: str

    def answer(self, name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {name: list(rows)}
        return {**found, "NextToken": self.next_token} if self.next_token else found


def listed(records: Sequence[Record], parameters: Mapping[str, Any]) -> Listed:
    """The page of ``records`` for ``parameters``, by the filters and orders of all List operations."""
    column = _ORDERS[parameters.get("SortBy", "CreationTime")]
    down = parameters.get("SortOrder", "Descending") == "Descending"
    found = sorted(_filtered(records, parameters), key=lambda each: (getattr(each, column), each.number), reverse=down)
    token = _read_token(parameters.get("NextToken", ""))
    if token is not None:  # what has been made or has gone meanwhile moves no other entry to another page
        last = tuple(token)
        place = [(getattr(each, column), each.number) for each in found]
        if not isinstance(last[0], str if column in ("name", "status") else float):
            raise invalid(_NOT_OURS)
        found = [each for each, at in zip(found, place) if (at < last if down else at > last)]
    most = int(parameters.get("MaxResults", PAGE))
    end = found[most - 1] if len(found) > most else None
    return Listed(found[:most], _token(getattr(end, column), end.number) if end is not None else "")


def _filtered(records: Sequence[Record], parameters: Mapping[str, Any]) -> Iterator[Record]:
    names = [name for name in parameters if name.endswith(("TimeAfter", "TimeBefore"))]
    try:
        limits = {name: float(parameters[name]) for name in names}
    except ValueError:
        raise invalid(f"{', '.join(names)}: expected seconds since the epoch") from None
    part = parameters.get("NameContains", "").lower()
    status = parameters.get("StatusEquals")
    for record in records:
        times = {"Creation": record.created, "LastModified": record.modified}
        late = all(times[name.partition("Time")[0]] > at for name, at in limits.items() if name.endswith("After"))
        early = all(times[name.partition("Time")[0]] < at for name, at in limits.items() if name.endswith("Before"))
        if late and early and part in record.name.lower() and status in (None, record.status):
            yield record


def _token(value: Any, number: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([value, number]).encode()).decode()


def _read_token(token: str) -> list[Any] | None:
    if not token:
        return None
    try:
        value, number = json.loads(base64.urlsafe_b64decode(token.encode()))
        return [value, int(number)]
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise invalid(_NOT_OURS) from None


STOP, INTERRUPT, LOSE, END = "stop", "interrupt", "lose", "end"
"""Orders for a running job: StopTrainingJob, the spot market's, a host's loss, the server's end."""
INTERNAL_ERROR = "InternalServerError: We encountered an internal error. Please try again."


def entered(record: Record, status: str, message: str = "", **facts: Any) -> Record:
    """``record`` in the secondary status ``status``. A job that is over stays as it is.

    A job that is being stopped stays so until it is over.
    """
    if record.status in OVER:
        return record
    now = time.time()
    passed = transitions(record.facts.get("SecondaryStatusTransitions", ()), status, now, message)
    primary, over = PRIMARY.get(status, "InProgress"), is_over(status)
    if record.status == "Stopping" and not over:
        primary = "Stopping"
    changed = record.with_facts(**facts, SecondaryStatus=status, SecondaryStatusTransitions=passed)
    return changed._replace(status=primary, ended=now if over else None)
