"""The ranks that run modules for the leader of their pipeline."""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable

from .messages import Start, Started
from .packing import unpack
from .scheduler import Task
from .server import Alike, Bodies, Merge, Outcome, Server, Waited
from .transport import Message


class Worker(Server):
    """Answers the leader's requests, and those of other workers, until the step is over."""

    is_leader = False

    def step(
        self, name: str, bodies: Bodies, merge: Merge, began: Callable[[bool], None], alike: Alike
    ) -> Outcome[Any]:
        """As :meth:`.Server.step` says.

        A step of another name is served as well and its end ignored: the leader runs it alone.
        """
        with self.failing_together():
            while True:
                while not self._starts:
                    self._take(lambda: f"rank {self._ranks[0]} to call {name}")
                start = self._starts.pop(0)
                if start.name != name:
                    self._serve(start)
                    continue
                began(start.context.grad)
                return self._serve(start)

    def _serve(self, start: Start) -> Outcome[Any]:
        self._begin()
        self._step = start.number
        self._send(0, Started(start.number))
        self._routing.begin(start.training)
        self._routing.started(start.name, start.context.grad)
        early, self._early = self._early, []
        for message in early:
            self._dispatch(message)
        try:
            waits_for = f"the next request, or the end of {start.name} on rank {self._ranks[0]}"
            while not self._is_over:
                task = self._next(waits_for)
                if task is not None:
                    self._run(task, functools.partial(self._run_others, waits_for))
        finally:
            self._routing.end()
        end, tensors = self._ends[self._step]
        outputs = unpack(end.outputs, tensors, None)
        self._routing.ended(self._gather)
        self._finish()
        return Outcome(outputs, end.backward)

    def _next(self, waits_for: str) -> Task | None:
        """What runs next on a rank that serves; None: it isn't known before another message has come."""
        self._take_all()
        if self._turns.follows:
            task = self._told([])
        else:
            backward = self._backward_first and self._ahead.far
            task = self._scheduler.next(backward) or self._scheduler.next(not backward)
        if task is None and not self._is_over:
            self._take(lambda: waits_for)
        return task

    def _run_others(self, waits_for: str, until: Task) -> None:
        """Runs what else there is, as long as a task of this thread waits."""
        try:
            self._routing.ran(until.microbatch)
            while (task := self._next(waits_for)) is not until:
                if task is not None:
                    self._run(task)
            self._announce(until)
        except BaseException as error:
            self._interrupted = error  # the script's own code may catch it on its way
            raise

    def pause(self) -> None:
        """A worker has nothing better to do."""

    def _wait_with_leader(self, work: Any) -> None:
        with self.failing_together():
            self._serve_until(work)

    def _serve_until(self, work: Any) -> None:
        threading.Thread(target=self._watch, args=(work,), name="smp wait", daemon=True).start()
        while not self._waited:
            if self._starts and self._starts[0].met == self._met:
                # the leader has not come to this collective yet; else it is a step that this rank will call, too
                self._serve(self._starts.pop(0))
            else:
                self._take(None)
        error = self._waited.pop().error
        if error is not None:
            raise self.failure_of_another(error)

    def _watch(self, work: Any) -> None:
        try:
            work.wait()
        except BaseException as error:
            self._inbox.put(Message(self._rank, Waited(error), []))
        else:
            self._inbox.put(Message(self._rank, Waited(None), []))
