"""Everything the server knows, in one SQLite file: it is as it was when the server is killed and started again.

One row per job (or other resource) of the API: the request as it came, and beside it the facts that have come up since,
under the names they have in the answer of Describe. The server and the processes of its jobs write to the file, each
change in one transaction; nothing is kept in memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

FILE = "state.sqlite3"
_PATIENCE = 60.0
"""Seconds to wait for another process's transaction."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS resources (
    kind TEXT NOT NULL, name TEXT NOT NULL, arn TEXT NOT NULL UNIQUE, status TEXT NOT NULL, parent TEXT NOT NULL,
    created REAL NOT NULL, modified REAL NOT NULL, ended REAL, request TEXT NOT NULL, facts TEXT NOT NULL,
    number INTEGER NOT NULL, PRIMARY KEY (kind, name)
);
CREATE INDEX IF NOT EXISTS by_creation ON resources (kind, created, name);
CREATE INDEX IF NOT EXISTS by_status ON resources (kind, status, created);
CREATE INDEX IF NOT EXISTS by_end ON resources (kind, ended, number);
CREATE UNIQUE INDEX IF NOT EXISTS by_number ON resources (number);
CREATE INDEX IF NOT EXISTS by_parent ON resources (kind, parent, created);
CREATE TABLE IF NOT EXISTS tags (
    arn TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (arn, key)
);
CREATE INDEX IF NOT EXISTS by_tag ON tags (key, value);
CREATE TABLE IF NOT EXISTS measured (
    arn TEXT NOT NULL, epoch INTEGER NOT NULL, value REAL NOT NULL, PRIMARY KEY (arn, epoch)
) WITHOUT ROWID;
"""
_COLUMNS = "kind, name, arn, status, parent, created, modified, ended, request, facts, number"


class Record(NamedTuple):
    """One resource.

    ``kind``: its noun, such as ``training-job``. ``name``: unique within its kind. ``status``: as the API calls it.
    ``parent``: the ARN of what made it (a tuning job, an execution), or empty. ``created``, ``modified``, ``ended``: in
    seconds since the epoch; ``ended`` is None while it isn't over. ``request``: what it was made with.
    ``facts``: what else Describe answers, and under names that begin with ``_`` what only the server needs.
    ``number``: counts what was made, in order.
    """

    kind: str
    name: str
    arn: str
    status: str
    parent: str
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


class AlreadyThere(Exception):
    """There is a resource of that kind and name."""

    def __init__(self, record: Record) -> None:
        super().__init__(record.name)
        self.record = record


class State:
    """The file in the directory ``data``. Each thread has a connection of its own."""

    def __init__(self, data: str) -> None:
        self.path = os.path.join(data, FILE)
        self._threads = threading.local()
        with self._writing() as connection:
            connection.executescript(_SCHEMA)

    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._threads, "connection", None)
        if found is None:
            found = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
            found.execute("PRAGMA journal_mode = WAL")
            found.execute("PRAGMA synchronous = NORMAL")
            self._threads.connection = found
        return found

    def close(self) -> None:
        """Ends this thread's connection."""
        found: sqlite3.Connection | None = getattr(self._threads, "connection", None)
        if found is not None:
            found.close()
            del self._threads.connection

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that nobody else writes beside."""
        connection = self._connection()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if connection.in_transaction:
            connection.execute("COMMIT")

    def add(
        self,
        kind: str,
        name: str,
        arn: str,
        status: str,
        request: Mapping[str, Any],
        facts: Mapping[str, Any],
        tags: Mapping[str, str] | None = None,
        parent: str = "",
    ) -> Record:
        """Keeps a new resource.

        Raises:
            AlreadyThere: one of that kind and name.
        """
        now = time.time()
        with self._writing() as connection:
            there = self._find(connection, kind, name)
            if there is not None:
                raise AlreadyThere(there)
            number = connection.execute("SELECT COALESCE(MAX(number), 0) + 1 FROM resources").fetchone()[0]
            words = (kind, name, arn, status, parent, now, now, None, json.dumps(request), json.dumps(facts), number)
            connection.execute(f"INSERT INTO resources ({_COLUMNS}) VALUES ({', '.join('?' * 11)})", words)
            self._tag(connection, arn, tags or {})
        return Record(kind, name, arn, status, parent, now, now, None, request, facts, number)

    def find(self, kind: str, name: str) -> Record | None:
        return self._find(self._connection(), kind, name)

    @staticmethod
    def _find(connection: sqlite3.Connection, kind: str, name: str) -> Record | None:
        question = f"SELECT {_COLUMNS} FROM resources WHERE kind = ? AND name = ?"
        row = connection.execute(question, (kind, name)).fetchone()
        return _record(row) if row else None

    def change(self, kind: str, name: str, change: Callable[[Record], Record | None]) -> Record | None:
        """Replaces a resource by what ``change`` makes of it: status, ``ended`` and facts; None from it: as it was.

        What is returned is the resource afterwards; None: there is none.
        """
        with self._writing() as connection:
            before = self._find(connection, kind, name)
            after = None if before is None else change(before)
            if before is None or after is None:
                return before
            after = after._replace(modified=time.time())
            connection.execute(
                "UPDATE resources SET status = ?, modified = ?, ended = ?, facts = ? WHERE kind = ? AND name = ?",
                (after.status, after.modified, after.ended, json.dumps(after.facts), kind, name),
            )
            return after

    def remove(self, kind: str, name: str) -> None:
        """Forgets a resource and its tags."""
        with self._writing() as connection:
            there = self._find(connection, kind, name)
            if there is not None:
                for table in ("tags", "measured"):
                    connection.execute(f"DELETE FROM {table} WHERE arn = ?", (there.arn,))
                connection.execute("DELETE FROM resources WHERE kind = ? AND name = ?", (kind, name))

    def select(self, kind: str, where: str = "", values: Sequence[Any] = (), order: str = "number") -> list[Record]:
        """The resources of ``kind`` for which the SQL condition ``where`` holds, in ``order`` (which may limit them).

        Both are texts of the code; what comes from clients goes into ``values``.
        """
        question = (
            f"SELECT {_COLUMNS} FROM resources WHERE kind = ?{f' AND ({where})' if where else ''} ORDER BY {order}"
        )
        return [_record(row) for row in self._connection().execute(question, (kind, *values))]

    def by_arn(self, arn: str) -> Record | None:
        question = f"SELECT {_COLUMNS} FROM resources WHERE arn = ?"
        row = self._connection().execute(question, (arn,)).fetchone()
        return _record(row) if row else None

    def tags(self, arn: str) -> dict[str, str]:
        rows = self._connection().execute("SELECT key, value FROM tags WHERE arn = ? ORDER BY key", (arn,))
        return dict(rows.fetchall())

    def tag(self, arn: str, tags: Mapping[str, str]) -> None:
        with self._writing() as connection:
            self._tag(connection, arn, tags)

    @staticmethod
    def _tag(connection: sqlite3.Connection, arn: str, tags: Mapping[str, str]) -> None:
        rows = [(arn, key, value) for key, value in tags.items()]
        connection.executemany("INSERT OR REPLACE INTO tags (arn, key, value) VALUES (?, ?, ?)", rows)

    def untag(self, arn: str, keys: Sequence[str]) -> None:
        with self._writing() as connection:
            connection.executemany("DELETE FROM tags WHERE arn = ? AND key = ?", [(arn, key) for key in keys])

    def measure(self, arn: str, values: Sequence[float], most: int) -> None:
        """Keeps further values of what a tuning job looks at, ``most`` of them in all."""
        with self._writing() as connection:
            known = connection.execute("SELECT COUNT(*) FROM measured WHERE arn = ?", (arn,)).fetchone()[0]
            rows = [(arn, epoch, value) for epoch, value in enumerate(values[: max(0, most - known)], known + 1)]
            connection.executemany("INSERT INTO measured (arn, epoch, value) VALUES (?, ?, ?)", rows)

    def measured(self, arn: str) -> list[float]:
        """The values that :meth:`measure` has kept, in their order."""
        rows = self._connection().execute("SELECT value FROM measured WHERE arn = ? ORDER BY epoch", (arn,))
        return [value for (value,) in rows]


def _record(row: Sequence[Any]) -> Record:
    kind, name, arn, status, parent, created, modified, ended, request, facts, number = row
    return Record(
        kind, name, arn, status, parent, created, modified, ended, json.loads(request), json.loads(facts), number
    )
