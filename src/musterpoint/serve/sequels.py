"""Has tuning jobs and executions of pipelines go on whenever one of their jobs is over, also a former server's."""

from __future__ import annotations

import queue
import threading
import traceback

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
            tuning_jobs.advance(self._context, record.name)
        for record in self._context.state.select(executions.KIND, "ended IS NULL"):
            executions.advance(self._context, record.name)
        while (name := self._names.get()) is not None:
            try:
                tuning_jobs.changed(self._context, name)
                executions.changed(self._context, name)
            except Exception:  # of one job, and others go on
                self._context.say(traceback.format_exc())
        self._context.state.close()
