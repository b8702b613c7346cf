"""Has tuning jobs and executions of pipelines go on whenever one of their jobs is over, also a former server's."""

from __future__ import annotations

import contextlib
import queue
import threading
import traceback
from collections.abc import Iterator

from musterpoint.serve.context import Context
from musterpoint.serve.operations import executions, tuning_jobs


class Sequels:
    """A thread beside the server's own."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._names: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sequels", daemon=True)

    def start(self) -> None:
        """Listens from now on."""
        self._context.notices.listen(self._names.put)
        self._thread.start()

    def close(self) -> None:
        self._names.put(None)
        self._thread.join()

    def _run(self) -> None:
        for record in self._context.state.select(tuning_jobs.KIND, "ended IS NULL"):
            with self._said():
                tuning_jobs.go_on(self._context, record, tuning_jobs.children(self._context, record))
        for record in self._context.state.select(executions.KIND, "ended IS NULL"):
            with self._said():
                executions.advance(self._context, record.name)
        while (name := self._names.get()) is not None:
            with self._said():
                tuning_jobs.changed(self._context, name)
                executions.changed(self._context, name)
        self._context.state.close()

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        """What goes wrong with one job is said, and others go on."""
        try:
            yield
        except Exception:
            self._context.say(traceback.format_exc())
