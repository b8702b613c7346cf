"""Has tuning jobs go on whenever one of their training jobs is over, also those that a former server began."""

from __future__ import annotations

import queue
import threading

from musterpoint.serve.context import Context
from musterpoint.serve.operations import tuning_jobs


class Tuning:
    """A thread beside the server's own."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._names: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tuning", daemon=True)

    def start(self) -> None:
        """Listens from now on."""
        self._context.notices.listen(self._names.put)
        self._thread.start()

    def close(self) -> None:
        self._names.put(None)
        self._thread.join()

    def _run(self) -> None:
        for record in self._context.state.select(tuning_jobs.KIND, "ended IS NULL"):
            tuning_jobs.advance(self._context, record.name)
        while (name := self._names.get()) is not None:
            tuning_jobs.changed(self._context, name)
        self._context.state.close()
